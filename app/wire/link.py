"""One link's life without I/O: frames and time in, actions out. Owns no socket, clock or task.

Whoever drives it carries out each action before it hands over the next message, the verifying of a credential too:
messages that come meanwhile wait with the driver, so there is one place to bound.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from app.errors import FrameInvalid, FrameOutOfTurn, RelayError
from app.wire import close
from app.wire.envelope import Envelope

MAX_BEFORE_AUTH = 64 * 1024  # bytes: a credential needs no more, and strangers get no more of our memory
MAX_MESSAGE = 16 * 1024 * 1024  # bytes, transport limit after auth
INVALID_ALLOWED = 20  # refused frames …
INVALID_SECONDS = 10.0  # … within this long; one more and the client is broken or hostile


class Phase(Enum):
    AWAITING_AUTH = auto()
    VERIFYING = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Verify:
    frame: Envelope


@dataclass(frozen=True, slots=True)
class Deliver:
    frame: Envelope


@dataclass(frozen=True, slots=True)
class Refuse:
    error: RelayError
    ref: str | None


@dataclass(frozen=True, slots=True)
class Close:
    """End the link; `error`, where there is one, is told first."""

    code: int
    reason: str
    error: RelayError | None = None
    ref: str | None = None


Action: TypeAlias = Verify | Deliver | Refuse | Close


class Link:
    def __init__(self) -> None:
        self.phase = Phase.AWAITING_AUTH
        self._invalid: deque[float] | None = None  # made when needed: most links never send a bad frame

    def receive(self, raw: bytes, now: float, *, is_text: bool = True) -> Action:
        if self.phase is Phase.CLOSED:
            return Close(close.NORMAL, "closed")
        if self.phase is not Phase.OPEN and len(raw) > MAX_BEFORE_AUTH:
            return self._close(Close(close.TOO_BIG, "message too big before auth"))
        try:
            if not is_text:
                raise FrameInvalid("binary frames are not part of this protocol")
            frame = Envelope.parse(raw)
        except FrameInvalid as exc:
            return self._refuse_invalid(exc, now)
        is_auth = frame.type == "auth" and frame.channel == "system"
        if self.phase is Phase.OPEN:
            return Refuse(FrameOutOfTurn("this link is authenticated already"), frame.id) if is_auth else Deliver(frame)
        if self.phase is Phase.AWAITING_AUTH and is_auth:
            self.phase = Phase.VERIFYING
            return Verify(frame)
        error = FrameOutOfTurn("the first frame must be system/auth")
        return self._close(Close(close.PROTOCOL_BROKEN, error.code, error, frame.id))

    def opened(self) -> None:
        """The credential was accepted."""
        self.phase = Phase.OPEN

    def closed(self) -> None:
        self.phase = Phase.CLOSED

    def _refuse_invalid(self, error: FrameInvalid, now: float) -> Action:
        if self.phase is not Phase.OPEN:
            return self._close(Close(close.PROTOCOL_BROKEN, error.code, error, error.ref))
        if self._invalid is None:
            self._invalid = deque(maxlen=INVALID_ALLOWED + 1)
        self._invalid.append(now)
        if len(self._invalid) > INVALID_ALLOWED and now - self._invalid[0] <= INVALID_SECONDS:
            return self._close(Close(close.PROTOCOL_BROKEN, "too many invalid frames", error, error.ref))
        return Refuse(error, error.ref)

    def _close(self, action: Close) -> Close:
        self.phase = Phase.CLOSED
        return action
