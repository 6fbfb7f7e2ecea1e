from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.db import Tx
from app.errors import NotFound
from app.outbox import store as outbox
from app.pairing.errors import PairingCodeInvalid, PairingCodeRejected
from app.pairing.offers import Status, Terms
from app.sessions.address import Address
from app.sessions.errors import GrantUnknown, SessionUnknown
from app.wire.payloads import Auth
from tests.sessions.rooms import MONTH, Rooms, open_rooms

DAY = 86400
THEM = Address("203.0.113.7")


def auth(code: str, **fields: Any) -> Auth:
    return Auth.model_validate({"pairing_code": code} | fields)


async def test_a_code_becomes_a_device_with_a_mailbox_and_a_session(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    said = {
        "device_id": "dev-1", "device_name": "Pixel", "device_model": "Pixel 9", "device_platform": "Android 16",
        "client_surface": "android", "device_form_factor": "phone",
    }  # fmt: skip
    principal, token = await rooms.pairing.redeem(auth(offer.code.lower(), **said), THEM)
    assert await rooms.sessions.verify(token) == principal
    assert principal.device_id == "dev-1"
    assert principal.expires_at == rooms.clock.now() + MONTH
    (session,) = await rooms.sessions.list()
    assert (session.session_id, session.device_name) == (principal.session_id, "Pixel")
    assert session.about == {"model": "Pixel 9", "platform": "Android 16", "surface": "android", "form_factor": "phone"}
    assert await rooms.db.read(lambda tx: outbox.mailbox(tx, "dev-1")) is not None
    minted, paired = await rooms.audit()
    assert minted[:3] == ("operator", "offer.minted", offer.offer_id)
    assert paired[:3] == (f"offer {offer.offer_id}", "device.paired", "dev-1")
    assert paired[3]["session"] == principal.prefix


async def test_what_is_stored_gives_no_code_and_no_token_away(rooms: Rooms, tmp_path: Path) -> None:
    offer = await rooms.pairing.mint()
    open_offer = await rooms.pairing.mint()
    _, token = await rooms.pairing.redeem(auth(offer.code))
    stored = _stored(tmp_path)
    for secret in (offer.code, open_offer.code, token, token.split(".")[2]):
        assert secret.encode() not in stored


def _stored(data_dir: Path) -> bytes:
    return b"".join(path.read_bytes() for path in data_dir.glob("talaria.db*"))


async def test_what_lasts_and_what_opens_is_the_operators_word(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint(grants={"chat": None, "dashboard": 60}, ttl=DAY)
    wishes = {"ttl_seconds": 0, "grants": {"terminal": 0}, "supports": {"delivery": 1}}
    principal, _ = await rooms.pairing.redeem(auth(offer.code, **wishes))
    now = rooms.clock.now()
    assert principal.expires_at == now + DAY
    assert principal.grants == {"chat": now + DAY, "dashboard": now + 60}
    never = await rooms.pairing.mint(ttl=None)
    assert (await rooms.pairing.redeem(auth(never.code)))[0].expires_at is None
    with pytest.raises(GrantUnknown):
        await rooms.pairing.mint(grants={"everything": None})


async def test_twenty_phones_race_for_one_code_and_one_wins(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    tries = [rooms.pairing.redeem(auth(offer.code, device_id=f"phone-{n}")) for n in range(20)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, tuple) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, PairingCodeRejected) for outcome in outcomes) == 19
    assert await rooms.count("devices") == await rooms.count("sessions") == await rooms.count("mailboxes") == 1


async def test_unknown_used_expired_and_nonsense_look_alike(rooms: Rooms) -> None:
    used, expired = await rooms.pairing.mint(), await rooms.pairing.mint()
    await rooms.pairing.redeem(auth(used.code))
    rooms.clock.advance(600)
    refusals: list[tuple[str, str, int, int | None]] = []
    for code in (used.code, expired.code, "UNKNOWN1", "", "x", "ABC12!", "é" * 8, "A" * 64):
        with pytest.raises(PairingCodeRejected) as caught:
            await rooms.pairing.redeem(auth(code), Address(f"203.0.113.{len(refusals)}"))
        refusals.append((caught.value.code, caught.value.message, caught.value.http_status, caught.value.close_code))
    assert set(refusals) == {("pairing_code_rejected", refusals[0][1], 401, 4401)}
    assert await rooms.count("attempts WHERE kind = 'code'") == 8  # and all of them count


async def test_a_code_lasts_ten_minutes(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    assert offer.expires_at == rooms.clock.now() + 600
    rooms.clock.advance(599)
    await rooms.pairing.redeem(auth(offer.code))


async def test_a_code_survives_a_restart(tmp_path: Path) -> None:
    async with open_rooms(tmp_path) as rooms:
        offer = await rooms.pairing.mint("Phone")
    async with open_rooms(tmp_path, rooms.clock) as rooms:
        principal, _ = await rooms.pairing.redeem(auth(offer.code))
        status = await rooms.pairing.status(offer.offer_id)
    assert (status.state, status.device_id, status.device_name) == ("redeemed", principal.device_id, "Phone")


async def test_a_known_device_keeps_its_mailbox_and_loses_its_sessions(rooms: Rooms) -> None:
    first, _ = await rooms.pair("dev-1")
    other, _ = await rooms.pair("dev-2")
    before = await rooms.db.read(lambda tx: outbox.mailbox(tx, "dev-1"))
    second, _ = await rooms.pair("dev-1")
    assert await rooms.db.read(lambda tx: outbox.mailbox(tx, "dev-1")) == before
    assert rooms.ended == [(first.session_id, "replaced")]
    assert {s.session_id for s in await rooms.sessions.list()} == {second.session_id, other.session_id}


@pytest.mark.parametrize("said", [None, "", "unknown", "None", "null"])
async def test_a_device_without_a_name_of_its_own_gets_one(rooms: Rooms, said: str | None) -> None:
    first, _ = await rooms.pair(said)
    second, _ = await rooms.pair(said)
    assert first.device_id != second.device_id
    assert first.device_id.startswith("dev-")
    assert rooms.ended == []


async def test_the_operators_name_wins_then_the_phones_then_the_one_it_had(rooms: Rooms) -> None:
    async def name_after(offer_name: str | None, **said: Any) -> str:
        offer = await rooms.pairing.mint(offer_name)
        await rooms.pairing.redeem(auth(offer.code, device_id="dev-1", **said))
        return (await rooms.sessions.list())[0].device_name

    assert await name_after(None, device_model="Pixel 9") == "Pixel 9"
    assert await name_after("Kitchen", device_name="Pixel") == "Kitchen"
    assert await name_after(None) == "Kitchen"
    assert await name_after(None, device_name="Pixel") == "Pixel"


async def test_a_registered_code_is_an_offer_and_registering_it_again_renews_it(rooms: Rooms) -> None:
    for _ in range(2):
        offer = await rooms.pairing.register("abc123", hint="wss")
        assert offer.code == "ABC123"
    principal, _ = await rooms.pairing.redeem(auth("ABC123"))
    assert principal.transport_hint == "wss"
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(auth("ABC123"))
    await rooms.pairing.register("ABC123")
    await rooms.pairing.redeem(auth("ABC123"))
    for code in ("ABC12", "ABC12!", "A" * 17):
        with pytest.raises(PairingCodeInvalid):
            await rooms.pairing.register(code)


async def test_old_offers_are_forgotten(rooms: Rooms) -> None:
    old = await rooms.pairing.mint()
    rooms.clock.advance(600)
    assert (await rooms.pairing.status(old.offer_id)).state == "expired"
    rooms.clock.advance(DAY)
    await rooms.pairing.mint()
    with pytest.raises(NotFound):
        await rooms.pairing.status(old.offer_id)
    assert await rooms.count("offers") == 1


async def test_waiting_ends_when_the_phone_arrives(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint("Phone")
    assert (await rooms.pairing.status(offer.offer_id)).state == "waiting"
    looked, status = asyncio.Event(), rooms.pairing.status

    async def noticed(offer_id: str) -> Status:
        found = await status(offer_id)
        looked.set()
        return found

    rooms.pairing.status = noticed  # type: ignore[method-assign]
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waits = [group.create_task(rooms.pairing.wait(offer.offer_id, 30)) for _ in range(3)]
        await looked.wait()
        principal, _ = await rooms.pairing.redeem(auth(offer.code))
    assert {(w.result().state, w.result().device_id) for w in waits} == {("redeemed", principal.device_id)}
    assert (await rooms.pairing.wait(offer.offer_id, 30)).state == "redeemed"  # at once
    assert rooms.pairing._watchers._of_offer == {}


async def test_waiting_ends_with_the_relay(rooms: Rooms) -> None:
    """Else a `talaria pair --wait` holds up a restart for the whole grace period."""
    offer = await rooms.pairing.mint()
    async with asyncio.timeout(10):
        waiting = asyncio.ensure_future(rooms.pairing.wait(offer.offer_id, 3600))
        await rooms.pairing.status(offer.offer_id)  # by then the other has begun to wait
        rooms.pairing.let_go()
        assert (await waiting).state == "waiting"


async def test_waiting_ends_without_a_phone_too(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    assert (await rooms.pairing.wait(offer.offer_id, 0.01)).state == "waiting"
    rooms.clock.advance(600)
    assert (await rooms.pairing.wait(offer.offer_id, 30)).state == "expired"
    with pytest.raises(NotFound):
        await rooms.pairing.wait("nosuch", 30)
    assert rooms.pairing._watchers._of_offer == {}


async def test_pairing_searches_by_index_however_many_devices_there_are(rooms: Rooms) -> None:
    """Neither a code nor a device's sessions are found by looking at every row."""
    plans = []
    for statement in (
        "UPDATE offers SET consumed_at = 1 WHERE code_hash = 'x' AND consumed_at IS NULL AND expires_at > 1",
        "SELECT * FROM sessions s WHERE s.device_id = 'x' AND s.revoked_at IS NULL",
        "SELECT * FROM sessions s WHERE s.session_id >= 'a' AND s.session_id < 'b'",
        "SELECT count(*) FROM attempts WHERE kind = 'code' AND address = 'x' AND at > 1",
        "DELETE FROM attempts WHERE at <= 1 OR at > 2",
        "DELETE FROM attempts WHERE at <= 1 AND kind != 'codes'",
        "SELECT kind, until FROM blocks WHERE address = 'x' AND until > 1",
    ):
        explain = text(f"EXPLAIN QUERY PLAN {statement}")
        rows = await rooms.db.read(partial(Tx.all, statement=explain))
        plans += [row[3] for row in rows]
    scans = [plan for plan in plans if plan.startswith("SCAN")]
    assert scans == ["SCAN blocks"]  # a handful of rows at most: over the limit nothing more is counted


async def test_a_hundred_wrong_codes_void_the_open_offers(rooms: Rooms) -> None:
    """From wherever they come: so many are no typing errors."""
    used, opened = await rooms.pairing.mint(), await rooms.pairing.mint()
    paired, _ = await rooms.pairing.redeem(auth(used.code))
    for n in range(100):
        assert rooms.floods == []
        with pytest.raises(PairingCodeRejected):
            await rooms.pairing.redeem(auth("WRONG000"), Address(f"203.0.113.{n}"))
        rooms.clock.advance(5)
    assert len(rooms.floods) == 1
    assert (await rooms.pairing.status(opened.offer_id)).state == "expired"
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(auth(opened.code))
    assert (await rooms.audit())[-1][1:3] == ("offers.voided", "wrong codes")
    assert [s.session_id for s in await rooms.sessions.list()] == [paired.session_id]
    fresh = await rooms.pairing.mint()  # it takes a hundred more to void this one
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(auth("WRONG000"), Address("203.0.113.200"))
    await rooms.pairing.redeem(auth(fresh.code))


async def test_a_hundred_wrong_codes_in_an_hour_are_no_flood(rooms: Rooms) -> None:
    opened = await rooms.pairing.mint()
    for n in range(120):
        with pytest.raises(PairingCodeRejected):
            await rooms.pairing.redeem(auth("WRONG000"), Address(f"203.0.113.{n}"))
        rooms.clock.advance(6.1)
    assert rooms.floods == []
    assert await rooms.count("attempts WHERE kind = 'codes'") < 100
    assert (await rooms.pairing.status(opened.offer_id)).state == "expired"  # by its own end


async def test_an_api_token_opens_nothing_before_its_code_is_redeemed(rooms: Rooms, tmp_path: Path) -> None:
    offer = await rooms.pairing.mint_for_peer(Terms(), api_token=True)
    assert offer.api_token is not None
    with pytest.raises(SessionUnknown):
        await rooms.sessions.by_api_token(offer.api_token)
    principal, _ = await rooms.pairing.redeem(auth(offer.code))
    found = await rooms.sessions.by_api_token(offer.api_token)
    assert (found.session_id, list(found.grants)) == (principal.session_id, ["chat"])
    assert offer.api_token.encode() not in _stored(tmp_path)
    assert (await rooms.pairing.mint_for_peer(Terms(), api_token=False)).api_token is None
