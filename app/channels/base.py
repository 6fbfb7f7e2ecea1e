"""How a frame finds its handler: the one table, and the only check of grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from app.clock import Clock
from app.delivery.peer import Peer, granted
from app.errors import GrantMissing, PayloadInvalid, RelayError, UnknownChannel, UnknownType
from app.wire.envelope import Envelope, encode

H = TypeVar("H", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call:
    """One received frame, and who sent it."""

    peer: Peer
    frame: Envelope

    def answer(self, type_: str, payload: Mapping[str, Any], *, channel: str | None = None) -> None:
        """Send a frame with the id of the one received."""
        self.peer.send(encode(channel or self.frame.channel, type_, payload, id=self.frame.id))

    def refuse(self, error: RelayError) -> None:
        self.peer.send(refusal_to(self.peer, error, self.frame))


def refusal(error: RelayError, ref: str | None) -> bytes:
    """`system/error`: every refusal looks like this."""
    payload: dict[str, Any] = {
        "code": error.code, "message": error.message, "layer": error.layer, "retryable": error.retryable, "ref": ref,
    }  # fmt: skip
    if error.retry_after is not None:
        payload["retry_after"] = error.retry_after
    return encode("system", "error", payload, id=ref)


def refusal_to(peer: Peer, error: RelayError, frame: Envelope) -> bytes:
    """As the client understands it: one that knows no turns waits for the end of its `chat.send` in the chat."""
    if (frame.channel, frame.type) == ("chat", "chat.send") and not peer.supports.turns:
        return encode("chat", "chat.error", {"message": error.message, "code": error.code}, id=frame.id)
    return refusal(error, frame.id)


def receives(type_: str, model: type[BaseModel] | None, *, needs_grant: bool = True) -> Callable[[H], H]:
    """Marks a method `(self, payload: model, call: Call) -> None`, plain or async, as the handler of a type.

    Without a model the payload is passed as it came. A handler ends after its database work; what waits for an
    upstream or another frame runs as a task of its room. What a device only tells of itself need not need the
    channel's grant.
    """

    def mark(handler: H) -> H:
        handler.__receives__ = (type_, model, needs_grant)  # type: ignore[attr-defined]
        return handler

    return mark


class Channel:
    """One channel of the wire. Subclasses mark their handlers with `receives`."""

    name: ClassVar[str]
    grant: ClassVar[str | None]  # None: open to every paired device

    @classmethod
    def types(cls) -> dict[str, tuple[str, type[BaseModel] | None, bool]]:
        """Type → (method name, payload model, whether it needs the grant)."""
        marked = (
            (name, getattr(getattr(cls, name), "__receives__", None)) for name in dir(cls) if not name.startswith("__")
        )
        return {mark[0]: (name, *mark[1:]) for name, mark in marked if mark is not None}


# By type: the method, the model of its payload, and the grant it needs.
Handlers: TypeAlias = dict[str, tuple[Callable[..., Any], type[BaseModel] | None, str | None]]


def _handlers(channel: Channel) -> Handlers:
    return {
        type_: (getattr(channel, method), model, channel.grant if needs_grant else None)
        for type_, (method, model, needs_grant) in channel.types().items()
    }


class Dispatch:
    """Every frame of every link passes here."""

    def __init__(self, channels: Iterable[Channel], clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[str, tuple[str | None, Handlers]] = {}
        for channel in channels:
            self.add(channel)

    @property
    def channels(self) -> set[str]:
        """Their names."""
        return set(self._routes)

    def add(self, channel: Channel) -> None:
        """Channels of one name share it: each has types of its own, under the same grant. Raises ValueError."""
        grant, before = self._routes.get(channel.name, (channel.grant, {}))
        handlers = _handlers(channel)
        if doubled := handlers.keys() & before.keys():
            raise ValueError(f"two channels receive {channel.name}/{sorted(doubled)[0]}")
        if grant != channel.grant:
            raise ValueError(f"two channels called {channel.name} need different grants")
        self._routes[channel.name] = (grant, before | handlers)

    def replace(self, channel: Channel) -> None:
        """Instead of whatever has its name."""
        self._routes[channel.name] = (channel.grant, _handlers(channel))

    def __call__(self, frame: Envelope, peer: Peer) -> Awaitable[None] | None:
        """Runs a plain handler at once and returns the awaitable of an async one. Raises RelayError."""
        route = self._routes.get(frame.channel)
        if route is None:
            raise UnknownChannel(f"there is no channel {frame.channel!r}")
        grant, handlers = route
        function, model, grant = handlers.get(frame.type, (None, None, grant))
        if grant is not None and not granted(peer.grants, grant, self._clock.now()):
            raise GrantMissing(f"{frame.channel} is not granted to this device, or the grant has expired")
        if function is None:
            raise UnknownType(f"{frame.channel} has no type {frame.type!r}")
        if model is None:
            return function(frame.payload, Call(peer, frame))  # type: ignore[no-any-return]
        try:
            payload = model.model_validate(frame.payload)
        except ValidationError as exc:
            raise PayloadInvalid(describe(exc)) from None
        result: Awaitable[None] | None = function(payload, Call(peer, frame))
        return result


def describe(exc: ValidationError) -> str:
    """Where and why, without the value: it may be private."""
    parts = [
        f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}"
        for e in exc.errors(include_input=False, include_url=False)[:3]
    ]
    return "; ".join(parts)
