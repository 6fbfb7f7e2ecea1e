"""On a real database: the same key has one effect and one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.clock import ManualClock
from app.db import Database, Tx, open_database
from app.db.meta import relay_id
from app.errors import IdReused, NotFound, OutcomeUncertain, StorageFailed
from app.once import store
from app.once.keys import Claim
from app.once.outward import Outward
from app.outbox import retention
from app.tasks import Supervisor

DAY = 86400.0


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(f"sqlite:///{tmp_path}/once.db") as db:
        yield db


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    async with Supervisor() as tasks:
        yield tasks


def claim(key: str | None = "k", text: str = "hi", *, principal: str = "phone", type: str = "chat.send") -> Claim:
    return Claim(principal, type, key, {"text": text})


class Effects:
    """Answers 1, 2, 3 …"""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, Any]:
        self.count += 1
        return {"n": self.count}


# an effect in the database


async def test_a_copy_gets_the_first_answer_and_has_no_effect(db: Database) -> None:
    effects = Effects()
    answers = [await db.write(lambda tx: store.settled(tx, claim(), 0, effects)) for _ in range(3)]
    assert answers == [{"n": 1}] * 3
    assert effects.count == 1


async def test_sixty_four_copies_at_the_same_time_have_one_effect(db: Database) -> None:
    effects = Effects()
    copies = (db.write(lambda tx: store.settled(tx, claim(), 0, effects)) for _ in range(64))
    assert await asyncio.gather(*copies) == [{"n": 1}] * 64
    assert effects.count == 1


async def test_a_key_belongs_to_a_principal_and_a_type(db: Database) -> None:
    effects = Effects()
    for other in (claim(), claim(principal="tablet"), claim(type="chat.stop"), claim("k2"), claim(None), claim(None)):
        await db.write(lambda tx, other=other: store.settled(tx, other, 0, effects))  # type: ignore[misc]
    assert effects.count == 6


async def test_another_payload_under_the_same_key_is_refused(db: Database) -> None:
    effects = Effects()
    await db.write(lambda tx: store.settled(tx, claim(), 0, effects))
    with pytest.raises(IdReused):
        await db.write(lambda tx: store.settled(tx, claim(text="ho"), 0, effects))
    assert effects.count == 1


async def test_what_was_refused_holds_no_key(db: Database) -> None:
    def refused() -> dict[str, Any]:
        raise NotFound()

    with pytest.raises(NotFound):
        await db.write(lambda tx: store.settled(tx, claim(), 0, refused))
    assert await db.write(lambda tx: store.settled(tx, claim(), 0, Effects())) == {"n": 1}


async def test_effect_and_record_are_stored_together_or_not_at_all(db: Database) -> None:
    first = await db.write(relay_id)

    def cut_off(tx: Tx) -> None:
        store.settled(tx, claim(), 0, Effects())
        raise StorageFailed()

    with pytest.raises(StorageFailed):
        await db.write(cut_off)
    assert await db.write(lambda tx: store.settled(tx, claim(), 0, Effects())) == {"n": 1}
    assert await db.write(relay_id) == first


async def test_a_key_is_good_for_a_day(db: Database) -> None:
    effects = Effects()
    await db.write(lambda tx: store.settled(tx, claim(), 1000, effects))
    await db.write(lambda tx: retention.sweep(tx, 1000 + DAY - 1))
    await db.write(lambda tx: store.settled(tx, claim(), 1000 + DAY - 1, effects))
    assert effects.count == 1
    await db.write(lambda tx: retention.sweep(tx, 1001 + DAY))
    await db.write(lambda tx: store.settled(tx, claim(), 1001 + DAY, effects))
    assert effects.count == 2


# an effect outside


class Deed:
    """Waits to be let go; `done` counts how often it was begun."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.count, self.error = 0, error

    async def __call__(self) -> dict[str, Any]:
        self.count += 1
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return {"n": self.count}


async def test_copies_wait_for_the_one_answer(db: Database, tasks: Supervisor) -> None:
    outward, deed = Outward(db, ManualClock(), tasks), Deed()
    copies = [tasks.start(outward.once(claim(), deed), "copy") for _ in range(8)]
    await deed.begun.wait()
    late = tasks.start(outward.once(claim(), deed), "late copy")
    with pytest.raises(IdReused):
        await outward.once(claim(text="ho"), deed)
    deed.go.set()
    assert await asyncio.gather(*copies, late) == [{"n": 1}] * 9
    assert await outward.once(claim(), deed) == {"n": 1}  # from the database now
    assert await Outward(db, ManualClock(), tasks).once(claim(), deed) == {"n": 1}  # after a restart too
    assert deed.count == 1


async def test_it_goes_on_when_whoever_asked_is_gone(db: Database, tasks: Supervisor) -> None:
    outward, deed = Outward(db, ManualClock(), tasks), Deed()
    asking = tasks.start(outward.once(claim(), deed), "asking")
    await deed.begun.wait()
    asking.cancel()
    deed.go.set()
    assert await outward.once(claim(), deed) == {"n": 1}
    assert deed.count == 1


async def test_what_was_cut_off_is_uncertain_and_never_done_again(db: Database, tasks: Supervisor) -> None:
    deed = Deed()
    async with Supervisor() as crashing:
        crashing.start(Outward(db, ManualClock(), crashing).once(claim(), deed), "asking")
        await deed.begun.wait()
    again = Outward(db, ManualClock(), tasks)
    for _ in range(2):
        with pytest.raises(OutcomeUncertain):
            await again.once(claim(), deed)
    with pytest.raises(IdReused):
        await again.once(claim(text="ho"), deed)
    assert deed.count == 1


async def test_a_refusal_frees_the_key_and_an_unknown_outcome_does_not(db: Database, tasks: Supervisor) -> None:
    outward = Outward(db, ManualClock(), tasks)
    for error, then in ((NotFound(), {"n": 1}), (OutcomeUncertain(), OutcomeUncertain), (ValueError(), None)):
        deed, key = Deed(error), type(error).__name__
        deed.go.set()
        with pytest.raises(type(error)):
            await outward.once(claim(key), deed)
        second = Deed()
        second.go.set()
        if isinstance(then, dict):
            assert await outward.once(claim(key), second) == then
        else:
            with pytest.raises(OutcomeUncertain):
                await outward.once(claim(key), second)
            assert second.count == 0


async def test_without_a_key_it_is_done_each_time(db: Database, tasks: Supervisor) -> None:
    outward, deed = Outward(db, ManualClock(), tasks), Deed()
    deed.go.set()
    assert [await outward.once(claim(None), deed) for _ in range(2)] == [{"n": 1}, {"n": 2}]
