"""Hermes's calls as frames: which call is a whole message, which a version of one, and which a tool's bubble.

Nothing marks a bubble but the form of the call: Hermes passes `reply_to=None`, with neither `notify` nor `expect_edits`
in the metadata. An answer has one of the two; commentary and cron do not pass `reply_to`, a notice passes a message.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .config import parse_target
from .files import FileRefused, Files, drop
from .link import SPOOLED, Frame, Verdict
from .spool import Spool, SpoolFull

MAX_TEXT = 100_000  # characters: in the worst encoding still below the link's 1 MiB
MAX_TITLE = 200
REMEMBERED = 256  # finished messages, bubbles and statuses that a late edit may still name
STALE_S = 5.0  # 0.22 announces the end of a turn before its last words
CRON_TITLE = re.compile(r"Cronjob Response: (.+)")

Metadata = Mapping[str, Any] | None

logger = logging.getLogger(__name__)


class Unset:
    """The caller did not pass `reply_to`."""


UNSET = Unset()


@dataclass(slots=True)
class Stream:
    chat_id: str
    thread_id: str | None
    reply_to: str | None


class Sender(Protocol):
    """The link, or what stands for it where another process owns it."""

    max_text: int | None

    async def keep(self, frame: Frame, file: Path | None = None) -> Verdict: ...
    def latest(self, key: tuple[str, str], frame: Frame) -> None: ...
    def forget(self, key: tuple[str, str]) -> None: ...
    def poke(self) -> None: ...


class Outbound:
    """What the agent says. Every verb returns the message's local id and the relay's verdict."""

    def __init__(self, spool: Spool, link: Sender, files: Files, home: str) -> None:
        self._spool, self._link, self._files, self._home = spool, link, files, home
        self._streams: dict[str, Stream] = {}
        self._finals = Recent()
        self._bubbles = Recent()
        self._statuses = Recent()
        self._typing: dict[str, str | None] = {}

    async def send(
        self, chat_id: str, text: str, reply_to: str | Unset | None = UNSET, metadata: Metadata = None,
        source: str | None = None,
    ) -> tuple[str, Verdict]:  # fmt: skip
        marks = metadata or {}
        chat_id, thread_id = target(chat_id, metadata)
        local_id = new_id()
        is_bubble = reply_to is None
        reply_to = None if isinstance(reply_to, Unset) else reply_to
        if marks.get("notify"):
            return await self._final(chat_id, thread_id, local_id, text, reply_to, source="reply")
        if marks.get("expect_edits"):
            try:
                await self._spool.do(Spool.begin_stream, local_id, chat_id, thread_id)
            except sqlite3.OperationalError as exc:
                logger.error("talaria: the spool cannot be written (%s)", exc)
            self._streams[local_id] = stream = Stream(chat_id, thread_id, reply_to)
            self._update(stream, local_id, text)
            return local_id, SPOOLED
        if is_bubble:
            self._bubbles.put(local_id, (thread_id, text))
            self._progress(chat_id, thread_id, local_id, text)
            return local_id, SPOOLED
        return await self._final(
            chat_id, thread_id, local_id, text, reply_to, source=source or source_of(marks), job=job_of(marks, text)
        )

    async def edit(
        self, chat_id: str, local_id: str, text: str, *, finalize: bool, metadata: Metadata = None
    ) -> tuple[str, Verdict]:
        if bubble := self._bubbles.get(local_id):
            thread_id, shown = bubble
            if text != shown:
                self._bubbles.put(local_id, (thread_id, text))
                self._progress(chat_id, thread_id, local_id, text)
            return local_id, SPOOLED
        stream = self._streams.get(local_id) or Stream(*target(chat_id, metadata), None)
        if finalize:
            return await self._final(chat_id, stream.thread_id, local_id, text, stream.reply_to, source="reply")
        self._update(stream, local_id, text)
        return local_id, SPOOLED

    async def status(self, chat_id: str, key: str, text: str, metadata: Metadata = None) -> str:
        """A passing line about the turn, as words (which 💬 marks in a bubble): Hermes says again by `send` what has to
        stay. The same key revises it."""
        name = f"{chat_id} {key}"
        local_id = self._statuses.get(name) or new_id()
        self._statuses.put(name, local_id)
        self._progress(chat_id, thread_of(metadata), local_id, f"💬 {text}")
        return local_id

    async def file(
        self, chat_id: str, path: str, caption: str | None = None, reply_to: str | None = None,
        metadata: Metadata = None, source: str | None = None,
    ) -> tuple[str, Verdict]:  # fmt: skip
        """A message with the file; if it may not be sent, one that says so, and the refusal."""
        marks, text, local_id = metadata or {}, caption or "", new_id()
        chat_id, thread_id = target(chat_id, metadata)
        try:
            waiting = await self._spool.do(Spool.files_bytes)
            copy = await asyncio.to_thread(self._files.copy, path, waiting)
        except FileRefused as exc:
            refusal = f"{text}\n\n⚠️ {exc}".strip()
            await self._final(chat_id, thread_id, local_id, refusal, source=source or source_of(marks))
            return local_id, Verdict(ok=False, code="file_refused", message=str(exc))
        found = await self._final(
            chat_id, thread_id, local_id, text, reply_to, source=source or source_of(marks),
            job=job_of(marks, text), file=copy,
        )  # fmt: skip
        if not found[1].ok:
            drop(copy)
        return found

    def typing(self, chat_id: str, on: bool, metadata: Metadata = None) -> None:
        if not on and chat_id not in self._typing:
            return  # Hermes stops it up to five times
        thread_id = thread_of(metadata) or self._typing.get(chat_id)
        if on:
            self._typing[chat_id] = thread_id
        else:
            self._typing.pop(chat_id)
        frame = {"type": "typing", "chat_id": chat_id, **thread(thread_id), "on": on}
        self._link.latest(("typing", f"{chat_id} {thread_id}"), frame)

    def begun(self, chat_id: str, thread_id: str | None) -> list[str]:
        """The half-written messages of a chat."""
        return [
            local_id for local_id, stream in self._streams.items()
            if (stream.chat_id, stream.thread_id) == (chat_id, thread_id)
        ]  # fmt: skip

    async def interrupt(self, local_ids: list[str]) -> None:
        """Close those of them that nobody has finished since: Hermes leaves one behind when a turn is stopped."""
        for local_id in local_ids:
            if self._streams.pop(local_id, None) is None:
                continue
            if await self._spool.do(Spool.interrupt, local_id):
                self._link.forget(("update", local_id))
                self._link.poke()

    async def report(self, frame: Frame, verdict: Verdict) -> None:
        """A refusal that came too late for its caller: into the home chat, unless that is what was refused."""
        if frame["type"] != "message" or frame["chat_id"] == self._home:
            return
        words = f"⚠️ A message for {frame['chat_id']} was not delivered: {verdict.message}\n\n{frame['text']}"
        await self._final(self._home, None, new_id(), words, source="notice", media=frame.get("media"))

    async def _final(
        self, chat_id: str, thread_id: str | None, local_id: str, text: str, reply_to: str | None = None,
        source: str = "reply", job: Frame | None = None, file: Path | None = None, media: list[str] | None = None,
    ) -> tuple[str, Verdict]:  # fmt: skip
        """Kept on disk, and the relay's word about it. The same last version twice is one."""
        if self._finals.get(local_id) == text:
            return local_id, Verdict(ok=True)
        self._streams.pop(local_id, None)
        self._link.forget(("update", local_id))
        verdict = Verdict(ok=True)
        limit = min(MAX_TEXT, self._link.max_text or MAX_TEXT)
        for index, part in enumerate(pieces(text, limit)):
            frame = {
                "type": "message", "chat_id": chat_id, **thread(thread_id),
                "local_id": local_id if index == 0 else new_id(), "text": part, "final": True,
                **({"reply_to": reply_to} if reply_to else {}),
                "media": media or [] if index == 0 else [], "source": source, **(job or {}),
            }  # fmt: skip
            try:
                verdict = await self._link.keep(frame, file if index == 0 else None)
            except SpoolFull as exc:
                return local_id, Verdict(ok=False, code="spool_full", message=str(exc))
            if not verdict.ok:
                return local_id, verdict
        self._finals.put(local_id, text)
        return local_id, verdict

    def _update(self, stream: Stream, local_id: str, text: str) -> None:
        frame = {
            "type": "update", "chat_id": stream.chat_id, **thread(stream.thread_id), "local_id": local_id,
            "text": text[:MAX_TEXT], **({"reply_to": stream.reply_to} if stream.reply_to else {}),
        }  # fmt: skip
        self._link.latest(("update", local_id), frame)

    def _progress(self, chat_id: str, thread_id: str | None, local_id: str, text: str) -> None:
        frame = {
            "type": "progress", "chat_id": chat_id, **thread(thread_id), "local_id": local_id, "text": text[:MAX_TEXT]
        }  # fmt: skip
        self._link.latest(("progress", local_id), frame)


