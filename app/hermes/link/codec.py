"""Frames of the agent link, version 1: one JSON object each, whose `type` says which. No I/O.

Frames with an `n` are durable: numbered 1, 2, 3 … per spool, sent again until they are answered. The rest may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import BeforeValidator, Field, StringConstraints, TypeAdapter, ValidationError

from app.errors import FrameInvalid

VERSION = 1
MAX_FRAME = 1024 * 1024  # bytes
MAX_TEXT = 256 * 1024  # characters of one message, as the plugin is told
MAX_COMMANDS = 500
MAX_MEDIA = 16

Json = dict[str, Any]


def _blank(value: object) -> object:
    return None if value == "" else value


Id = Annotated[str, StringConstraints(min_length=1, max_length=256)]
OptionalId = Annotated[Id | None, BeforeValidator(_blank)]
Short = Annotated[str, StringConstraints(max_length=500)]
Number = Annotated[int, Field(ge=1, le=2**53)]
Tokens = Annotated[tuple[Id, ...], Field(max_length=MAX_MEDIA)]


# what the plugin says


@dataclass(frozen=True, slots=True)
class Command:
    name: Short
    description: Short = ""
    usage: Short | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame. `restarted`: the gateway is another process than the last one that said hello."""

    version: int
    spool: Id
    plugin: Short = ""
    hermes: Short = ""
    platform: Short = "talaria"
    commands: Annotated[tuple[Command, ...], Field(max_length=MAX_COMMANDS)] = ()
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message, or the last version of one that was streamed under the same `local_id`."""

    n: Number
    chat_id: Id
    local_id: Id
    text: str = ""
    thread_id: OptionalId = None
    reply_to: OptionalId = None
    media: Tokens = ()
    source: Literal["reply", "cron", "send_message", "notice"] = "reply"
    job_id: OptionalId = None
    title: Short | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """`timeout_s`: what is left of it now."""

    n: Number
    ask_id: Id
    kind: Literal["approval", "question", "confirm"]
    chat_id: Id
    text: str
    timeout_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    thread_id: OptionalId = None
    description: str | None = None
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AskClosed:
    """The agent went on, however it was answered."""

    n: Number
    ask_id: Id


@dataclass(frozen=True, slots=True)
class Done:
    """The turn or command of an inbound message is over."""

    n: Number
    inbound_id: Id
    outcome: Literal["success", "failure", "cancelled"] = "success"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The half-written message is closed as it stands."""

    n: Number
    chat_id: Id
    local_id: Id


@dataclass(frozen=True, slots=True)
class Update:
    """The whole text so far, cursor mark and all."""

    chat_id: Id
    local_id: Id
    text: str
    thread_id: OptionalId = None
    reply_to: OptionalId = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The whole text of a bubble that says what the agent does."""

    chat_id: Id
    local_id: Id
    text: str
    thread_id: OptionalId = None


@dataclass(frozen=True, slots=True)
class Typing:
    chat_id: Id
    on: bool
    thread_id: OptionalId = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Hermes has begun with it."""

    inbound_id: Id


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an `answer`. What Hermes says to it comes as a message."""

    answer_id: Id
    result: Literal["ok", "gone"]
    resolved: int = 1


@dataclass(frozen=True, slots=True)
class Commanded:
    """A command to a phone, by its name. `timeout_s`: how long its answer is waited for."""

    call_id: Id
    command: Short
    args: dict[str, Any] = field(default_factory=dict)
    device: OptionalId = None
    timeout_s: Annotated[float, Field(gt=0, le=300)] | None = None


Durable: TypeAlias = Message | Ask | AskClosed | Done | Interrupted
Passing: TypeAlias = Update | Progress | Typing | Taken
Frame: TypeAlias = Hello | Durable | Passing | Answered | Commanded

_ADAPTERS: dict[str, TypeAdapter[Frame]] = {
    name: TypeAdapter(kind)
    for name, kind in {
        "hello": Hello, "message": Message, "ask": Ask, "ask.closed": AskClosed, "done": Done,
        "interrupted": Interrupted, "update": Update, "progress": Progress, "typing": Typing, "taken": Taken,
        "answered": Answered, "command": Commanded,
    }.items()
}  # fmt: skip


class Unreadable(Exception):
    """A frame that cannot be taken. `n` is its number, if it is durable: then it has to be refused for good."""

    def __init__(self, error: FrameInvalid, type_: str, n: int | None) -> None:
        super().__init__(error.message)
        self.error, self.type, self.n = error, type_, n


def parse(raw: bytes) -> Frame:
    """Raises Unreadable. Fields that are not known are ignored: the plugin may be newer."""
    try:
        said = orjson.loads(raw)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        raise Unreadable(FrameInvalid("a frame must be a JSON object"), "", None)
    type_, n = said.get("type"), said.get("n")
    n = n if type(n) is int and 1 <= n <= 2**53 else None
    if not isinstance(type_, str) or type_ not in _ADAPTERS:
        raise Unreadable(FrameInvalid("this relay does not know such a frame"), str(type_)[:64], n)
    try:
        return _ADAPTERS[type_].validate_python(said)
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(FrameInvalid(f"{where}: {first['msg']}"), type_, n) from None


# what the relay says


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of a durable frame: taken, or refused for good with a code and a message for people."""

    message_id: str | None = None
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Inbound:
    """What a device says in a chat. `media` are {token, name, mime, size}."""

    inbound_id: str
    chat_id: str
    text: str
    chat_name: str
    thread_id: str | None = None
    reply_to: str | None = None
    user_id: str = "owner"
    user_name: str = "Owner"
    media: list[Json] = field(default_factory=list)


def welcome(relay_id: str, received: int, refused: list[Json]) -> bytes:
    """`refused`: recent refusals {n, code, message}, for a plugin that was cut off before it heard of them."""
    said = {"version": VERSION, "relay_id": relay_id, "received": received, "home": "home", "max_text": MAX_TEXT}
    return _dumps("welcome", said | {"refused": refused})


def refused(code: str, message: str) -> bytes:
    return _dumps("refused", {"code": code, "message": message, "version": VERSION})


def verdict(n: int, said: Verdict) -> bytes:
    if said.code is not None:
        return _dumps("no", {"n": n, "code": said.code, "message": said.message})
    return _dumps("ok", {"n": n} | ({} if said.message_id is None else {"message_id": said.message_id}))


def inbound(said: Inbound) -> bytes:
    fields = {name: getattr(said, name) for name in said.__slots__}
    return _dumps("inbound", {name: value for name, value in fields.items() if value is not None})


def answer(answer_id: str, ask_id: str, *, choice: str | None = None, text: str | None = None) -> bytes:
    said = {"answer_id": answer_id, "ask_id": ask_id, "choice": choice, "text": text}
    return _dumps("answer", {name: value for name, value in said.items() if value is not None})


def result(call_id: str, said: Json) -> bytes:
    """Of a command: {status, result, device_id}, or {code, message}."""
    return _dumps("result", {"call_id": call_id} | said)


def _dumps(type_: str, said: Json) -> bytes:
    return orjson.dumps({"type": type_} | said)
