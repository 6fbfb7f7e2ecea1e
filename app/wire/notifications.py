"""Payloads of what the apps of a phone post on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from app.wire.payloads import DeviceId, Payload

# Characters. With these and MAX_LIMIT a page fits a frame, also where JSON needs six bytes for each.
MAX_TEXT = 4096
MAX_LINE = 512
MAX_PACKAGE = 256
MAX_LIMIT = 100
MAX_MS = 2**53  # what every JSON reader can hold


def _cut(value: str | None, limit: int) -> str | None:
    """Apps put whole mails into a notification, and its phone cannot do anything about a refusal."""
    return value if value is None or len(value) <= limit else value[: limit - 1] + "…"


Text = Annotated[str | None, AfterValidator(lambda value: _cut(value, MAX_TEXT))]
Line = Annotated[str | None, AfterValidator(lambda value: _cut(value, MAX_LINE))]
Key = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE)]


class NotificationPosted(Payload):
    """`posted_at` in milliseconds by the phone's clock; `key` is Android's, the same for each version of it."""

    package_name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_PACKAGE)]
    key: Key
    title: Line = None
    text: Text = None
    sub_text: Line = None
    posted_at: int | None = Field(None, ge=0, le=MAX_MS)


class NotificationRemoved(Payload):
    key: Key


class NotificationsList(Payload):
    """Without a `cursor`: the newest."""

    limit: int = Field(50, ge=1, le=MAX_LIMIT)
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")] | None = None
    device_id: DeviceId | None = None
