"""Credentials on sockets: confirmation, renewal, tickets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.clock import ManualClock
from app.gateway.limits import Limits
from app.pairing.errors import PairingCodeRejected
from app.sessions.address import Address
from app.wire.payloads import Auth
from tests.phone import OLDER, Frame, Phone, credentials
from tests.relay import RunningRelay, running, settings_for

DAY = 86400


@pytest.fixture
async def confirming(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    """Its operator says yes to each device."""
    async with running(settings_for(tmp_path, PAIRING_CONFIRM="1")) as relay:
        yield relay


async def begin(relay: RunningRelay, **fields: Any) -> tuple[Phone, Frame]:
    phone = await relay.open()
    return phone, await phone.ask("system", "auth", credentials(**fields))


# confirmation


async def test_a_device_waits_for_the_operator(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    code = (await pairing.mint()).code
    phone, asked = await begin(confirming, pairing_code=code, device_id="dev-1")
    assert (asked.type, set(asked.payload)) == ("auth.pending", {"confirm", "expires_at"})
    assert type(asked.payload["expires_at"]) is int
    await phone.send("system", "ping", ts=7)  # waits for the verdict
    (waiting,) = await pairing.pending()
    assert waiting.confirm == asked.payload["confirm"]
    await pairing.confirm(asked.payload["confirm"], allow=True)
    ok = await phone.until("auth.ok")
    assert ok.id == asked.id
    assert ok.payload["device_id"] == "dev-1"
    await phone.until("pong")


async def test_it_may_take_longer_than_other_strangers_have(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PAIRING_CONFIRM="1")
    async with running(settings, limits=Limits(auth_seconds=1.0)) as relay:
        pairing = relay.relay.pairing
        code = (await pairing.mint()).code
        phone, asked = await begin(relay, pairing_code=code)
        late = await relay.open()
        assert (await late.closed())[0] == 4408  # its whole time has gone by, and the other's before it
        await pairing.confirm(asked.payload["confirm"], allow=True)
        await phone.until("auth.ok")


async def test_a_no_is_a_bad_credential(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    phone, asked = await begin(confirming, pairing_code=(await pairing.mint()).code)
    await pairing.confirm(asked.payload["confirm"], allow=False)
    told = await phone.until("auth.fail")
    assert told.payload["code"] == "pairing_denied"
    assert await phone.closed() == (4401, "pairing_denied")


async def test_two_sockets_with_one_code_and_neither_gets_in(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    code = (await pairing.mint()).code
    phones = [await confirming.open() for _ in range(2)]
    said = [credentials(pairing_code=code, device_id=f"dev-{n}") for n in range(2)]
    answers = await asyncio.gather(*(p.ask("system", "auth", said[n]) for n, p in enumerate(phones)))
    assert sorted(answer.type for answer in answers) == ["auth.fail", "auth.pending"]
    assert [(await phone.closed())[0] for phone in phones] == [4401, 4401]
    assert await confirming.relay.sessions.list() == []


async def test_a_device_that_hangs_up_uses_no_code_and_comes_back_for_it(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    code = (await pairing.mint()).code
    phone, first = await begin(confirming, pairing_code=code, device_id="dev-1", instance="a")
    await phone.hang_up()
    await pairing.confirm(first.payload["confirm"], allow=True)
    again, answer = await begin(confirming, pairing_code=code, device_id="dev-1", instance="b")
    assert answer.type == "auth.ok"
    await again.ping()


async def test_of_two_sockets_of_a_device_the_newer_gets_in(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    said = {"pairing_code": (await pairing.mint()).code, "device_id": "dev-1"}
    gone, first = await begin(confirming, **said)  # it may have left the network, which the relay cannot know
    closed, _ = await begin(confirming, **said)
    newer, again = await begin(confirming, **said)
    assert again.payload == first.payload
    await closed.hang_up()
    await pairing.confirm(first.payload["confirm"], allow=True)
    await newer.until("auth.ok")
    assert await gone.closed() == (4409, "waits_elsewhere")


async def test_the_older_socket_of_a_device_gets_in_where_the_newer_is_gone(confirming: RunningRelay) -> None:
    pairing = confirming.relay.pairing
    said = {"pairing_code": (await pairing.mint()).code, "device_id": "dev-1"}
    older, asked = await begin(confirming, **said)
    newer, _ = await begin(confirming, **said)
    await newer.hang_up()
    while confirming.relay.gateway.strangers > 1:  # noqa: ASYNC110 - the relay tells nobody
        await asyncio.sleep(0)
    await pairing.confirm(asked.payload["confirm"], allow=True)
    await older.until("auth.ok")


async def test_a_relay_that_ends_keeps_nobody_waiting(tmp_path: Path) -> None:
    clock = ManualClock()
    async with asyncio.timeout(15):
        async with running(settings_for(tmp_path, PAIRING_CONFIRM="1"), clock=clock) as relay:
            code = (await relay.relay.pairing.mint()).code
            _, asked = await begin(relay, pairing_code=code, device_id="dev-1")
        async with running(settings_for(tmp_path, PAIRING_CONFIRM="1"), clock=clock) as relay:
            phone, again = await begin(relay, pairing_code=code, device_id="dev-1")
            assert again.payload == asked.payload
            await relay.relay.pairing.confirm(asked.payload["confirm"], allow=True)
            await phone.until("auth.ok")


# renewal


async def test_a_dead_token_and_a_refresh_token_begin_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone = await relay.connect("/", device_id="dev-1", supports=OLDER)
        token, refresh = phone.token, phone.auth["refresh_token"]
        both = {"session_token": token, "refresh_token": refresh, "device_id": "dev-1", "supports": OLDER}
        again = await relay.connect("/", **both)
        assert again.token == token
        assert "refresh_token" not in again.auth  # only when one was just issued
        clock.advance(31 * DAY)
        renewed = await relay.connect("/", **both)
        assert renewed.token != token
        assert renewed.auth["refresh_token"] != refresh
        assert renewed.auth["expires_at"] == clock.now() + 30 * DAY
        assert renewed.auth["device_id"] == "dev-1"
        _, refused = await begin(relay, **both)  # the new token was not seen, but the old session token is dead
        assert refused.type == "auth.ok"
        # The newest token of the new term is spoken with: now the first refresh token is somebody else's copy.
        await relay.connect("/", session_token=refused.payload["session_token"])
        _, refused = await begin(relay, **both)
        assert (refused.type, refused.payload["code"]) == ("auth.fail", "refresh_reused")


async def test_a_refresh_token_alone_will_do(relay: RunningRelay) -> None:
    phone = await relay.connect(device_id="dev-1")
    _, answer = await begin(relay, refresh_token=phone.auth["refresh_token"])
    assert answer.type == "auth.ok"
    assert answer.payload["device_id"] == "dev-1"
    garbage = {"session_token": "garbage", "refresh_token": answer.payload["refresh_token"]}
    for _ in range(6):  # a token that only lost its way is no guess where a good one stands beside it
        _, answer = await begin(relay, **garbage)
        assert answer.type == "auth.ok"
        garbage["refresh_token"] = answer.payload["refresh_token"]


async def test_a_link_renews_its_own_session(relay: RunningRelay) -> None:
    phone, other = await relay.connect(device_id="dev-1"), await relay.connect(device_id="dev-2")
    answer = await phone.ask("system", "session.renew", refresh_token=phone.auth["refresh_token"])
    assert answer.type == "session.renewed"
    assert set(answer.payload) == {"session_token", "refresh_token", "expires_at", "grants"}
    assert answer.payload["expires_at"] >= phone.auth["expires_at"]
    await relay.connect(session_token=answer.payload["session_token"])
    refused = await other.ask("system", "session.renew", refresh_token=answer.payload["refresh_token"])
    assert refused.payload["code"] == "not_yours"
    await phone.ping()


async def test_a_refresh_token_used_again_closes_the_sockets(relay: RunningRelay) -> None:
    phone = await relay.connect(device_id="dev-1")
    first = phone.auth["refresh_token"]
    second = await phone.ask("system", "session.renew", refresh_token=first)
    await phone.ask("system", "session.renew", refresh_token=second.payload["refresh_token"])
    _, refused = await begin(relay, refresh_token=first)
    assert refused.payload["code"] == "refresh_reused"
    assert await phone.closed() == (4401, "refresh_reused")


async def test_renewing_over_http(relay: RunningRelay) -> None:
    phone = await relay.connect(device_id="dev-1")
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as http:
        answer = await http.post("/session/renew", json={"refresh_token": phone.auth["refresh_token"]})
        assert answer.status_code == 200
        headers = {"Authorization": f"Bearer {answer.json()['session_token']}"}
        assert (await http.get("/session", headers=headers)).json()["device_id"] == "dev-1"
        assert (await http.post("/session/renew", json={})).status_code == 400
        refused = await http.post("/session/renew", json={"refresh_token": "talaria-refresh-unknown"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "session_unknown")
        rotated = await http.post("/keys/rotate", headers=relay.operator())
        assert set(rotated.json()) == {"ok", "kid", "gone"}
        assert (await http.post("/keys/rotate", headers=headers)).status_code == 401
    await relay.connect(session_token=phone.token)


# tickets


async def ticket_of(relay: RunningRelay, token: str, **headers: str) -> str:
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as http:
        answer = await http.post("/session/ticket", headers={"Authorization": f"Bearer {token}", **headers})
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"ticket", "expires_at"}
    return str(answer.json()["ticket"])


async def test_a_ticket_opens_one_socket_and_gives_no_token(relay: RunningRelay) -> None:
    phone = await relay.connect(device_id="dev-1")
    ticket = await ticket_of(relay, phone.token)
    _, answer = await begin(relay, session_token=ticket)
    assert answer.payload["device_id"] == "dev-1"
    assert not {"session_token", "refresh_token"} & set(answer.payload)
    _, refused = await begin(relay, session_token=ticket)
    assert (refused.type, refused.payload["code"]) == ("auth.fail", "session_unknown")


async def test_a_ticket_belongs_to_the_page_that_asked(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ticket = await ticket_of(relay, phone.token, Origin=relay.url)
    elsewhere = await relay.open()
    answer = await elsewhere.ask("system", "auth", credentials(session_token=ticket))
    assert answer.payload["code"] == "ticket_elsewhere"
    ticket = await ticket_of(relay, phone.token, Origin=relay.url)
    page = await relay.open(additional_headers={"Origin": relay.url})
    assert (await page.ask("system", "auth", credentials(session_token=ticket))).type == "auth.ok"


async def test_a_ticket_is_no_bearer(relay: RunningRelay) -> None:
    ticket = await ticket_of(relay, (await relay.connect()).token)
    async with httpx.AsyncClient(base_url=relay.url, trust_env=False) as http:
        assert (await http.get("/session", headers={"Authorization": f"Bearer {ticket}"})).status_code == 401


# older clients


async def test_a_refused_message_ends_in_the_chat_for_older_clients(relay: RunningRelay) -> None:
    older = await relay.connect("/", supports=OLDER)
    for payload in ({"message": ""}, {}, {"message": "x" * 70_000}):
        answer = await older.ask("chat", "chat.send", payload)
        assert (answer.channel, answer.type) == ("chat", "chat.error")
        assert set(answer.payload) == {"message", "code"}
    assert (await older.ask("chat", "chat.send", {"message": " "})).payload["message"] == "message: it is empty"
    assert (await older.ask("chat", "chat.bogus", {})).type == "error"  # that ends nothing
    (link,) = relay.relay.hub.of_device(older.auth["device_id"])
    link.regrant({})
    answer = await older.ask("chat", "chat.send", {"message": "hi"})
    assert (answer.type, answer.payload["code"]) == ("chat.error", "grant_missing")


async def test_the_owner_is_told_of_a_hundred_wrong_codes(relay: RunningRelay) -> None:
    phone = await relay.connect()
    for n in range(100):
        with pytest.raises(PairingCodeRejected):
            await relay.relay.pairing.redeem(Auth(pairing_code="WRONG000"), Address(f"203.0.113.{n}"))
    told = await phone.until("message")
    assert "wrong pairing codes" in told.payload["text"]


async def test_one_household_has_as_many_strangers_as_one_address(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, TRUSTED_PROXIES="127.0.0.1/32")
    async with running(settings, limits=Limits(unauthenticated_per_address=2)) as relay:
        first, *_ = [
            await relay.open(additional_headers={"X-Forwarded-For": f"2001:db8:0:1::{n}"}) for n in range(1, 4)
        ]
        assert (await first.closed())[0] == 4408
