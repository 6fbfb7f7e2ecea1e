from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import RateLimited
from app.sessions.address import Address
from app.sessions.errors import SessionExpired, SessionRevoked, TicketElsewhere, TokenRejected
from tests.sessions.rooms import Rooms, open_rooms

THEM = Address("203.0.113.7")
PAGE = "https://home.example.net"


async def test_it_opens_once(rooms: Rooms) -> None:
    principal, _ = await rooms.issue()
    ticket, expires_at = await rooms.tickets.issue(principal, PAGE)
    assert expires_at == rooms.clock.now() + 30
    assert await rooms.tickets.take(ticket, PAGE, THEM) == principal
    with pytest.raises(TokenRejected):
        await rooms.tickets.take(ticket, PAGE, THEM)


@pytest.mark.parametrize(("bound", "used"), [(PAGE, None), (PAGE, "https://other.example"), (None, PAGE)])
async def test_it_opens_for_the_page_that_asked_and_is_gone_otherwise(
    rooms: Rooms, bound: str | None, used: str | None
) -> None:
    principal, _ = await rooms.issue()
    ticket, _ = await rooms.tickets.issue(principal, bound)
    with pytest.raises(TicketElsewhere):
        await rooms.tickets.take(ticket, used, THEM)
    with pytest.raises(TokenRejected):
        await rooms.tickets.take(ticket, bound, THEM)


@pytest.mark.parametrize("seconds", [30, 3600, -1, -86400])
async def test_it_lasts_half_a_minute_whatever_the_clock_does(rooms: Rooms, seconds: float) -> None:
    principal, _ = await rooms.issue()
    ticket, _ = await rooms.tickets.issue(principal, None)
    rooms.clock.advance(seconds)
    with pytest.raises(SessionExpired):
        await rooms.tickets.take(ticket, None, THEM)
    assert await rooms.count("attempts") == 0


async def test_it_ends_with_its_session(rooms: Rooms) -> None:
    principal, _ = await rooms.issue()
    ticket, _ = await rooms.tickets.issue(principal, None)
    await rooms.sessions.revoke(principal.prefix, actor="operator")
    with pytest.raises(SessionRevoked):
        await rooms.tickets.take(ticket, None, THEM)


async def test_one_session_has_a_few_and_they_are_forgotten(rooms: Rooms) -> None:
    principal, _ = await rooms.issue()
    for _ in range(8):
        await rooms.tickets.issue(principal, None)
    with pytest.raises(RateLimited):
        await rooms.tickets.issue(principal, None)
    rooms.clock.advance(30)
    await rooms.tickets.issue(principal, None)
    assert await rooms.count("tickets") == 1
    rooms.clock.advance(-3600)
    await rooms.tickets.issue(principal, None)
    assert await rooms.count("tickets") == 1


async def test_it_survives_a_restart_and_is_stored_as_a_hash(tmp_path: Path) -> None:
    async with open_rooms(tmp_path) as rooms:
        principal, _ = await rooms.issue()
        ticket, _ = await rooms.tickets.issue(principal, None)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("talaria.db*"))
    assert ticket.encode() not in stored
    async with open_rooms(tmp_path, rooms.clock) as rooms:
        assert (await rooms.tickets.take(ticket, None, THEM)).session_id == principal.session_id
