from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from app.errors import StorageFailed
from app.outbox import messages, retention, store
from app.outbox.retention import Retention
from tests.outbox.conftest import Boxes


async def test_numbers_run_without_gaps_however_many_append_at_once(boxes: Boxes) -> None:
    await boxes.add("a", "b")
    await asyncio.gather(*(boxes.put("a", "b") for _ in range(100)))
    for device in ("a", "b"):
        assert [seq for seq, _, _ in await boxes.rows(device)] == list(range(1, 101))


async def test_a_failed_work_leaves_no_gap(boxes: Boxes) -> None:
    await boxes.add("a")
    await boxes.put("a")
    given = {"channel": "c", "type": "t", "kind": "message", "body": b"{}", "now": 1.0, "wakes": True}
    with pytest.raises(StorageFailed):
        await boxes.db.write(lambda tx: store.append(tx, ["a"], id="m1", **given))  # type: ignore[arg-type]
    await boxes.put("a")
    assert [seq for seq, _, _ in await boxes.rows("a")] == [1, 2]


async def test_a_payload_is_stored_once_for_many_devices(boxes: Boxes) -> None:
    await boxes.add("a", "b", "c")
    await boxes.put("a", "b", "c")
    count = text("SELECT (SELECT count(*) FROM payloads), (SELECT count(*) FROM outbox)")
    assert await boxes.db.read(lambda tx: tx.one(count)) == (1, 3)


async def test_a_device_without_a_mailbox_gets_nothing_and_breaks_nothing(boxes: Boxes) -> None:
    await boxes.add("a")
    await boxes.put("a", "nobody")
    assert [seq for seq, _, _ in await boxes.rows("a")] == [1]


async def test_audiences(boxes: Boxes) -> None:
    await boxes.add("ours", "ours too")
    await boxes.add("older", audience="messages")
    await boxes.add("silent", audience="none")

    async def who(kind: str) -> list[str]:
        return list(await boxes.db.read(lambda tx: store.listening(tx, kind)))

    assert await who("turn") == ["ours", "ours too"]
    assert await who("message") == await who("cron") == ["older", "ours", "ours too"]
    await boxes.db.write(lambda tx: store.join_audience(tx, "older"))
    await boxes.db.write(lambda tx: store.join_audience(tx, "older", "messages"))  # what it once could, it can
    assert await who("turn") == ["older", "ours", "ours too"]


async def test_a_revoked_device_gets_nothing_new(boxes: Boxes) -> None:
    await boxes.add("kept", "revoked")
    end = text("UPDATE sessions SET revoked_at = 1 WHERE device_id = 'revoked'")
    await boxes.db.write(lambda tx: tx.execute(end).close())
    assert list(await boxes.db.read(lambda tx: store.listening(tx, "turn"))) == ["kept"]


# what may no longer be shown


async def test_what_is_taken_back_keeps_its_number(boxes: Boxes) -> None:
    await boxes.add("a")
    ids = await boxes.put("a", count=3)
    assert list(await boxes.db.write(lambda tx: messages.void(tx, ids[1], "cancelled"))) == ["a"]
    assert await boxes.rows("a") == [(1, ids[0], None), (2, ids[1], "cancelled"), (3, ids[2], None)]


async def test_what_was_confirmed_cannot_be_taken_back(boxes: Boxes) -> None:
    await boxes.add("a", "b")
    (id,) = await boxes.put("a", "b")
    await boxes.ack("a", 1)
    assert list(await boxes.db.write(lambda tx: messages.void(tx, id, "cancelled"))) == ["b"]


async def test_what_has_expired_is_void_by_itself(boxes: Boxes) -> None:
    await boxes.add("a")
    (id,) = await boxes.put("a", expires_at=boxes.now + 10)
    assert await boxes.rows("a") == [(1, id, None)]
    boxes.now += 10
    assert await boxes.rows("a") == [(1, id, "expired")]


async def test_receipts_tell_how_far_a_message_got(boxes: Boxes) -> None:
    await boxes.add("a", "b", "c", "d", "e")
    (id,) = await boxes.put("a", "b", "c", "d", "e")
    await boxes.ack("a", 1)
    epoch = (await boxes.box("b"))["epoch"]
    await boxes.db.write(lambda tx: store.mark_sent(tx, "b", epoch, 1))
    await boxes.db.write(lambda tx: tx.execute(text("UPDATE mailboxes SET woken = 1 WHERE device_id = 'c'")).close())
    await boxes.db.write(
        lambda tx: tx.execute(text("UPDATE outbox SET void = 'cancelled' WHERE device_id = 'd'")).close()
    )
    found = await boxes.db.read(lambda tx: messages.receipts(tx, id, boxes.now))
    assert {r.device_id: (r.state, r.reason) for r in found} == {
        "a": ("acked", None), "b": ("sent", None), "c": ("woken", None),
        "d": ("void", "cancelled"), "e": ("kept", None),
    }  # fmt: skip


