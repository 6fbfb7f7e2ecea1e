"""Approvals and questions: who asks them, and who answers.

An answer is stored as being given before it is sent, so that it is sent at most once; what became of one that was cut
off is not known, and it is not sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

from app.approvals import frames, store
from app.approvals.ask import Ask, Asker, Json, Kind, outcome
from app.approvals.course import Course
from app.approvals.errors import (
    ApprovalClosed,
    ApprovalExpired,
    ApprovalUnknown,
    ApprovalWaiting,
    ChoiceUnknown,
    QuestionClosed,
    QuestionExpired,
    QuestionUnknown,
)
from app.approvals.register import Entry, State
from app.clock import Clock, Sleep
from app.db import Database
from app.delivery.keep import Bell
from app.errors import OutcomeUncertain, RelayError
from app.hermes.errors import StreamBroken, UpstreamFailed, UpstreamInvalid, UpstreamUnreachable
from app.once.keys import Claim, key_of
from app.once.outward import Outward
from app.tasks import Supervisor

log = logging.getLogger("talaria.approvals")

ANSWER_S = 30.0  # an upstream that does not confirm an answer for so long may have it or not
_MAYBE_SENT = (OutcomeUncertain, StreamBroken, UpstreamFailed, UpstreamInvalid, TimeoutError)
_UNKNOWN: dict[Kind, type[RelayError]] = {"approval": ApprovalUnknown, "question": QuestionUnknown}
_EXPIRED: dict[Kind, type[RelayError]] = {"approval": ApprovalExpired, "question": QuestionExpired}
_CLOSED: dict[Kind, type[RelayError]] = {"approval": ApprovalClosed, "question": QuestionClosed}

Send = Callable[[Asker], Awaitable[str]]  # → the outcome


class Approvals:
    """Bound to the event loop. What is asked beyond the bounds of register.py is not shown, and times out upstream."""

    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, bell: Bell, outward: Outward,
        sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._outward = db, clock, outward
        self._course = Course(db, clock, tasks, bell, sleep)
        self._register = self._course.register
        self._echoes: Counter[str] = Counter()  # by turn: answers of ours that its events may still tell of

    async def recover(self) -> None:
        """Before serving. Nothing that was being answered is sent again."""
        now = self._clock.now()
        self._course.restore(await self._db.read(lambda tx: store.unsettled(tx, now)))
        await self._course.ledger.settled()

    async def close(self) -> None:
        """What has become of asks is stored; whatever is open stays so."""
        await self._course.ledger.settled()
        self._course.stop()

    # whoever asks

    def asked(self, ask: Ask, asker: Asker) -> None:
        """Store it and keep it for every device, in the order of the calls. What cannot be shown is logged."""
        self._course.begin(ask, asker)

    def passed(self, turn_id: str, tool_id: str | None = None) -> None:
        """The agent went on, of one tool or (None) altogether: it does not wait for these any more."""
        for entry in self._register.of_turn(turn_id):
            if tool_id is None or entry.tool_id == tool_id:
                self._course.go_on(entry)

    def answered(self, turn_id: str) -> None:
        """The oldest approval of this turn has an answer: ours, before or after that is confirmed, or another's."""
        if self._echoes[turn_id] > 0:
            self._echoes[turn_id] -= 1
        elif (oldest := self._register.oldest(turn_id, self._clock)) is not None:
            self._course.go_on(oldest)

    def ended(self, turn_id: str) -> None:
        self.passed(turn_id)
        self._echoes.pop(turn_id, None)

    def adopt(self, turn_id: str, asker: Asker) -> None:
        """After a restart: who takes the answers to what this turn has asked."""
        for entry in self._register.of_turn(turn_id):
            entry.asker = asker

    def abandon_others(self, turn_ids: Collection[str]) -> None:
        """After a restart: what other turns than these have asked, nobody could take an answer to."""
        for entry in self._register:
            if entry.live and entry.turn_id is not None and entry.turn_id not in turn_ids:
                self._course.close(entry, "resolved_elsewhere", blocks=True)

    # asks without a turn: known by the lane they are in, and their upstream's own id

    async def knows(self, lane: str, ref: str) -> bool:
        if any(entry.lane == lane and entry.ref == ref for entry in self._register):
            return True
        return await self._db.read(lambda tx: store.is_known(tx, lane, ref))

    async def stored(self) -> None:
        """Returns when what was asked and closed so far is stored, or the database takes nothing now."""
        await self._course.ledger.settled()

    def passed_by(self, prefix: str, ref: str | None = None) -> None:
        """Nobody waits any more for that one (None: for any) in lanes that begin so."""
        for entry in self._register:
            if entry.lane.startswith(prefix) and ref in (None, entry.ref):
                self._course.go_on(entry)

    def adopt_by(self, prefix: str, asker: Callable[[str], Asker]) -> None:
        """After a restart: who takes the answers, by the upstream's own id."""
        for entry in self._register:
            if entry.lane.startswith(prefix) and entry.asker is None:
                entry.asker = asker(entry.ref or "")

    def open_all(self, prefix: str, kind: Kind) -> dict[str, str]:
        """Lane that begins so → the id of the one that an answer there would reach."""
        found = [e for e in self._register if e.lane.startswith(prefix) and e.kind == kind and e.shown]
        return {entry.lane: entry.id for entry in reversed(found) if entry.state is State.OPEN}

    def open_in(self, lane: str, kind: Kind) -> str | None:
        return self.open_all(lane, kind).get(lane)

    def is_open(self, id: str) -> bool:
        return any(entry.id == id and entry.live for entry in self._register)

    # looking

    def of_turn(self, turn_id: str) -> list[Json]:
        """What is open or waits, as `approval.request` and `question.ask` payloads, in the order of asking."""
        return frames.fitting([e.as_payload() for e in self._register.of_turn(turn_id) if e.shown and e.live])

    def open(self) -> tuple[list[Json], list[Json]]:
        """(approvals, questions) of all turns, likewise."""
        shown = [entry for entry in self._register if entry.shown and entry.live]
        approvals = [entry.as_payload() for entry in shown if entry.kind == "approval"]
        questions = [entry.as_payload() for entry in shown if entry.kind == "question"]
        return frames.fitting(approvals), frames.fitting(questions)

    def waiting(self) -> dict[str, int]:
        """How many approvals and questions wait for an answer."""
        kinds = [entry.kind for entry in self._register if entry.shown and entry.live]
        return {kind: kinds.count(kind) for kind in ("approval", "question")}

    # answering

    async def respond(self, device_id: str, approval_id: str, choice: str, key: str | None) -> Json:
        """The `approval.resolved` payload; the same for a copy with this key.

        Raises ApprovalUnknown, ApprovalWaiting, ApprovalExpired, ApprovalClosed, ChoiceUnknown, IdReused,
        OutcomeUncertain, StorageFull, and what says that the answer was surely not sent.
        """
        said = {"approval_id": approval_id, "choice": choice}
        claim = Claim(device_id, "approval.respond", key_of("approval.respond", said, key), said)
        return await self._outward.once(claim, lambda: self._respond(device_id, approval_id, choice))

    async def answer(self, device_id: str, question_id: str, answer: str, key: str | None) -> Json:
        """The `question.closed` payload. Raises as `respond`; any text will do."""
        said = {"question_id": question_id, "answer": answer}
        claim = Claim(device_id, "question.answer", key_of("question.answer", said, key), said)
        return await self._outward.once(claim, lambda: self._answer(device_id, question_id, answer))

    async def _respond(self, device_id: str, approval_id: str, choice: str) -> Json:
        entry = await self._answerable(approval_id, "approval")
        if choice not in entry.payload["choices"]:
            raise ChoiceUnknown()
        if entry.state is State.WAITING:
            raise ApprovalWaiting()
        if entry.asker is not None and entry.tool_id is not None and not await entry.asker.waits_for(entry.tool_id):
            self._course.go_on(entry)
        entry = await self._answerable(approval_id, "approval")  # much may have happened meanwhile
        gives = "denied" if choice in ("deny", "cancel") else "allowed"

        async def send(asker: Asker) -> str:
            return gives if await self._decide(entry.turn_id, asker, choice) else "expired"

        return await self._send(entry, device_id, choice, send)

    async def _decide(self, turn_id: str | None, asker: Asker, choice: str) -> int:
        """What was surely not taken has no echo."""
        if turn_id is None:
            return await asker.decide(choice)
        self._echoes[turn_id] += 1
        try:
            resolved = await asker.decide(choice)
        except _MAYBE_SENT:
            raise
        except RelayError:
            self._echoes[turn_id] -= self._echoes[turn_id] > 0
            raise
        self._echoes[turn_id] -= resolved == 0 and self._echoes[turn_id] > 0
        return resolved

    async def _answer(self, device_id: str, question_id: str, answer: str) -> Json:
        entry = await self._answerable(question_id, "question")

        async def send(asker: Asker) -> str:
            return "answered" if await asker.answer(entry.ref or "", answer) else "expired"

        return await self._send(entry, device_id, answer, send)

    async def _answerable(self, id: str, kind: Kind) -> Entry:
        """Open or waiting, and in time. An answer that is under way is waited for: it may turn out not to be sent."""
        while (entry := self._register.get(id, kind)) is not None and entry.state is State.ANSWERING:
            await entry.answered.wait()
        if entry is None:
            became = await self._db.read(lambda tx: store.outcome_of(tx, id, kind))
            raise (_UNKNOWN if became is None else _EXPIRED if became == "expired" else _CLOSED)[kind]()
        if entry.live and entry.is_late(self._clock):
            self._course.expire(entry)
        if not entry.live:
            raise (_EXPIRED if entry.outcome == "expired" else _CLOSED)[kind]()
        return entry

    async def _send(self, entry: Entry, by: str, said: str, send: Send) -> Json:
        """From here to the outcome nothing else touches the entry."""
        asker = entry.asker
        if asker is None:
            raise UpstreamUnreachable("the agent that asked has not been found again yet; try again shortly")
        await self._begin(entry, by, said)
        try:
            async with asyncio.timeout(min(ANSWER_S, entry.left_s(self._clock))):
                became = await send(asker)
        except _MAYBE_SENT as exc:
            log.warning("an answer may have arrived or not", extra={"ask": entry.id, "reason": repr(exc)})
            became = "uncertain"
        except RelayError as exc:
            log.info("an answer was not sent", extra={"ask": entry.id, "code": exc.code})
            await self._take_back(entry)
            raise
        except Exception:
            log.exception("an answer may have arrived or not", extra={"ask": entry.id})
            became = "uncertain"
        is_uncertain = became == "uncertain"
        await self._course.close(entry, became, said, by, blocks=is_uncertain and not entry.passed)
        return outcome(entry.kind, entry.id, entry.turn_id, became, said, by)

    async def _begin(self, entry: Entry, by: str, said: str) -> None:
        """Store that it is being answered. Whatever this raises, nothing is sent."""
        entry.state = State.ANSWERING
        entry.answered.clear()
        try:
            was_open = await self._course.ledger.write(lambda tx: store.answering(tx, entry.id, said, by))
        except RelayError:
            self._course.reopen(entry)
            raise
        if not was_open or entry.passed or entry.is_late(self._clock):  # the last two while it was stored
            await self._take_back(entry)
            raise (_CLOSED if not was_open or entry.passed else _EXPIRED)[entry.kind]()

    async def _take_back(self, entry: Entry) -> None:
        """Stored before anybody may answer again: else a crash would find it open while that next answer is sent."""
        stored = asyncio.Event()
        self._course.ledger.put(lambda tx: store.reopen(tx, entry.id), stored=stored.set, lost=stored.set)
        await stored.wait()
        self._course.reopen(entry)
