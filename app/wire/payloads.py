"""Payloads of the channels, checked where a handler receives them (never per event)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

MAX_TTL_S = 10 * 365 * 86400
MAX_DEPTH = 32  # of what is passed on as it came


class Payload(BaseModel):
    """Unknown fields are ignored: clients may be newer than this relay."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


def _absent(value: object) -> object:
    """Older clients send a word where they have no id."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "unknown", "none", "null") else value


DeviceId = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")
]
MAX_LABEL = 120  # characters; a device cannot do anything about a refusal of what it is called
Label = Annotated[str, AfterValidator(lambda value: value.strip()[:MAX_LABEL].rstrip())]
Key = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def _blank(value: object) -> object:
    return None if value == "" else value


def _not_blank(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("blank", "it is empty")  # older clients show this to their owner
    return value


def check_depth(value: object, levels: int = MAX_DEPTH) -> object:
    """The value. Raises ValueError: JSON may be read deeper than it can be written."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not levels and inner:
        raise ValueError(f"it may be nested {MAX_DEPTH} deep")
    for one in inner:
        check_depth(one, levels - 1)
    return value


Metadata = Annotated[dict[str, Any] | None, BeforeValidator(check_depth)]
OptionalId = Annotated[Id | None, BeforeValidator(_blank)]


class Supports(Payload):
    delivery: int = 0
    turns: int = 0
    typed_stream_events: bool = False
    event_schema_version: int = 1


class Resume(Payload):
    """Where the device's own copy of its mailbox ends."""

    epoch: str | None = None
    after: int | None = Field(None, ge=0)
    id: str | None = None


class Auth(Payload):
    """`system/auth`, and the body of `POST /pairing/redeem`."""

    pairing_code: Annotated[str | None, Field(max_length=64), BeforeValidator(_blank)] = None
    session_token: Annotated[str | None, Field(max_length=4096), BeforeValidator(_blank)] = None
    refresh_token: Annotated[str | None, Field(max_length=4096), BeforeValidator(_blank)] = None
    device_id: Annotated[DeviceId | None, BeforeValidator(_absent)] = None
    device_name: Label | None = None
    device_model: Label | None = None
    device_platform: Label | None = None
    client_surface: Label | None = None
    device_form_factor: Label | None = None
    supports: Annotated[Supports, BeforeValidator(lambda value: {} if value is None else value)] = Supports()
    instance: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    resume: Resume | None = None


class SessionRenew(Payload):
    """`session.renew`, and the body of `POST /session/renew`."""

    refresh_token: Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class Ack(Payload):
    epoch: str
    seq: int = Field(ge=0)


class Sync(Payload):
    after: int | None = Field(None, ge=0)


class Presence(Payload):
    foreground: bool


class PushKeys(Payload):
    """As a browser's subscription has them, base64url."""

    p256dh: str = Field(max_length=256)
    auth: str = Field(max_length=64)


class PushRegister(Payload):
    """Where this device can be woken. `endpoint` is a URL or a registration token; the relay makes ntfy's topics."""

    provider: Annotated[str, StringConstraints(min_length=1, max_length=32)]
    endpoint: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    keys: PushKeys | None = None


class PushUnregister(Payload):
    """Without a `target_id`: all of the device."""

    target_id: Id | None = None


class TextPart(Payload):
    type: Literal["text"]
    text: str


class ImageUrl(Payload):
    """What Hermes takes; a file of its host is none of a phone's business."""

    url: Annotated[str, StringConstraints(pattern=r"^(?i:https?://|data:image/)")]


class ImagePart(Payload):
    type: Literal["image_url"]
    image_url: ImageUrl


class MediaPart(Payload):
    type: Literal["media"]
    media_id: Id


class ChatSend(Payload):
    session_id: Id | None = None
    message: Annotated[
        str | Annotated[list[TextPart | ImagePart | MediaPart], Field(min_length=1)], BeforeValidator(_not_blank)
    ]
    model: str | None = None
    profile: str | None = None
    client_msg_id: Key | None = None


class ChatWatch(Payload):
    session_id: Id | None = None
    turn_id: Id | None = None


class ChatStop(Payload):
    turn_id: Id


class ProactiveReply(Payload):
    """What the owner answers to a `phone.message`."""

    text: Annotated[str, StringConstraints(pattern=r"\S")]
    chat_id: OptionalId = None
    reply_to: OptionalId = None
    message_id: Annotated[Key | None, BeforeValidator(_blank)] = None
    client_msg_id: Annotated[Key | None, BeforeValidator(_blank)] = None
    ts: float | None = Field(None, ge=0, le=1e15)  # the client's own clock, in milliseconds
    metadata: Metadata = None


class ProactiveCancel(Payload):
    message_id: Key


class NewMessage(Payload):
    """The body of `POST /messages` and `POST /phone/message`; the last three are for older clients."""

    text: Annotated[str, StringConstraints(pattern=r"\S")]
    title: Annotated[str, StringConstraints(max_length=500)] | None = None
    device_id: Annotated[DeviceId | None, BeforeValidator(_blank)] = Field(
        None, description="one device; otherwise every device that takes messages, but not the sender"
    )
    chat_id: OptionalId = None
    thread_id: OptionalId = None
    kind: Literal["message", "cron"] = "message"
    wake: bool = Field(True, description="push to a device that sleeps")
    ttl_seconds: int | None = Field(None, le=MAX_TTL_S, description="not shown any more after this; at most 10 years")
    message_id: Annotated[Key | None, BeforeValidator(_blank)] = Field(
        None, description="the caller's own id; also the key of a copy if there is no Idempotency-Key"
    )
    reply_to: OptionalId = None
    surfacing: Annotated[str, StringConstraints(max_length=64)] | None = None
    metadata: Metadata = None


class RegisterMedia(Payload):
    """The body of `POST /media/register`."""

    path: str
    content_type: str
    file_name: str | None = None
    sensitive: bool | None = Field(None, description="a device hides it until its owner asks for it")
