from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from app.db import Tx
from app.errors import NotFound
from app.sessions import store
from app.sessions.changes import Change
from app.sessions.errors import (
    GrantUnknown,
    MoreThanGranted,
    NotYours,
    SessionExpired,
    SessionPrefixAmbiguous,
    SessionRevoked,
    SessionUnknown,
    TokenRejected,
)
from app.sessions.keys import SessionKeys
from app.sessions.service import Principal
from app.sessions.store import Session
from app.sessions.verdicts import CACHED_S
from tests.sessions.rooms import MONTH, Rooms, open_rooms

DAY = 86400


async def test_a_token_says_who_speaks_and_what_they_may(rooms: Rooms) -> None:
    principal, token = await rooms.issue("phone", grants={"chat": None, "terminal": 60})
    assert await rooms.sessions.verify(token) == principal
    now = rooms.clock.now()
    assert principal.device_id == "phone"
    assert principal.expires_at == now + MONTH
    assert principal.grants == {"chat": now + MONTH, "terminal": now + 60}


async def test_it_outlives_the_process(tmp_path: Path) -> None:
    async with open_rooms(tmp_path) as rooms:
        principal, token = await rooms.issue()
    async with open_rooms(tmp_path, rooms.clock) as rooms:
        assert await rooms.sessions.verify(token) == principal


async def test_expiry_comes_from_the_row_also_while_the_verdict_is_cached(rooms: Rooms) -> None:
    principal, token = await rooms.issue(ttl=2)
    assert await rooms.sessions.verify(token) == principal
    rooms.clock.advance(2)
    with pytest.raises(SessionExpired):
        await rooms.sessions.verify(token)
    rooms.clock.advance(CACHED_S)
    with pytest.raises(SessionExpired):
        await rooms.sessions.verify(token)


async def test_without_end_it_never_expires(rooms: Rooms) -> None:
    principal, token = await rooms.issue(ttl=None)
    assert principal.expires_at is None
    rooms.clock.advance(99 * 365 * DAY)
    assert await rooms.sessions.verify(token) == principal


async def test_revoking_tells_at_once_and_drops_the_cached_verdict(rooms: Rooms) -> None:
    principal, token = await rooms.issue()
    await rooms.sessions.verify(token)
    assert await rooms.sessions.revoke(principal.prefix, actor="operator") == principal.session_id
    assert rooms.ended == [(principal.session_id, "revoked")]
    with pytest.raises(SessionRevoked):
        await rooms.sessions.verify(token)
    with pytest.raises(NotFound):
        await rooms.sessions.revoke(principal.prefix, actor="operator")
    assert len(rooms.ended) == 1
    (entry,) = await rooms.audit()
    assert entry == ("operator", "session.revoked", principal.prefix, {"device_id": "phone"})


async def test_a_verdict_read_before_a_revocation_is_not_cached_after_it(rooms: Rooms) -> None:
    principal, token = await rooms.issue()
    read = rooms.db.read

    async def slow_read(work):  # type: ignore[no-untyped-def]
        found = await read(work)
        if isinstance(found, Session):
            await rooms.sessions.revoke(principal.prefix, actor="operator")
        return found

    rooms.db.read = slow_read  # type: ignore[method-assign]
    assert await rooms.sessions.verify(token) == principal  # it was valid when it was asked
    rooms.db.read = read  # type: ignore[method-assign]
    with pytest.raises(SessionRevoked):
        await rooms.sessions.verify(token)


async def test_a_signed_token_whose_row_is_gone_is_unknown_but_no_guess(rooms: Rooms) -> None:
    _, token = await rooms.issue()
    await rooms.db.write(lambda tx: tx.execute(text("DELETE FROM devices")))
    with pytest.raises(SessionUnknown) as caught:
        await rooms.sessions.verify(token)
    assert not isinstance(caught.value, TokenRejected)
    assert caught.value.close_code == 4401


async def test_a_token_of_another_relay_is_rejected_though_the_session_exists(rooms: Rooms, tmp_path: Path) -> None:
    principal, _ = await rooms.issue()
    from app.sessions import tokens

    other = SessionKeys.load(tmp_path / "other")
    forged = tokens.sign(
        other.signing, session_id=principal.session_id, device_id=principal.device_id, now=rooms.clock.now()
    )
    with pytest.raises(TokenRejected):
        await rooms.sessions.verify(forged)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "\udcff", "ü", "a" * 10_000])
