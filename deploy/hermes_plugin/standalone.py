"""Sending without a gateway in this process: `hermes send`, and cron that runs by itself.

Whoever holds the lock beside the spool owns the link. No gateway running: the lock is free, so this process links up
itself for as long as the sending takes. Otherwise the message goes into the spool, and the gateway sends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .config import ConfigError, LinkConfig, hermes_home
from .files import Files
from .link import SPOOLED, VERDICT_S, Frame, Link, Verdict
from .outbound import Outbound
from .spool import Spool
from .version import PLUGIN_VERSION, commands, hermes_version

LINK_UP_S = 5.0
LOOK_EVERY_S = 0.1

logger = logging.getLogger(__name__)


async def send_standalone(
    pconfig: Any, chat_id: str, message: str, *, thread_id: str | None = None, media_files: Any = None,
    force_document: bool = False, **_: Any,
) -> dict[str, Any]:  # fmt: skip
    """Hermes's contract: `{"success": True, "message_id"}` or `{"error"}`. What the relay could not be asked about yet
    is a success: it is on disk and goes out with the next link."""
    try:
        config = LinkConfig.read(getattr(pconfig, "extra", None))
    except ConfigError as exc:
        return {"error": str(exc)}
    folder = hermes_home() / "talaria"
    spool, files = Spool(folder), Files(config, folder / "files")
    await spool.do(Spool.open)
    try:
        with sole_owner(folder) as alone:
            if not alone:
                return await _send(
                    Outbound(spool, Bag(spool), files, config.home), chat_id, message, thread_id, media_files
                )
            link = Link(config, spool, files, greeting=_greeting, receive=_ignore, refused=_log)
            running = asyncio.create_task(link.run())
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINK_UP_S):
                        await link.up.wait()
                return await _send(Outbound(spool, link, files, config.home), chat_id, message, thread_id, media_files)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    finally:
        await files.close()
        await spool.shut()


async def _send(out: Outbound, chat_id: str, message: str, thread_id: str | None, media_files: Any) -> dict[str, Any]:
    metadata = {"thread_id": thread_id} if thread_id else None
    found = []
    if message.strip():
        found.append(await out.send(str(chat_id), message, metadata=metadata, source="send_message"))
    for path, _ in media_files or ():
        found.append(await out.file(str(chat_id), path, metadata=metadata, source="send_message"))
    for _, verdict in found:
        if not verdict.ok:
            return {"error": verdict.message}
    if not found:
        return {"error": "there is nothing to send"}
    spooled = any(verdict.spooled for _, verdict in found)
    note = {"note": "the relay is away; the message is kept and goes out when it is back"} if spooled else {}
    return {"success": True, "message_id": found[0][0], **note}


class Bag:
    """Stands for the link where another process owns it: into the spool, and look until that process has settled it."""

    max_text: int | None = None

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    async def keep(self, frame: Frame, file: Path | None = None) -> Verdict:
        n = await self._spool.do(Spool.append, frame, file)
        with suppress(TimeoutError):
            async with asyncio.timeout(VERDICT_S):
                while await self._spool.do(Spool.waits, n):  # noqa: ASYNC110 - the event is in another process
                    await asyncio.sleep(LOOK_EVERY_S)
                refusal = await self._spool.do(Spool.refusal, n)
                return Verdict(ok=refusal is None, code="refused", message=refusal or "")
        return SPOOLED

    def forget(self, key: tuple[str, str]) -> None:
        """Nothing droppable passes here."""

    def latest(self, key: tuple[str, str], frame: Frame) -> None:
        """Nothing droppable passes here."""

    def poke(self) -> None:
        """The owner looks by itself."""


@contextmanager
def sole_owner(folder: Path, otherwise: bool = False) -> Iterator[bool]:
    """Whether the spool is this process's to send from, until the end of the block or, by the kernel, of the process.
    `otherwise` is the answer where there are no such locks (Windows)."""
    try:
        import fcntl
    except ImportError:
        yield otherwise
        return
    with (folder / "lock").open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def _greeting() -> Frame:
    return {"plugin": PLUGIN_VERSION, "hermes": hermes_version(), "platform": "talaria", "commands": commands()}


async def _ignore(frame: Frame) -> None:
    """A phone's message is not for this process: it is not `taken`, so the gateway gets it."""


async def _log(frame: Frame, verdict: Verdict) -> None:
    logger.warning("talaria: the relay refused a %s (%s): %s", frame["type"], verdict.code, verdict.message)
