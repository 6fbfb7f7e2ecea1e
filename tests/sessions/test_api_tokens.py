"""The token that a pairing QR carries for the Hermes API."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import RateLimited
from app.pairing.offers import Terms
from app.sessions import opaque, store
from app.sessions.address import Address
from app.sessions.changes import Change
from app.sessions.errors import ApiTokenMisplaced, SessionExpired, SessionRevoked, SessionUnknown, TokenRejected
from app.sessions.service import Principal
from app.wire.payloads import Auth
from tests.sessions.rooms import Rooms

THEM = Address("203.0.113.7")


async def issue(rooms: Rooms, token: str, *, ttl: int | None = 600, **options: Any) -> tuple[Principal, str]:
    now = rooms.clock.now()

    def work(tx: Any) -> tuple[Principal, str]:
        store.put_device(tx, "phone", name="phone", about={}, now=now)
        return rooms.sessions.issue(tx, "phone", None, ttl, now, api_hash=opaque.digest(token), **options)

    return await rooms.db.write(work)


async def test_it_stands_for_its_session_and_may_chat_only(rooms: Rooms) -> None:
    token = opaque.new(opaque.API)
    principal, session_token = await issue(rooms, token)
    for _ in range(2):  # the second from the cache
        found = await rooms.sessions.verify_for_api(token, THEM)
        assert (found.session_id, found.device_id) == (principal.session_id, "phone")
        assert found.grants == {"chat": principal.grants["chat"]}
    assert await rooms.sessions.verify_for_api(session_token, THEM) == principal


async def test_it_ends_with_its_session(rooms: Rooms) -> None:
    token = opaque.new(opaque.API)
    principal, _ = await issue(rooms, token)
    await rooms.sessions.by_api_token(token)
    await rooms.sessions.reduce(principal.prefix, Change(grants={"chat": 60}), by=principal)
    rooms.clock.advance(1)
    assert (await rooms.sessions.by_api_token(token)).grants == {"chat": rooms.clock.now() + 59}
    rooms.clock.advance(600)
    with pytest.raises(SessionExpired):
        await rooms.sessions.by_api_token(token)
    rooms.clock.advance(-300)
    await rooms.sessions.revoke(principal.prefix, actor="operator")
    with pytest.raises(SessionRevoked):
        await rooms.sessions.by_api_token(token)


async def test_another_pairing_of_the_device_ends_it(rooms: Rooms) -> None:
    old, new = opaque.new(opaque.API), opaque.new(opaque.API)
    await issue(rooms, old)
    await rooms.sessions.by_api_token(old)
    await issue(rooms, new, replace=True)
    with pytest.raises(SessionRevoked):
        await rooms.sessions.by_api_token(old)
    await rooms.sessions.by_api_token(new)


async def test_elsewhere_it_opens_nothing_and_is_no_guess(rooms: Rooms) -> None:
    token = opaque.new(opaque.API)
    await issue(rooms, token)
    await rooms.sessions.by_api_token(token)  # what is remembered of it must not open anything either
    for _ in range(6):
        with pytest.raises(ApiTokenMisplaced):
            await rooms.sessions.verify_from(token, THEM)
    assert await rooms.count("attempts") == 0


async def test_before_the_code_is_redeemed_it_opens_nothing_and_is_no_guess(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint_for_peer(Terms(), api_token=True)
    assert offer.api_token is not None
    for _ in range(6):
        with pytest.raises(SessionUnknown, match="before its pairing code is redeemed"):
            await rooms.sessions.verify_for_api(offer.api_token, THEM)
    assert await rooms.count("attempts") == 0
    principal, _ = await rooms.pairing.redeem(Auth(pairing_code=offer.code), THEM)
    assert (await rooms.sessions.verify_for_api(offer.api_token, THEM)).session_id == principal.session_id


async def test_unknown_ones_are_guesses(rooms: Rooms) -> None:
    await issue(rooms, opaque.new(opaque.API))
    for _ in range(5):
        with pytest.raises(TokenRejected):
            await rooms.sessions.verify_for_api(opaque.new(opaque.API), THEM)
    with pytest.raises(RateLimited):
        await rooms.sessions.verify_for_api(opaque.new(opaque.API), THEM)


async def test_only_its_hash_is_stored(rooms: Rooms, tmp_path: Any) -> None:
    token = opaque.new(opaque.API)
    await issue(rooms, token)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("talaria.db*"))
    assert token.encode() not in stored
    assert opaque.digest(token).encode() in stored
