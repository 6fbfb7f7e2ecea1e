from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from websockets.exceptions import InvalidStatus

from app.clock import ManualClock
from app.demo.stand_in import serve_stand_in
from app.gateway.limits import Limits
from tests.gateway.held import held_writer
from tests.phone import OURS, credentials
from tests.relay import RunningRelay, running, settings_for

KEY = "stand-in-key-0123456789"


async def test_a_code_pairs_a_device_and_its_token_comes_back_as_it_is(relay: RunningRelay) -> None:
    first = await relay.connect(device_id="my-phone", device_name="My phone")
    assert first.auth["device_id"] == "my-phone"
    assert first.auth["protocol"] == 1
    assert first.auth["limits"] == {"frame_bytes": 4 * 1024 * 1024, "kept_bytes": 256 * 1024}
    assert set(first.auth["grants"]) == {"chat", "terminal", "bridge", "notifications"}
    again = await relay.connect(session_token=first.token)
    assert again.token == first.token
    assert (again.auth["device_id"], again.auth["relay_id"]) == ("my-phone", first.auth["relay_id"])


async def test_what_is_known_of_hermes_is_told(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as hermes:
        async with running(settings_for(tmp_path, HERMES_API_URL=hermes.url, HERMES_API_KEY=KEY)) as relay:
            await relay.relay.hermes.probe()
            known = (await relay.connect()).auth
        async with running(settings_for(tmp_path)) as relay:
            unknown = (await relay.connect()).auth
    assert known["profiles"] == [{"name": "default", "is_default": True}]
    assert (known["upstream"]["api"]["state"], unknown["upstream"]["api"]["state"]) == ("up", "off")
    assert unknown["profiles"] == []


async def test_older_clients_connect_at_the_root(relay: RunningRelay) -> None:
    await (await relay.connect("/")).ping()


async def test_a_bearer_on_the_upgrade_is_a_credential_too(relay: RunningRelay) -> None:
    token = (await relay.connect()).token
    phone = await relay.open(additional_headers={"Authorization": f"Bearer {token}"})
    answer = await phone.ask("system", "auth", credentials())
    assert answer.payload["session_token"] == token


@pytest.mark.parametrize(
    ("credential", "code"),
    [
        ({"pairing_code": "WRONGONE"}, "pairing_code_rejected"),
        ({"session_token": "nonsense"}, "session_unknown"),
        ({}, "credential_missing"),
    ],
)
async def test_a_bad_credential_is_told_so_and_closed(relay: RunningRelay, credential: dict, code: str) -> None:
    phone = await relay.open()
    answer = await phone.ask("system", "auth", credential)
    assert (answer.type, answer.payload["code"]) == ("auth.fail", code)
    assert answer.payload["reason"]
    assert await phone.closed() == (4401, code)


async def test_a_long_name_is_cut_and_null_is_absent(relay: RunningRelay) -> None:
    code = (await relay.relay.pairing.mint()).code
    phone = await relay.open()
    said = {"pairing_code": code, "device_name": " " + "n" * 119 + " more", "device_model": None, "supports": None}
    answer = await phone.ask("system", "auth", said)
    assert answer.type == "auth.ok"
    (session,) = await relay.relay.sessions.list()
    assert session.device_name == "n" * 119


async def test_an_empty_credential_is_none(relay: RunningRelay) -> None:
    phone = await relay.connect(device_id="dev-1")
    for blank in ({"pairing_code": ""}, {"refresh_token": ""}):
        again = await relay.connect(**{"session_token": phone.token} | blank)
        assert again.auth["device_id"] == "dev-1"
    nothing = await relay.open()
    answer = await nothing.ask("system", "auth", {"pairing_code": "", "session_token": "", "refresh_token": ""})
    assert answer.payload["code"] == "credential_missing"


async def test_a_malformed_auth_breaks_the_protocol(relay: RunningRelay) -> None:
    phone = await relay.open()
    answer = await phone.ask("system", "auth", {"pairing_code": 123456})
    assert (answer.type, answer.payload["code"]) == ("error", "payload_invalid")
    assert (await phone.closed())[0] == 1008


async def test_the_first_frame_must_be_auth(relay: RunningRelay) -> None:
    phone = await relay.open()
    answer = await phone.ask("system", "ping")
    assert answer.payload["code"] == "frame_out_of_turn"
    assert (await phone.closed())[0] == 1008


async def test_before_auth_a_big_message_ends_the_socket(relay: RunningRelay) -> None:
    phone = await relay.open()
    await phone.raw("x" * (64 * 1024 + 1))
    assert (await phone.closed())[0] == 1009


async def test_frames_sent_right_behind_auth_wait_for_it(relay: RunningRelay) -> None:
    token = (await relay.connect()).token
    phone = await relay.open()
    await phone.raw(
        json.dumps({"channel": "system", "type": "auth", "id": "a", "payload": credentials(session_token=token)})
    )
    for i in range(20):
        await phone.send("system", "ping", id=f"p{i}")
    assert (await phone.next()).type == "auth.ok"
    assert [(await phone.until("pong")).id for _ in range(20)] == [f"p{i}" for i in range(20)]


async def test_a_phone_that_leaves_while_its_credential_is_checked_leaves_nothing_behind(relay: RunningRelay) -> None:
    """Eight such links would lock a device out for good: each counts as one of its open sockets."""
    code = (await relay.relay.pairing.mint()).code
    phone = await relay.open()
    async with held_writer(relay) as release:
        await phone.send("system", "auth", credentials(pairing_code=code))
        await (await phone.socket.ping())
        (link,) = relay.relay.gateway._strangers.values()
        worker, gone = link._worker, asyncio.Event()
        assert worker is not None
        link.when_closed(lambda clean: gone.set())
        await phone.hang_up()
        await gone.wait()
        release()
        await asyncio.wait([worker])
    assert len(relay.relay.hub) == 0


async def test_revoked_and_expired_sessions_lose_their_sockets(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock, limits=Limits(recheck_seconds=0.05)) as relay:
        revoked, expired = await relay.connect(), await relay.connect()
        await relay.relay.sessions.revoke(session(revoked.token)[:8], actor="operator")
        assert await revoked.closed() == (4401, "revoked")
        await expired.ping()
        clock.advance(31 * 86400)
        assert await expired.closed() == (4401, "session_expired")
        again = await relay.open()
        answer = await again.ask("system", "auth", credentials(session_token=expired.token))
        assert (answer.type, answer.payload["code"]) == ("auth.fail", "session_expired")


class Heard(logging.Handler):
    """Sets its event when something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


async def test_sessions_end_also_after_a_recheck_that_failed(tmp_path: Path) -> None:
    clock, heard = ManualClock(), Heard()
    log = logging.getLogger("talaria.gateway")
    async with running(settings_for(tmp_path), clock=clock, limits=Limits(recheck_seconds=0.05)) as relay:
        phone = await relay.connect()
        grants = await relay.relay.db.read(lambda tx: tx.one(text("SELECT grants FROM sessions")))
        assert grants is not None
        put = text("UPDATE sessions SET grants = :grants")
        log.addHandler(heard)
        try:
            await relay.relay.db.write(lambda tx: tx.execute(put, {"grants": "spoilt"}).close())
            async with asyncio.timeout(5):
                await heard.event.wait()
        finally:
            log.removeHandler(heard)
        await relay.relay.db.write(lambda tx: tx.execute(put, {"grants": grants[0]}).close())
        clock.advance(31 * 86400)
        assert await phone.closed() == (4401, "session_expired")


async def test_a_grant_that_ends_closes_its_channel_and_nothing_else(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        offer = await relay.relay.pairing.mint(grants={"chat": 60})
        phone = await relay.connect(pairing_code=offer.code)
        answer = await phone.ask("chat", "chat.watch", {})
        assert answer.payload.get("code") != "grant_missing"
        clock.advance(61)
        answer = await phone.ask("chat", "chat.watch", {})
        assert answer.payload["code"] == "grant_missing"
        await phone.ping()


async def test_a_reduced_grant_takes_effect_on_the_open_link(relay: RunningRelay) -> None:
    from app.sessions.changes import Change

    phone = await relay.connect()
    await relay.relay.sessions.alter(session(phone.token)[:8], Change(grants={"chat": 0}))
    answer = await phone.ask("chat", "chat.watch", {})
    assert answer.payload["code"] == "grant_missing"


async def test_pairing_again_replaces_the_session_and_keeps_the_mailbox(relay: RunningRelay) -> None:
    old = await relay.connect(device_id="d1")
    new = await relay.connect(device_id="d1")
    assert await old.closed() == (4401, "replaced")
    assert new.auth["epoch"] == old.auth["epoch"]
    for absent in ("unknown", "none", "null"):
        assert (await relay.connect(device_id=absent)).auth["device_id"] != absent


async def test_a_newer_socket_of_an_instance_supersedes_and_other_instances_stay(relay: RunningRelay) -> None:
    first = await relay.connect(instance="tab-1")
    other = await relay.connect(session_token=first.token, instance="tab-2")
    newer = await relay.connect(session_token=first.token, instance="tab-1")
    assert await first.closed() == (4409, "superseded")
    await other.ping()
    await newer.ping()


async def test_clients_without_an_instance_share_a_device_up_to_a_bound(relay: RunningRelay) -> None:
    first = await relay.connect()
    others = [await relay.connect(session_token=first.token) for _ in range(7)]
    ninth = await relay.open()
    answer = await ninth.ask("system", "auth", credentials(session_token=first.token))
    assert (answer.type, answer.payload["code"]) == ("error", "too_many_sockets")
    assert (await ninth.closed())[0] == 4429
    for phone in (first, *others):
        await phone.ping()


async def test_sockets_that_do_not_answer_their_end_do_not_cost_a_device_its_new_code(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(plain_per_device=2)) as relay:
        first = await relay.connect(device_id="dev-1")
        for phone in (first, await relay.connect(session_token=first.token)):
            phone.socket.transport.pause_reading()  # it has left the network, and the relay cannot know
        again = await relay.connect(device_id="dev-1")
        await again.ping()


async def test_a_socket_that_says_nothing_is_closed_in_time(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(auth_seconds=0.1)) as relay:
        silent = await relay.open()
        assert (await silent.closed())[0] == 4408


async def test_sockets_without_auth_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(unauthenticated=3)) as relay:
        phones = [await relay.open() for _ in range(4)]
        assert (await phones[0].closed())[0] == 4408
        for phone in phones[1:]:
            answer = await phone.ask("system", "auth", {"session_token": "x", "supports": OURS})
            assert answer.type == "auth.fail"


async def test_one_address_may_hold_only_a_few_of_them(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, TRUSTED_PROXIES="127.0.0.1")
    async with running(settings) as relay:
        near: dict[str, Any] = {"additional_headers": {"X-Forwarded-For": "203.0.113.9"}}
        far = await relay.open(additional_headers={"X-Forwarded-For": "203.0.113.10"})
        phones = [await relay.open(**near) for _ in range(9)]
        assert (await phones[0].closed())[0] == 4408
        for phone in (far, phones[1], phones[8]):
            assert (await phone.ask("system", "auth", {"session_token": "x"})).type == "auth.fail"


async def test_guessing_blocks_the_address_before_the_upgrade(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TRUSTED_PROXIES="127.0.0.1")) as relay:
        guesser: dict[str, Any] = {"additional_headers": {"X-Forwarded-For": "203.0.113.9"}}
        for _ in range(5):
            phone = await relay.open(**guesser)
            assert (await phone.ask("system", "auth", {"session_token": "guess"})).type == "auth.fail"
        with pytest.raises(InvalidStatus) as refused:
            await relay.open(**guesser)
        assert refused.value.response.status_code == 429
        assert 0 < int(refused.value.response.headers["Retry-After"]) <= 300
        await relay.connect()


async def test_behind_a_proxy_that_says_nothing_codes_are_refused_and_tokens_pass(relay: RunningRelay) -> None:
    """The peer is loopback and sent no forwarding header: it may stand for everyone."""
    token = (await relay.connect()).token
    for _ in range(10):
        phone = await relay.open()
        assert (await phone.ask("system", "auth", {"pairing_code": "WRONGONE"})).type == "auth.fail"
    blocked = await relay.open()
    answer = await blocked.ask("system", "auth", {"pairing_code": "WRONGONE"})
    assert (answer.type, answer.payload["code"]) == ("error", "rate_limited")
    assert (await blocked.closed())[0] == 4429
    await (await relay.connect(session_token=token)).ping()
    await (await relay.connect()).ping()  # minting lifts the block


async def test_a_foreign_page_cannot_open_a_socket(relay: RunningRelay) -> None:
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
        with pytest.raises(InvalidStatus) as refused:
            await relay.open(origin=origin)
        assert refused.value.response.status_code == 403
    await relay.open(origin=relay.url)


def session(token: str) -> str:
    """The session row that a token names."""
    import base64

    body = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["sid"])
