"""How the end of a turn is found whose stream brought none: by its upstream where that knows, else by the history."""

from __future__ import annotations

import logging

from app.errors import RelayError
from app.hermes.errors import StreamBroken, UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from app.hermes.lease import session_of
from app.hermes.upstream import Followed, Hearer
from app.turns import store
from app.turns.ends import Rooms
from app.turns.errors import TurnInterrupted, TurnUncertain
from app.turns.history import Verdict, judge, restate
from app.turns.state import Event
from app.turns.turn import Turn
from app.wire.sse import EventTooLong

log = logging.getLogger("talaria.turns")

NO_NEWS_S = 30 * 60.0  # without a new row: then nothing will come any more
AWAY_S = 120.0  # an upstream that is gone for so long, while the history can be read, has lost its turn
UNSEEN_S = 120.0  # without our own row, where Hermes never answered the submit


class Settlement:
    def __init__(self, turn: Turn, rooms: Rooms, hearer: Hearer) -> None:
        self._turn, self._rooms, self._hearer = turn, rooms, hearer
        self._away_since: float | None = None  # while the upstream cannot be reached at all
        self._said_away = False

    async def reach(self) -> None:
        """Return when the turn has an end."""
        turn, clock = self._turn, self._rooms.clock
        pause, longest = turn.bound.upstream.poll_s
        began = news_at = clock.monotonic()
        last_row = 0
        self._rooms.hermes.rows.forget(turn.bound.lease.session_id)
        while True:
            await self._rooms.sleep(pause)
            pause = min(pause * 1.5, longest)
            followed = await self._follow()
            if turn.state.finish is not None:
                return await self.complete()
            verdict, now = await self._look(), clock.monotonic()
            if verdict is not None and verdict.last_row > last_row:
                last_row, news_at = verdict.last_row, now
            if followed is Followed.RUNNING:
                news_at = now
            if self._away_since is not None and now - self._away_since >= AWAY_S:
                followed = Followed.GONE
            if verdict is not None and self._decide(verdict, followed, patient=now - began < UNSEEN_S):
                return None
            if now - news_at >= NO_NEWS_S:
                return self._conclude("uncertain", TurnUncertain(), verdict)

    async def look_for_end(self) -> bool:
        """Whether the history has the end of a turn that says nothing; then it has its end now."""
        verdict = await self._look() if self._turn.sent else None
        if verdict is None or not verdict.completed or self._turn.state.finish is not None:
            return False
        self._conclude("completed", None, verdict)
        return True

    async def complete(self) -> None:
        """The end was heard, but not all before it: the history has the rest."""
        verdict = await self._look()
        if verdict is not None and verdict.rows:
            self._restate(verdict)

    async def _follow(self) -> Followed | None:
        """None: it could not be asked."""
        turn, bond = self._turn, self._turn.bound
        away_since, self._away_since = self._away_since, None
        try:
            return await bond.upstream.follow(bond.lease, turn.order, self._hearer)
        except (StreamBroken, UpstreamInvalid, EventTooLong) as exc:
            log.warning("a stream broke off again", extra={"turn": turn.turn_id, "code": exc.code})
        except UpstreamError as exc:
            log.info("a turn cannot be followed", extra={"turn": turn.turn_id, "code": exc.code})
            if isinstance(exc, UpstreamUnreachable) and not isinstance(exc, UpstreamTimeout):
                self._away_since = self._rooms.clock.monotonic() if away_since is None else away_since
            self._say_away(exc)
        return None

    def _say_away(self, exc: UpstreamError) -> None:
        if not self._said_away:
            self._said_away = True
            said = {"code": exc.code, "message": exc.message}
            self._turn.publish([self._turn.state.emit("run.waiting", said)])

    async def _look(self) -> Verdict | None:
        """What the rows say now. None: they cannot be read."""
        turn, hermes, lease = self._turn, self._rooms.hermes, self._turn.bound.lease
        try:
            earlier = await self._rooms.db.read(lambda tx: store.messages(tx, lease.since))
            rows = await hermes.messages(turn.state.session_id, lease.profile)
        except RelayError as exc:
            log.info("the history cannot be read", extra={"turn": turn.turn_id, "code": exc.code})
            return None
        if (where := session_of(rows)) is not None and where != turn.state.session_id:
            turn.follow(where)
        return judge(rows, lease.last_row, earlier, turn.sent)

    def _decide(self, verdict: Verdict, followed: Followed | None, *, patient: bool) -> bool:
        if verdict.completed:
            self._conclude("completed", None, verdict)
        elif followed is Followed.GONE and verdict.rows is None:
            self._conclude("uncertain", TurnUncertain(), verdict)
        elif followed is Followed.GONE:
            self._conclude("interrupted", TurnInterrupted(), verdict)
        elif verdict.rows is None and followed is not Followed.RUNNING and not self._turn.answered and not patient:
            self._conclude("uncertain", TurnUncertain(), verdict)
        else:
            return False
        return True

    def _conclude(self, finish: str, error: RelayError | None, verdict: Verdict | None) -> None:
        if verdict is not None and verdict.rows is not None:
            self._restate(verdict)
        if finish == "interrupted" and self._turn.state.stopping:
            finish, error = "stopped", None
        self._turn.finish(finish, error)

    def _restate(self, verdict: Verdict) -> None:
        """The state is replaced by what is stored; who cannot take a snapshot gets what the text grew by."""
        turn = self._turn
        before, turn.state.gap = str(turn.state.text), False
        restate(turn.state, verdict.rows or (), completed=verdict.completed)
        after = str(turn.state.text)
        missing: list[Event] = []
        if after != before and after.startswith(before) and turn.state.finish is None:
            missing = [turn.state.emit("assistant.delta", {"delta": after[len(before) :]})]
        turn.publish(missing)
        turn.watchers.resnapshot()
