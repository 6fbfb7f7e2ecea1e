"""Refresh tokens: their families, the one generation of grace, and what a renewal gives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import jwt
import pytest

from app.errors import RateLimited, StorageFull
from app.sessions import opaque, store
from app.sessions.address import Address
from app.sessions.changes import Change
from app.sessions.errors import (
    NotYours,
    RefreshReused,
    SessionExpired,
    SessionRefused,
    SessionRevoked,
    SessionUnknown,
    TokenRejected,
)
from app.sessions.service import Principal
from tests.sessions.rooms import MONTH, Rooms, open_rooms

THEM = Address("203.0.113.7")
DAY = 86400


def kid_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


async def begin(rooms: Rooms, **issue: object) -> tuple[Principal, str, str]:
    principal, token = await rooms.issue(**issue)  # type: ignore[arg-type]
    return principal, token, await rooms.renewals.first(principal)


async def test_a_session_goes_on_for_as_long_again(rooms: Rooms) -> None:
    principal, token, refresh = await begin(rooms)
    rooms.clock.advance(20 * DAY)
    made = await rooms.renewals.renew(refresh, THEM, device_id="phone", session_id=principal.session_id)
    assert made.principal.session_id == principal.session_id
    assert made.principal.expires_at == rooms.clock.now() + MONTH
    assert made.principal.grants["chat"] == rooms.clock.now() + MONTH
    assert made.refresh_token != refresh
    for good in (token, made.token):  # its other processes go on with the one that they have
        assert (await rooms.sessions.verify(good)).expires_at == made.principal.expires_at
    assert rooms.changed == [(principal.session_id, made.principal.grants)]
    assert (await rooms.audit())[-1][1:3] == ("session.renewed", principal.prefix)


async def test_a_session_that_is_over_begins_again_and_its_old_tokens_do_not(rooms: Rooms) -> None:
    _, token, refresh = await begin(rooms)
    rooms.clock.advance(MONTH)
    with pytest.raises(SessionExpired):
        await rooms.sessions.verify(token)
    made = await rooms.renewals.renew(refresh, THEM)
    assert (await rooms.sessions.verify(made.token)).expires_at == rooms.clock.now() + MONTH
    with pytest.raises(SessionExpired):
        await rooms.sessions.verify(token)


async def test_a_device_that_pairs_again_cannot_begin_its_old_session_again(rooms: Rooms) -> None:
    first, _ = await rooms.pair("phone")
    refresh = await rooms.renewals.first(first)
    rooms.clock.advance(MONTH)
    await rooms.pair("phone")
    with pytest.raises(SessionRevoked):
        await rooms.renewals.renew(refresh, THEM)
    assert rooms.ended == [(first.session_id, "replaced")]


async def test_a_session_that_is_over_can_still_be_revoked(rooms: Rooms) -> None:
    principal, _, refresh = await begin(rooms)
    rooms.clock.advance(MONTH)
    ((_, sessions),) = await rooms.sessions.devices()
    assert [session.session_id for session in sessions] == [principal.session_id]
    await rooms.sessions.revoke(principal.prefix, actor="operator")
    with pytest.raises(SessionRevoked):
        await rooms.renewals.renew(refresh, THEM)
    assert [len(sessions) for _, sessions in await rooms.sessions.devices()] == [0]


async def test_what_no_refresh_token_can_begin_again_is_not_listed(rooms: Rooms) -> None:
    await begin(rooms, ttl=600)
    rooms.clock.advance(180 * DAY)
    assert [len(sessions) for _, sessions in await rooms.sessions.devices()] == [0]


async def test_the_one_before_stays_good_until_the_new_one_is_seen(rooms: Rooms) -> None:
    principal, _, first = await begin(rooms)
    lost = await rooms.renewals.renew(first, THEM)
    again = await rooms.renewals.renew(first, THEM)  # the answer never came
    assert again.refresh_token != lost.refresh_token
    third = await rooms.renewals.renew(again.refresh_token, THEM)
    await rooms.renewals.heard(third.principal, third.refresh_token)
    with pytest.raises(RefreshReused):
        await rooms.renewals.renew(first, THEM)
    with pytest.raises(SessionRevoked):
        await rooms.sessions.verify(third.token)
    with pytest.raises(SessionRevoked):
        await rooms.renewals.renew(third.refresh_token, THEM)
    assert rooms.ended == [(principal.session_id, "refresh_reused")]
    assert (await rooms.audit())[-1][1:] == (
        "session.revoked", principal.prefix, {"device_id": "phone", "reason": "a refresh token was used again"},
    )  # fmt: skip


async def test_the_token_of_the_new_term_shows_that_the_answer_came(rooms: Rooms) -> None:
    _, _, first = await begin(rooms)
    rooms.clock.advance(MONTH)
    await rooms.renewals.renew(first, THEM)
    made = await rooms.renewals.renew(first, THEM)  # still: nobody spoke with the first answer
    await rooms.sessions.verify(made.token)
    with pytest.raises(RefreshReused):
        await rooms.renewals.renew(first, THEM)


async def test_a_token_of_the_same_term_shows_nothing(rooms: Rooms) -> None:
    _, token, first = await begin(rooms)
    await rooms.renewals.renew(first, THEM)
    await rooms.sessions.verify(token)
    await rooms.renewals.renew(first, THEM)


async def test_of_two_at_once_both_are_answered(rooms: Rooms) -> None:
    """Two processes of one client share a file; whichever writes last is right."""
    _, _, first = await begin(rooms)
    made = await asyncio.gather(*(rooms.renewals.renew(first, THEM) for _ in range(2)))
    for one in made:
        await rooms.sessions.verify(one.token)
    await rooms.renewals.renew(made[1].refresh_token, THEM)


async def test_it_is_bound_to_its_device_and_session(rooms: Rooms) -> None:
    _, _, refresh = await begin(rooms)
    other, _ = await rooms.issue("tablet")
    with pytest.raises(SessionUnknown) as caught:
        await rooms.renewals.renew(refresh, THEM, device_id="tablet")
    assert not isinstance(caught.value, TokenRejected)
    with pytest.raises(NotYours):
        await rooms.renewals.renew(refresh, None, session_id=other.session_id)
    assert await rooms.count("attempts") == 0
    await rooms.renewals.renew(refresh, THEM, device_id="phone")


async def test_revoking_and_pairing_again_end_it(rooms: Rooms) -> None:
    principal, _, refresh = await begin(rooms)
    await rooms.sessions.revoke(principal.prefix, actor="operator")
    with pytest.raises(SessionRevoked):
        await rooms.renewals.renew(refresh, THEM)
    paired, _ = await rooms.pair("dev-1")
    refresh = await rooms.renewals.first(paired)
    await rooms.pair("dev-1")
    with pytest.raises(SessionRevoked):
        await rooms.renewals.renew(refresh, THEM)


async def test_unknown_ones_are_guesses(rooms: Rooms) -> None:
    for _ in range(5):
        with pytest.raises(TokenRejected):
            await rooms.renewals.renew(opaque.new(opaque.REFRESH), THEM)
    with pytest.raises(RateLimited):
        await rooms.renewals.renew(opaque.new(opaque.REFRESH), THEM)


async def test_after_half_a_year_away_it_is_over(rooms: Rooms) -> None:
    _, _, refresh = await begin(rooms)
    rooms.clock.advance(180 * DAY)
    with pytest.raises(SessionExpired):
        await rooms.renewals.renew(refresh, THEM)
    rooms.clock.advance(-10 * DAY)  # a clock that was wrong ends nothing for good
    await rooms.renewals.renew(refresh, THEM)


async def test_what_was_taken_back_does_not_come_again(rooms: Rooms) -> None:
    mine, _, refresh = await begin(rooms, grants={"chat": None, "terminal": None, "bridge": 7 * DAY})
    await rooms.sessions.reduce(mine.prefix, Change(grants={"terminal": 1, "chat": MONTH - 300}), by=mine)
    rooms.clock.advance(10)
    made = await rooms.renewals.renew(refresh, THEM)
    now = rooms.clock.now()
    assert made.principal.grants["terminal"] == now - 9
    assert made.principal.grants["bridge"] == now + 7 * DAY
    assert made.principal.grants["chat"] == now + MONTH - 300  # its clock lags a little: no wish to lose anything
    rooms.clock.advance(MONTH)
    made = await rooms.renewals.renew(made.refresh_token, THEM)
    now = rooms.clock.now()
    assert made.principal.grants["chat"] == now + MONTH - 300
    assert [name for name, end in made.principal.grants.items() if end is not None and end > now] == ["chat"]


async def test_what_the_operator_gave_comes_again(rooms: Rooms) -> None:
    mine, _, refresh = await begin(rooms, grants={"chat": None}, ttl=DAY)
    await rooms.sessions.alter(mine.prefix, Change(ttl=3 * DAY, ttl_given=True, grants={"bridge": DAY}))
    made = await rooms.renewals.renew(refresh, THEM)
    now = rooms.clock.now()
    assert made.principal.expires_at == now + 3 * DAY
    assert made.principal.grants == {"chat": now + 3 * DAY, "bridge": now + DAY}


async def test_a_session_without_an_end_keeps_none(rooms: Rooms) -> None:
    _, _, refresh = await begin(rooms, ttl=None)
    assert (await rooms.renewals.renew(refresh, THEM)).principal.expires_at is None


async def test_it_survives_a_restart_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    async with open_rooms(tmp_path) as rooms:
        _, _, first = await begin(rooms)
        second = (await rooms.renewals.renew(first, THEM)).refresh_token
    async with open_rooms(tmp_path, rooms.clock) as rooms:
        third = await rooms.renewals.renew(second, THEM)
        with pytest.raises(SessionRefused):
            await rooms.renewals.renew(first, THEM)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("talaria.db*"))
    for token in (first, second, third.refresh_token):
        assert token.encode() not in stored


async def test_answers_that_are_lost_again_and_again_fill_nothing(rooms: Rooms) -> None:
    _, _, first = await begin(rooms)
    made = [await rooms.renewals.renew(first, THEM) for _ in range(20)]
    assert await rooms.count("refresh_tokens") == 9
    await rooms.renewals.renew(made[-1].refresh_token, THEM)


async def test_a_full_disk_keeps_out_nobody_who_has_a_good_token(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, refresh = await begin(rooms)
    rooms.clock.advance(MONTH)
    made = await rooms.renewals.renew(refresh, THEM)
    with pytest.raises(TokenRejected):
        await rooms.sessions.verify_from("nonsense", THEM)

    async def full(work: Any) -> None:
        raise StorageFull()

    with monkeypatch.context() as patch:
        patch.setattr(rooms.db, "write", full)
        principal = await rooms.sessions.verify_from(made.token, THEM)
        await rooms.renewals.heard(principal, made.refresh_token)
    rooms.clock.advance(10)
    await rooms.sessions.verify_from(made.token, THEM)
    with pytest.raises(RefreshReused):  # it was written down as soon as there was space
        await rooms.renewals.renew(refresh, THEM)


# keys


async def test_a_new_key_signs_and_the_old_one_verifies(rooms: Rooms, tmp_path: Path) -> None:
    _, token, refresh = await begin(rooms)
    before = rooms.keys.signing.kid
    kid, gone = await rooms.renewals.rotate_keys("operator")
    assert (rooms.keys.signing.kid, gone) == (kid, [])
    assert kid != before
    assert (tmp_path / "session-keys.json").stat().st_mode & 0o777 == 0o600
    await rooms.sessions.verify(token)
    made = await rooms.renewals.renew(refresh, THEM)
    assert made.token != token
    async with open_rooms(tmp_path, rooms.clock) as again:
        await again.sessions.verify(made.token)
        await again.sessions.verify(token)
        assert again.keys.signing.kid == kid
    assert (await rooms.audit())[0][:3] == ("operator", "keys.rotated", kid)


async def test_a_key_goes_when_no_live_session_needs_it(rooms: Rooms) -> None:
    _, token = await rooms.issue(ttl=DAY)
    first = rooms.keys.signing.kid
    second, _ = await rooms.renewals.rotate_keys("operator")
    _, gone = await rooms.renewals.rotate_keys("operator")
    assert gone == []  # the first has a session, and of the second a token may be under way
    await rooms.sessions.verify(token)
    rooms.clock.advance(DAY)
    _, gone = await rooms.renewals.rotate_keys("operator")
    assert set(gone) == {first, second}
    with pytest.raises(SessionRefused):
        await rooms.sessions.verify(token)


async def test_a_live_session_keeps_the_keys_of_all_its_tokens(rooms: Rooms) -> None:
    _, token, refresh = await begin(rooms)
    await rooms.renewals.rotate_keys("operator")
    made = await rooms.renewals.renew(refresh, THEM)
    for _ in range(3):
        await rooms.renewals.rotate_keys("operator")
    for good in (token, made.token):
        await rooms.sessions.verify(good)
    rooms.clock.advance(2 * MONTH)
    again = await rooms.renewals.renew(made.refresh_token, THEM)
    _, gone = await rooms.renewals.rotate_keys("operator")
    assert {kid_of(token), kid_of(made.token)} <= set(gone)  # of a session that was over they are dead anyway
    await rooms.sessions.verify(again.token)


async def test_a_rotation_in_the_middle_of_a_pairing(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    add = store.add_session

    def rotating(*args: Any, **values: Any) -> None:
        add(*args, **values)
        rooms.keys.rotate(set(rooms.keys.public))

    monkeypatch.setattr(store, "add_session", rotating)
    _, token = await rooms.issue()
    assert await rooms.db.read(lambda tx: store.kids(tx, rooms.clock.now())) == {kid_of(token)}
    assert kid_of(token) != rooms.keys.signing.kid
    await rooms.sessions.verify(token)


async def test_two_who_rotate_at_once_make_two_keys(rooms: Rooms) -> None:
    made = await asyncio.gather(*(rooms.renewals.rotate_keys("operator") for _ in range(2)))
    assert len({kid for kid, _ in made} & set(rooms.keys.public)) == 2
