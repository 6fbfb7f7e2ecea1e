"""Payloads of `message`, as the history has them and as they are kept for devices. Pure."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from app.delivery.drafts import Draft as Kept
from app.delivery.drafts import fitting
from app.hermes.link import codec
from app.threads import policy
from app.threads.store import Lane
from app.threads.streams import Draft

MAX_REASONING = 8 * 1024  # bytes of it in a kept frame; the history has all

Json = dict[str, Any]


def message_id(spool: str, local_id: str) -> str:
    """The same for every version of a message, however often it comes."""
    return f"msg-{hashlib.sha256(orjson.dumps([spool, local_id])).hexdigest()[:24]}"


def payload_of(frame: codec.Message, id: str, lane: Lane, text: str, media: list[Json], now: float) -> Json:
    title: str | None = frame.title
    if frame.source == "cron":
        named, text = policy.split_cron(text)
        title = title or named
    reasoning, text = policy.split_reasoning(text)
    said = {
        "message_id": id, **lane.as_json(), "text": text, "title": title, "reasoning": reasoning,
        "media": media or None, "reply_to": frame.reply_to, "job_id": frame.job_id, "source": frame.source,
        "sent_at": now,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def kept_of(said: Json, lane: Lane, source: str, *, wake: bool = True) -> Kept:
    names = ("media", "reply_to", "job_id", "interrupted", "edited", "reasoning")
    extra: Json = {name: said[name] for name in names if name in said}
    if (reasoning := extra.get("reasoning")) is not None:
        extra["reasoning"] = fitting(reasoning, MAX_REASONING)
        if extra["reasoning"] != reasoning:
            extra["truncated"] = True
    return Kept(
        text=said["text"], title=said.get("title"), device_id=lane.device_id, chat_id=lane.chat_id,
        thread_id=lane.thread_id or None, kind="cron" if source == "cron" else "message", source=source, wake=wake,
        message_id=said["message_id"], extra=extra,
    )  # fmt: skip


def closed(draft: Draft, now: float, *, interrupted: bool) -> Json:
    """A half-written message as it stands."""
    said = {"message_id": draft.message_id, **draft.lane.as_json(), "text": draft.text, "source": "reply"}
    said |= {"reply_to": draft.reply_to} if draft.reply_to else {}
    return said | ({"interrupted": True} if interrupted else {}) | {"sent_at": now}