async def test_nonsense_is_rejected(rooms: Rooms, token: str) -> None:
    with pytest.raises(TokenRejected):
        await rooms.sessions.verify(token)


async def test_a_recheck_says_what_each_session_may_now(rooms: Rooms) -> None:
    live, _ = await rooms.issue("a")
    revoked, _ = await rooms.issue("b")
    short, _ = await rooms.issue("c", ttl=5)
    await rooms.sessions.revoke(revoked.session_id, actor="operator")
    rooms.clock.advance(5)
    found = await rooms.sessions.recheck([live.session_id, revoked.session_id, short.session_id, "0" * 32])
    assert found[live.session_id] == live
    assert isinstance(found[revoked.session_id], SessionRevoked)
    assert isinstance(found[short.session_id], SessionExpired)
    assert isinstance(found["0" * 32], SessionUnknown)
    assert await rooms.sessions.recheck([]) == {}


async def test_replacing_ends_only_that_devices_sessions(rooms: Rooms) -> None:
    old, token = await rooms.issue("phone")
    other, _ = await rooms.issue("tablet")

    def again(tx: Tx) -> tuple[Principal, str]:
        return rooms.sessions.issue(tx, "phone", None, MONTH, rooms.clock.now(), replace=True)

    new, _ = await rooms.db.write(again)
    assert rooms.ended == [(old.session_id, "replaced")]
    assert {s.session_id for s in await rooms.sessions.list()} == {new.session_id, other.session_id}
    with pytest.raises(SessionRevoked):
        await rooms.sessions.verify(token)


async def test_listed_are_live_sessions_most_recently_seen_first(rooms: Rooms) -> None:
    first, token = await rooms.issue("first")
    rooms.clock.advance(10)
    second, _ = await rooms.issue("second")
    await rooms.issue("short", ttl=1)
    rooms.clock.advance(100)
    assert [s.session_id for s in await rooms.sessions.list()] == [second.session_id, first.session_id]
    await rooms.sessions.verify(token)  # is seen
    assert [s.session_id for s in await rooms.sessions.list()] == [first.session_id, second.session_id]
    devices = await rooms.sessions.devices()
    assert [(device.name, len(sessions)) for device, sessions in devices] == [("first", 1), ("second", 1), ("short", 0)]


async def test_a_prefix_must_name_one_session(rooms: Rooms) -> None:
    def two_alike(tx: Tx) -> None:
        store.put_device(tx, "d", name="d", about={}, now=1)
        for session_id in ("ab" + "0" * 30, "ab" + "1" * 30):
            store.add_session(tx, session_id, "d", grants={}, expires_at=None, hint=None, now=1)

    await rooms.db.write(two_alike)
    with pytest.raises(SessionPrefixAmbiguous):
        await rooms.sessions.revoke("ab", actor="operator")
    for prefix in ("", "ac", "%", "ab_", "AB0", "g", "ab" + "0" * 31, "' OR 1=1 --"):
        with pytest.raises(NotFound):
            await rooms.sessions.revoke(prefix, actor="operator")
    assert await rooms.sessions.revoke("ab0", actor="operator") == "ab" + "0" * 30


async def test_a_prefix_means_a_live_session_before_those_that_are_over(rooms: Rooms) -> None:
    def alike(tx: Tx) -> None:
        store.put_device(tx, "d", name="d", about={}, now=1)
        for digit, end in (("0", 1.0), ("1", 1.0), ("2", None)):
            store.add_session(tx, "ab" + digit * 30, "d", grants={}, expires_at=end, hint=None, now=1)

    await rooms.db.write(alike)
    assert await rooms.sessions.revoke("ab", actor="operator") == "ab" + "2" * 30
    with pytest.raises(SessionPrefixAmbiguous):
        await rooms.sessions.revoke("ab", actor="operator")


# a device lessens its own session


async def reduce(rooms: Rooms, mine: Principal, **change: object) -> Session:
    given = Change(**change, ttl_given="ttl" in change)  # type: ignore[arg-type]
    return await rooms.sessions.reduce(mine.prefix, given, by=mine)


