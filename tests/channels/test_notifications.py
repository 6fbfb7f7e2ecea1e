"""What phones post, over real sockets: kept once, in order, within bounds, and over restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from app.channels.service import MAX_WAITING
from app.clock import ManualClock
from app.db import Database, Tx
from app.errors import StorageFull
from app.wire.notifications import MAX_LIMIT, MAX_LINE, MAX_PACKAGE, MAX_TEXT, NotificationPosted
from tests.channels.notes import listed, note, post, remove, titles, with_grants
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

HOUR = 3600


async def test_the_newest_comes_first_with_where_it_was_posted(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await post(phone, *map(note, range(3)))
    found = await listed(phone)
    assert found[0] == note(2) | {"device_id": phone.auth["device_id"], "received_at": found[0]["received_at"]}
    assert [one["title"] for one in found] == ["Mail 2", "Mail 1", "Mail 0"]


async def test_a_post_is_not_answered(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await post(phone, note())
    await remove(phone, note()["key"])
    assert [frame.type for frame in phone.frames[-2:]] == ["pong", "pong"]


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "gathered"])
async def test_another_version_replaces_the_one_before_and_comes_first(relay: RunningRelay, is_stored: bool) -> None:
    phone = await relay.connect()
    await post(phone, note(0), note(1))
    if is_stored:
        await relay.relay.notifications.flush()
    await post(phone, note(0, title="Mail 0 again"))
    assert await titles(phone) == ["Mail 0 again", "Mail 1"]


async def test_the_same_again_changes_nothing(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await post(phone, note(0), note(1))
    before = await listed(phone)
    await post(phone, note(0))
    assert await listed(phone) == before


async def test_a_key_belongs_to_its_device(relay: RunningRelay) -> None:
    first, second = await relay.connect(), await relay.connect()
    await post(first, note(title="first"))
    await post(second, note(title="second"))
    await remove(first, note()["key"])
    assert [(one["title"], "removed_at" in one) for one in await listed(first)] == [("second", False), ("first", True)]
    assert await titles(second, device_id=first.auth["device_id"]) == ["first"]
    assert await listed(second, device_id="nobody") == []


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "gathered"])
async def test_what_was_removed_is_marked_until_it_is_posted_again(tmp_path: Path, is_stored: bool) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone = await relay.connect()
        await post(phone, note(0), note(1))
        if is_stored:
            await relay.relay.notifications.flush()
        clock.advance(60)
        await remove(phone, note(0)["key"])
        await remove(phone, "nobody posted this")
        removed_at = clock.now()
        clock.advance(60)
        await remove(phone, note(0)["key"])
        assert [one.get("removed_at") for one in await listed(phone)] == [None, removed_at]
        await post(phone, note(0))
        assert [(one["title"], "removed_at" in one) for one in await listed(phone)] == [
            ("Mail 0", False), ("Mail 1", False),
        ]  # fmt: skip


async def test_pages_lead_to_the_oldest_without_a_double(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await post(phone, *map(note, range(7)))
    seen: list[str] = []
    cursor = None
    while True:
        answer = await phone.ask("notifications", "notifications.list", limit=3, cursor=cursor)
        seen += [one["title"] for one in answer.payload["notifications"]]
        if (cursor := answer.payload.get("cursor")) is None:
            break
        await post(phone, note(1, text=f"while the page of {cursor} is read"))
    assert seen == ["Mail 6", "Mail 5", "Mail 4", "Mail 3", "Mail 2", "Mail 0"]  # 1 came again, at the top


async def test_a_restart_keeps_what_was_posted_just_before(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        await post(phone, *map(note, range(3)))
    async with running(settings_for(tmp_path)) as relay:
        back = await relay.connect(session_token=phone.token)
        assert await titles(back) == ["Mail 2", "Mail 1", "Mail 0"]
        await post(back, note(1, title="Mail 1 again"))
        assert await titles(back) == ["Mail 1 again", "Mail 2", "Mail 0"]


# who may


async def test_reading_needs_the_grant_and_posting_does_not(relay: RunningRelay) -> None:
    phone, reader = await with_grants(relay, "chat"), await with_grants(relay, "notifications")
    await post(phone, note(0), note(1))
    await remove(phone, note(0)["key"])
    for type_ in ("notifications.list", "notification.bogus"):
        refused = await phone.ask("notifications", type_, {})
        assert (refused.type, refused.payload["code"]) == ("error", "grant_missing")
    assert await titles(reader) == ["Mail 1", "Mail 0"]


async def test_a_grant_that_has_expired_reads_nothing_and_posts_still(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        code = (await relay.relay.pairing.mint(grants={"notifications": HOUR})).code
        phone = await relay.connect(pairing_code=code)
        await post(phone, note(0))
        assert await titles(phone) == ["Mail 0"]
        clock.advance(HOUR)
        refused = await phone.ask("notifications", "notifications.list", {})
        assert refused.payload["code"] == "grant_missing"
        await post(phone, note(1))
        assert [one.title for one in await relay.relay.notifications.recent()] == ["Mail 1", "Mail 0"]


# bounds


async def test_old_ones_are_not_shown_and_then_deleted(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path, NOTIFICATIONS_MAX_AGE="1h"), clock=clock) as relay:
        phone = await relay.connect()
        await post(phone, note(0))
        await relay.relay.notifications.flush()
        clock.advance(HOUR - 1)
        await post(phone, note(1))
        assert await titles(phone) == ["Mail 1", "Mail 0"]
        clock.advance(2)
        assert await titles(phone) == ["Mail 1"]
        assert await rows(relay.relay.db) == 2
        await relay.relay.notifications.sweep()
        assert await rows(relay.relay.db) == 1


async def test_the_oldest_of_the_device_go_where_there_are_too_many(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, NOTIFICATIONS_MAX_COUNT="3")) as relay:
        phone, other = await relay.connect(), await relay.connect()
        await post(other, note(0, title="of another"))
        for number in range(5):
            await post(phone, note(number))
            await relay.relay.notifications.flush()
        await post(phone, note(2, title="Mail 2 again"))
        assert await titles(phone) == ["Mail 2 again", "Mail 4", "Mail 3", "of another"]
        assert await rows(relay.relay.db) == 4


async def test_of_a_storm_the_newest_are_kept_and_others_lose_nothing(relay: RunningRelay) -> None:
    phone, calm = await relay.connect(), await relay.connect()
    await post(calm, note(0, title="calm"))
    notifications = relay.relay.notifications
    for number in range(10 * MAX_WAITING):  # past the socket: between two commits whatever the machine does
        notifications.posted(phone.auth["device_id"], _said(note(number)))
    kept = await rows_of(relay, phone)
    assert kept == [f"Mail {number}" for number in range(10 * MAX_WAITING - 1, 9 * MAX_WAITING - 1, -1)]
    assert await titles(phone, device_id=calm.auth["device_id"]) == ["calm"]


async def test_a_storm_of_posts_takes_few_commits(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    works, write = [], relay.relay.db.write

    async def counted(work: Any) -> Any:
        works.append(work)
        return await write(work)

    phone = await relay.connect()
    monkeypatch.setattr(relay.relay.db, "write", counted)
    for number in range(2000):
        await phone.send("notifications", "notification.posted", note(number % 50, text=str(number)))
    assert (await titles(phone, limit=1)) == ["Mail 49"]
    assert len(works) < 100
    assert len(await listed(phone, limit=100)) == 50


async def test_long_texts_are_cut_and_a_full_page_fits_a_frame(relay: RunningRelay) -> None:
    phone = await relay.connect()
    worst = "\x01"  # six bytes as JSON
    long = worst * 9999
    for number in range(MAX_LIMIT):
        key = f"{number:03}".ljust(MAX_LINE, worst)
        await phone.send(
            "notifications", "notification.posted",
            note(key=key, package_name=worst * MAX_PACKAGE, title=long, sub_text=long, text=long),
        )  # fmt: skip
    found = await listed(phone, limit=MAX_LIMIT)
    assert len(found) == MAX_LIMIT
    for name, length in (("title", MAX_LINE), ("sub_text", MAX_LINE), ("text", MAX_TEXT)):
        assert found[0][name] == worst * (length - 1) + "…"


# allowed and blocked


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({"NOTIFICATIONS_BLOCK": "com.example.bank, org.*"}, ["com.example.mail", "com.example.bank.other"]),
        ({"NOTIFICATIONS_BLOCK": "COM.example.Mail,com.example.bank*"}, ["org.example"]),
        ({"NOTIFICATIONS_ALLOW": "com.example.*"}, ["com.example.bank", "com.example.mail", "com.example.bank.other"]),
        ({"NOTIFICATIONS_ALLOW": "com.example.*", "NOTIFICATIONS_BLOCK": "com.example.bank*"}, ["com.example.mail"]),
        ({"NOTIFICATIONS_BLOCK": "*"}, []),
    ],
)
async def test_what_may_not_be_kept_never_is_and_goes_at_the_next_start(
    tmp_path: Path, environ: dict[str, str], kept: list[str]
) -> None:
    packages = ["com.example.bank", "com.example.mail", "org.example", "com.example.bank.other"]
    posts = [note(key=name, package_name=name) for name in packages]
    async with running(settings_for(tmp_path / "new", **environ)) as relay:
        phone = await relay.connect()
        await post(phone, *posts)
        assert [one["key"] for one in reversed(await listed(phone))] == kept
    async with running(settings_for(tmp_path / "old")) as relay:
        phone = await relay.connect()
        await post(phone, *posts)
    async with running(settings_for(tmp_path / "old", **environ)) as relay:
        assert [one.key for one in reversed(await relay.relay.notifications.recent())] == kept


async def test_neither_case_nor_space_leads_past_the_list(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, NOTIFICATIONS_BLOCK="com.example.bank,org.*")) as relay:
        phone = await relay.connect()
        names = ["com.example.BANK", " com.example.bank\n", "\torg.example", "com.example.mail"]
        await post(phone, *(note(key=name, package_name=name) for name in names))
        assert [one["key"] for one in await listed(phone)] == ["com.example.mail"]


# trouble


async def test_a_full_disk_delays_them_and_reading_goes_on(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = await relay.connect()
    await post(phone, note(0), note(1))
    await relay.relay.notifications.flush()
    with monkeypatch.context() as broken:
        broken.setattr(relay.relay.db, "write", _full)
        await post(phone, note(2), note(3))
        assert await titles(phone) == ["Mail 1", "Mail 0"]
        await post(phone, note(2, title="Mail 2 again"))
        await remove(phone, note(3)["key"])
        assert await titles(phone) == ["Mail 1", "Mail 0"]
    assert [(one["title"], "removed_at" in one) for one in await listed(phone)] == [
        ("Mail 2 again", False), ("Mail 3", True), ("Mail 1", False), ("Mail 0", False),
    ]  # fmt: skip


async def test_nobody_has_to_ask_for_them_to_be_stored_or_tried_again(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.channels.service.RETRY_S", 0.01)
    tried, write = [], relay.relay.db.write

    async def full_at_first(work: Any) -> Any:
        tried.append(work)
        return await (_full(work) if len(tried) == 1 else write(work))

    phone = await relay.connect()
    monkeypatch.setattr(relay.relay.db, "write", full_at_first)
    await post(phone, note())
    async with asyncio.timeout(10):
        while not await rows(relay.relay.db):
            await phone.ping()
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("notification.bogus", {}, "unknown_type"),
        ("notification.posted", {}, "payload_invalid"),
        ("notification.posted", note(key=""), "payload_invalid"),
        ("notification.posted", note(key=7), "payload_invalid"),
        ("notification.posted", note(key="k" * 513), "payload_invalid"),
        ("notification.posted", note(package_name=None), "payload_invalid"),
        ("notification.posted", note(title=["x"]), "payload_invalid"),
        ("notification.posted", note(posted_at="soon"), "payload_invalid"),
        ("notification.posted", note(posted_at=2**70), "payload_invalid"),
        ("notification.removed", {}, "payload_invalid"),
        ("notifications.list", {"limit": 0}, "payload_invalid"),
        ("notifications.list", {"limit": 101}, "payload_invalid"),
        ("notifications.list", {"cursor": "-1"}, "payload_invalid"),
        ("notifications.list", {"cursor": "1" * 19}, "payload_invalid"),
    ],
)
async def test_what_is_refused(relay: RunningRelay, type_: str, payload: dict[str, Any], code: str) -> None:
    phone = await relay.connect()
    answer = await phone.ask("notifications", type_, payload)
    assert (answer.channel, answer.type, answer.payload["code"]) == ("system", "error", code)
    await post(phone, note(1))
    assert await titles(phone) == ["Mail 1"]


async def test_a_payload_that_is_no_object_is_refused_and_the_socket_stays(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.raw('{"channel":"notifications","type":"notification.posted","id":"x","payload":"str"}')
    assert (await phone.until("error")).payload["code"] == "frame_invalid"
    await phone.ping()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("package_name", "title", "text", "sub_text", "posted_at", "key", "limit", "cursor", "device_id")
PAYLOADS = st.one_of(
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.fixed_dictionaries(
        {"package_name": st.text(), "key": st.text()},
        optional={"title": JSON, "text": st.text(), "posted_at": JSON, "sub_text": st.none() | st.text()},
    ),
)
TYPES = st.sampled_from(["notification.posted", "notification.removed", "notifications.list"])


async def test_whatever_is_sent_the_socket_lives_and_reading_works(relay: RunningRelay) -> None:
    phone = await relay.connect()
    examples: list[tuple[str, Any]] = []

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(TYPES, PAYLOADS)
    def collect(type_: str, payload: Any) -> None:
        examples.append((type_, payload))

    collect()
    for type_, payload in examples:
        sent = await phone.send("notifications", type_, payload)
        await phone.ping()
        for frame in phone.frames:
            if frame.id == sent:
                expected = ("notifications", "notifications.list") if type_ == "notifications.list" else None
                assert (frame.channel, frame.type) in (("system", "error"), expected), (type_, payload)
                code = frame.payload.get("code")
                assert code in (None, "payload_invalid", "frame_invalid"), (frame, payload)
        phone.frames.clear()
        phone.read = 0
    await post(phone, note(title="the last"))
    assert (await titles(phone))[0] == "the last"


# helpers


def _said(payload: dict[str, Any]) -> NotificationPosted:
    return NotificationPosted.model_validate(payload)


async def _full(work: Any) -> None:
    raise StorageFull()


async def rows(db: Database) -> int:
    def work(tx: Tx) -> int:
        (count,) = tx.one(text("SELECT COUNT(*) FROM notifications")) or (0,)
        return int(count)

    return await db.read(work)


async def rows_of(relay: RunningRelay, phone: Phone) -> list[str]:
    await relay.relay.notifications.flush()
    by_row = text("SELECT title FROM notifications WHERE device_id = :device ORDER BY row DESC")
    return await relay.relay.db.read(
        lambda tx: [title for (title,) in tx.all(by_row, {"device": phone.auth["device_id"]})]
    )
