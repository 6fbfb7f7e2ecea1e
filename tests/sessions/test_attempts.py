from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.errors import RateLimited
from app.pairing.errors import PairingCodeRejected
from app.sessions.address import Address
from app.sessions.errors import SessionExpired, SessionRevoked, TokenRejected
from app.sessions.guessing.attempts import Attempts
from app.wire.payloads import Auth
from tests.sessions.rooms import Rooms, open_rooms

THEM = Address("203.0.113.7")
OTHER = Address("203.0.113.8")
PROXY = Address("172.17.0.1", may_be_many=True)


async def guess_code(rooms: Rooms, address: Address = THEM, times: int = 1, code: str = "WRONG000") -> None:
    for _ in range(times):
        with pytest.raises(PairingCodeRejected):
            await rooms.pairing.redeem(Auth(pairing_code=code), address)


async def guess_token(rooms: Rooms, address: Address = THEM, times: int = 1) -> None:
    for n in range(times):
        with pytest.raises(TokenRejected):
            await rooms.sessions.verify_from(f"guess.{n}.x", address)


async def test_ten_wrong_codes_in_a_minute_block_an_address_for_two(rooms: Rooms) -> None:
    await guess_code(rooms, times=9)
    assert await rooms.attempts.blocked("code", THEM) is None
    await guess_code(rooms)
    assert await rooms.attempts.blocked("code", THEM) == 120
    with pytest.raises(RateLimited) as caught:
        await rooms.pairing.redeem(Auth(pairing_code="WRONG000"), THEM)
    assert caught.value.retry_after == 120
    with pytest.raises(RateLimited):
        await rooms.attempts.admit_upgrade(THEM)
    await rooms.attempts.admit_upgrade(OTHER)
    rooms.clock.advance(119.5)
    assert await rooms.attempts.blocked("code", THEM) == 1
    rooms.clock.advance(0.5)
    assert await rooms.attempts.blocked("code", THEM) is None
    await guess_code(rooms, times=9)  # and counting begins anew


async def test_five_wrong_tokens_in_a_minute_block_an_address_for_five(rooms: Rooms) -> None:
    await guess_token(rooms, times=5)
    assert await rooms.attempts.blocked("token", THEM) == 300
    with pytest.raises(RateLimited) as caught:
        await rooms.sessions.verify_from("x", THEM)
    assert caught.value.retry_after == 300
    with pytest.raises(RateLimited):
        await rooms.attempts.admit_upgrade(THEM)
    with pytest.raises(RateLimited):  # a block is a block: no codes from there either
        await rooms.pairing.redeem(Auth(pairing_code="WRONG000"), THEM)
    rooms.clock.advance(300)
    await rooms.attempts.admit_upgrade(THEM)


async def test_slower_guesses_are_not_blocked_and_old_ones_are_forgotten(rooms: Rooms) -> None:
    for _ in range(30):
        await guess_code(rooms)
        rooms.clock.advance(7)
    assert await rooms.attempts.blocked("code", THEM) is None
    assert await rooms.count("attempts WHERE kind = 'code'") < 10


async def test_a_clock_that_is_set_back_does_not_make_a_block_longer(rooms: Rooms) -> None:
    """A home server starts with whatever its clock says."""
    await guess_code(rooms, times=10)
    await guess_token(rooms, times=5)
    await guess_token(rooms, OTHER, times=4)
    rooms.clock.advance(-365 * 86400)
    await rooms.attempts.admit_upgrade(THEM)
    await guess_code(rooms)
    await guess_token(rooms, OTHER, times=4)
    await rooms.attempts.admit_token(OTHER)