class Recent(OrderedDict[str, Any]):
    """The last REMEMBERED entries."""

    def put(self, key: str, value: Any) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


def new_id() -> str:
    return uuid.uuid4().hex


def thread(thread_id: str | None) -> Frame:
    return {"thread_id": thread_id} if thread_id else {}


def thread_of(metadata: Metadata) -> str | None:
    value = (metadata or {}).get("thread_id")
    return str(value) if value else None


def target(chat_id: str, metadata: Metadata) -> tuple[str, str | None]:
    """0.19 takes `talaria:home:plans` of a cron job for a chat named `home:plans`."""
    found = None if thread_of(metadata) else parse_target(chat_id)
    return found or (chat_id, thread_of(metadata))


def source_of(marks: Mapping[str, Any]) -> str:
    if marks.get("job_id"):
        return "cron"
    return "reply" if marks.get("notify") else "notice"


def job_of(marks: Mapping[str, Any], text: str) -> Frame:
    """The job of a cron delivery, with its name where Hermes writes it before the text."""
    if not marks.get("job_id"):
        return {}
    named = CRON_TITLE.match(text)
    return {"job_id": str(marks["job_id"]), **({"title": named[1].strip()[:MAX_TITLE]} if named else {})}


def pieces(text: str, limit: int) -> list[str]:
    """At most `limit` characters each, cut at line ends where there are any in the last half; at least one."""
    found = []
    while len(text) > limit:
        cut = text.rfind("\n", limit // 2, limit) + 1 or limit
        found.append(text[:cut])
        text = text[cut:]
    return [*found, text]