# acknowledging


async def test_an_ack_is_cumulative_and_never_goes_back(boxes: Boxes) -> None:
    await boxes.add("a")
    await boxes.put("a", count=5)
    for seq, acked in ((3, 3), (2, 3), (9, 3), (5, 5)):
        await boxes.ack("a", seq)
        assert (await boxes.box("a"))["acked"] == acked
    await boxes.db.write(lambda tx: store.ack(tx, "a", "another epoch", 5))
    assert (await boxes.box("a"))["acked"] == 5


async def test_a_waking_frame_makes_a_push_due_once_per_burst_and_an_ack_takes_it_back(boxes: Boxes) -> None:
    await boxes.add("a")
    await boxes.put("a", wakes=False)
    assert (await boxes.box("a"))["wake_at"] is None
    await boxes.put("a")  # 2
    boxes.now += 3
    await boxes.put("a", count=2)  # 3, 4: the same burst
    assert (await boxes.box("a"))["wake_at"] == 1005
    await boxes.ack("a", 3)  # not all: the frame at 4 was stored at 1003
    box = await boxes.box("a")
    assert (box["wake_seq"], box["wake_at"]) == (4, 1008)
    await boxes.ack("a", 4)
    assert (await boxes.box("a"))["wake_at"] is None


async def test_an_ack_above_the_last_waking_frame_is_not_needed(boxes: Boxes) -> None:
    await boxes.add("a")
    await boxes.put("a")
    await boxes.put("a", wakes=False)
    await boxes.ack("a", 1)
    assert (await boxes.box("a"))["wake_at"] is None


# retention


async def clean(boxes: Boxes, rules: Retention) -> None:
    found = await boxes.db.read(lambda tx: retention.cuts(tx, rules, boxes.now))
    for device, (_, cut) in found.items():
        await boxes.db.write(lambda tx, device=device, cut=cut: retention.drop(tx, device, cut))  # type: ignore[misc]
    await boxes.db.write(lambda tx: retention.sweep(tx, boxes.now))


async def test_retention_drops_only_a_prefix_by_age_and_by_count(boxes: Boxes) -> None:
    await boxes.add("old", "full")
    await boxes.put("old", count=2)
    boxes.now += 100
    await boxes.put("old", count=2)
    await boxes.put("full", count=10)
    boxes.now += 10
    await clean(boxes, Retention(max_age_s=50, max_count=6))
    assert [seq for seq, _, _ in await boxes.rows("old")] == [3, 4]
    assert [seq for seq, _, _ in await boxes.rows("full")] == [5, 6, 7, 8, 9, 10]
    assert (await boxes.box("old"))["floor"] == 2
    await boxes.put("old")
    assert [seq for seq, _, _ in await boxes.rows("old")] == [3, 4, 5]


async def test_a_message_of_a_wrong_clock_takes_no_newer_one_with_it(boxes: Boxes) -> None:
    """A host without a battery clock begins in the past until it has asked for the time."""
    await boxes.add("a")
    await boxes.put("a", count=2)
    boxes.now -= 1000
    await boxes.put("a")
    boxes.now += 1010
    await boxes.put("a")
    await clean(boxes, Retention(max_age_s=50, max_count=100))
    assert [seq for seq, _, _ in await boxes.rows("a")] == [1, 2, 3, 4]
    boxes.now += 45
    await clean(boxes, Retention(max_age_s=50, max_count=100))
    assert [seq for seq, _, _ in await boxes.rows("a")] == [4]


async def test_a_payload_goes_when_the_last_mailbox_has_let_it_go(boxes: Boxes) -> None:
    await boxes.add("a", "b")
    await boxes.put("a", "b")
    await boxes.put("b")
    boxes.now += 2 * 86400
    await boxes.db.write(lambda tx: retention.drop(tx, "a", 1))
    await boxes.db.write(lambda tx: retention.sweep(tx, boxes.now))
    count = text("SELECT count(*) FROM payloads")
    assert (await boxes.db.read(lambda tx: tx.one(count)))[0] == 2  # type: ignore[index]
    await boxes.db.write(lambda tx: retention.drop(tx, "b", 1))
    await boxes.db.write(lambda tx: retention.sweep(tx, boxes.now))
    assert (await boxes.db.read(lambda tx: tx.one(count)))[0] == 1  # type: ignore[index]


async def test_generations_rise_per_instance(boxes: Boxes) -> None:
    await boxes.add("a")
    rises = [await boxes.db.write(lambda tx: store.raise_generation(tx, "a", "tab")) for _ in range(3)]
    assert rises == [1, 2, 3]
    assert await boxes.db.write(lambda tx: store.raise_generation(tx, "a", "other")) == 1
    assert await boxes.db.read(lambda tx: store.generation(tx, "a", "tab")) == 3