async def test_less_time_shortens_the_grants_too_and_open_links_learn_it(rooms: Rooms) -> None:
    mine, token = await rooms.issue(grants={"chat": None, "terminal": 60})
    await rooms.sessions.verify(token)
    now = rooms.clock.now()
    session = await reduce(rooms, mine, ttl=600)
    assert (session.expires_at, session.grants) == (now + 600, {"chat": now + 600, "terminal": now + 60})
    assert rooms.changed == [(mine.session_id, session.grants)]
    assert (await rooms.sessions.verify(token)).grants == session.grants  # not what was cached
    ((actor, action, subject, detail),) = await rooms.audit()
    assert (actor, action, subject) == (mine.prefix, "session.changed", mine.prefix)
    assert detail["grants"] == {"chat": now + 600}


async def test_more_time_is_the_operators_to_give(rooms: Rooms) -> None:
    mine, _ = await rooms.issue(ttl=600)
    for ttl in (601, None):
        with pytest.raises(MoreThanGranted, match="operator approval required to extend session"):
            await reduce(rooms, mine, ttl=ttl)
    assert (await rooms.sessions.list())[0].expires_at == mine.expires_at


async def test_a_session_without_end_may_get_one(rooms: Rooms) -> None:
    mine, _ = await rooms.issue(ttl=None)
    assert (await reduce(rooms, mine, ttl=None)).expires_at is None
    assert (await reduce(rooms, mine, ttl=3600)).expires_at == rooms.clock.now() + 3600


async def test_a_grant_above_its_ceiling_stays_because_the_phones_clock_may_lag(rooms: Rooms) -> None:
    mine, _ = await rooms.issue(grants={"chat": None, "terminal": 600, "bridge": 700})
    now = rooms.clock.now()
    # what the app sends to end one grant: the whole map in its own seconds, 1 for the one to end
    session = await reduce(rooms, mine, grants={"chat": None, "terminal": 1, "bridge": 730})
    assert session.grants == {"chat": now + MONTH, "terminal": now + 1, "bridge": now + 700}
    session = await reduce(rooms, mine, grants={"chat": 60})
    assert session.grants == {"chat": now + 60, "terminal": now + 1, "bridge": now + 700}


async def test_a_grant_it_does_not_have_cannot_be_asked_for(rooms: Rooms) -> None:
    mine, _ = await rooms.issue(grants={"chat": None})
    for name in ("terminal", "nope"):
        with pytest.raises(GrantUnknown, match=f"unknown grant '{name}'"):
            await reduce(rooms, mine, grants={name: 60, "chat": 60})
    assert (await rooms.sessions.list())[0].grants == mine.grants


async def test_another_devices_session_is_not_its_to_change(rooms: Rooms) -> None:
    mine, _ = await rooms.issue("mine")
    other, _ = await rooms.issue("other")
    with pytest.raises(NotYours, match="cannot modify another session"):
        await rooms.sessions.reduce(other.prefix, Change(ttl=60, ttl_given=True), by=mine)


async def test_the_operator_gives_takes_and_names(rooms: Rooms) -> None:
    theirs, _ = await rooms.issue(grants={"chat": None}, ttl=600)
    now = rooms.clock.now()
    change = Change(ttl=DAY, ttl_given=True, grants={"dashboard": 60, "terminal": None, "chat": 5}, name="Pixel")
    session = await rooms.sessions.alter(theirs.prefix, change)
    assert session.device_name == "Pixel"
    assert session.expires_at == now + DAY
    assert session.grants == {"chat": now + 5, "terminal": now + DAY, "dashboard": now + 60}
    assert [(actor, action, subject) for actor, action, subject, _ in await rooms.audit()] == [
        ("operator", "session.changed", theirs.prefix), ("operator", "device.renamed", "phone"),
    ]  # fmt: skip
    with pytest.raises(GrantUnknown):
        await rooms.sessions.alter(theirs.prefix, Change(grants={"nope": 1}))


async def test_last_seen_is_written_once_a_minute_at_most(rooms: Rooms) -> None:
    _, token = await rooms.issue()
    start = rooms.clock.now()
    seen = []
    for _ in range(4):
        rooms.clock.advance(25)
        await rooms.sessions.verify(token)
        seen.append((await rooms.sessions.list())[0].last_seen_at)
    assert seen == [start, start, start + 75, start + 75]


async def test_the_cache_is_bounded(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.sessions.verdicts.MAX_CACHED", 3)
    issued = [await rooms.issue(f"d{n}") for n in range(8)]
    for principal, token in issued * 2:
        assert await rooms.sessions.verify(token) == principal
        assert len(rooms.sessions._verdicts) <= 3