async def test_memory_of_guessers_is_bounded(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.sessions.guessing.attempts._REMEMBERED", 3)
    for n in range(8):
        await guess_token(rooms, Address(f"203.0.113.{n}"))
        await guess_token(rooms, Address(f"203.0.112.{n}"), times=5)
        rooms.clock.advance(200)
    assert len(rooms.attempts._counted) <= 3
    assert len(rooms.attempts._blocks) <= 3
    assert await rooms.attempts.blocked("token", Address("203.0.112.7")) == 100


async def test_a_block_outlives_the_process(tmp_path: Path) -> None:
    async with open_rooms(tmp_path) as rooms:
        await guess_code(rooms, times=10)
        await guess_token(rooms, OTHER, times=4)
    async with open_rooms(tmp_path, rooms.clock) as rooms:
        assert await rooms.attempts.blocked("code", THEM) == 120
        await guess_token(rooms, OTHER)
        assert await rooms.attempts.blocked("token", OTHER) == 300


async def test_codes_and_tokens_are_counted_apart(rooms: Rooms) -> None:
    await guess_code(rooms, times=9)
    await guess_token(rooms, times=4)
    await rooms.attempts.admit_upgrade(THEM)


async def test_a_credential_of_ours_that_has_ended_is_no_guess(rooms: Rooms) -> None:
    short, expired = await rooms.issue("a", ttl=1)
    gone, revoked = await rooms.issue("b")
    await rooms.sessions.revoke(gone.prefix, actor="operator")
    rooms.clock.advance(1)
    for _ in range(10):
        with pytest.raises(SessionExpired):
            await rooms.sessions.verify_from(expired, THEM)
        with pytest.raises(SessionRevoked):
            await rooms.sessions.verify_from(revoked, THEM)
    assert await rooms.attempts.blocked("token", THEM) is None
    assert await rooms.count("attempts") == 0
    assert short.device_id == "a"


async def test_a_burst_of_guesses_gains_nothing(rooms: Rooms) -> None:
    tries = [rooms.pairing.redeem(Auth(pairing_code=f"WRONG{n:03}"), THEM) for n in range(50)]
    outcomes = [type(outcome) for outcome in await asyncio.gather(*tries, return_exceptions=True)]
    assert outcomes.count(PairingCodeRejected) == 10
    assert outcomes.count(RateLimited) == 40


async def test_minting_or_registering_lifts_the_code_blocks_of_all_but_no_token_block(rooms: Rooms) -> None:
    for register in (False, True):

        async def pair(register: bool = register) -> None:
            await (rooms.pairing.register("ABC123") if register else rooms.pairing.mint())

        await guess_code(rooms, THEM, times=10)
        await guess_code(rooms, PROXY, times=10)
        await guess_code(rooms, OTHER, times=9)
        await pair()
        await rooms.attempts.admit_upgrade(THEM)
        await guess_code(rooms, THEM)
        await guess_code(rooms, PROXY)
        await guess_code(rooms, OTHER)
        await pair()
    await guess_token(rooms, times=5)
    await rooms.pairing.mint()
    with pytest.raises(RateLimited):
        await rooms.attempts.admit_upgrade(THEM)


async def test_one_who_may_be_many_loses_codes_only(rooms: Rooms) -> None:
    principal, token = await rooms.issue()
    await guess_code(rooms, PROXY, times=10)
    await guess_token(rooms, PROXY, times=10)  # refused as wrong, not as too many
    with pytest.raises(RateLimited):
        await rooms.pairing.redeem(Auth(pairing_code="WRONG000"), PROXY)
    await rooms.attempts.admit_upgrade(PROXY)
    assert await rooms.sessions.verify_from(token, PROXY) == principal
    # a token block of theirs does not stop a phone behind the same proxy from pairing
    rooms.clock.advance(120)
    await guess_code(rooms, PROXY)


async def test_a_household_of_ipv6_addresses_is_one(rooms: Rooms) -> None:
    for n in range(10):
        await guess_code(rooms, Address(f"2001:db8:1:2::{n:x}"))
    with pytest.raises(RateLimited):
        await rooms.attempts.admit_upgrade(Address("2001:db8:1:2:ffff::1"))
    await rooms.attempts.admit_upgrade(Address("2001:db8:1:3::1"))


async def test_success_forgets_failures_but_not_where_others_share_the_address(rooms: Rooms) -> None:
    _, token = await rooms.issue()
    for address, failures_after in ((THEM, 0), (PROXY, 4)):
        await guess_token(rooms, address, times=4)
        await rooms.sessions.verify_from(token, address)
        assert await rooms.count("attempts") == failures_after


async def test_pairing_forgets_wrong_codes(rooms: Rooms) -> None:
    for address, blocked_after in ((THEM, False), (PROXY, True)):
        offer = await rooms.pairing.mint()
        await guess_code(rooms, address, times=9)
        await rooms.pairing.redeem(Auth(pairing_code=offer.code), address)
        await guess_code(rooms, address)
        assert (await rooms.attempts.blocked("code", address) is not None) == blocked_after


async def test_a_good_token_writes_nothing_when_there_is_nothing_to_forget(rooms: Rooms) -> None:
    _, token = await rooms.issue()
    await rooms.sessions.verify_from(token, THEM)
    writes = []
    write = rooms.db.write
    rooms.db.write = lambda work: writes.append(work) or write(work)  # type: ignore[method-assign,func-returns-value]
    for _ in range(5):
        await rooms.sessions.verify_from(token, THEM)
    assert writes == []
    rooms.db.write = write  # type: ignore[method-assign]


async def test_while_blocked_nothing_more_is_counted(rooms: Rooms) -> None:
    await guess_token(rooms, PROXY, times=20)
    assert await rooms.count("attempts") == 0  # the five that made the block went with it
    assert await rooms.count("blocks") == 1


async def test_blocks_that_are_over_are_deleted(rooms: Rooms) -> None:
    await guess_code(rooms, THEM, times=10)
    rooms.clock.advance(121)
    await guess_code(rooms, OTHER, times=10)
    assert await rooms.count("blocks") == 1


async def test_a_block_set_while_the_copy_is_loaded_is_not_lost(rooms: Rooms) -> None:
    fresh = Attempts(rooms.db, rooms.clock)
    for _ in range(4):
        await fresh.failed("token", THEM)
    first, _ = await asyncio.gather(
        fresh.blocked("token", THEM), rooms.db.write(lambda tx: fresh.count(tx, "token", THEM))
    )
    assert first in (None, 300)
    assert await fresh.blocked("token", THEM) == 300
