"""The platform `talaria` of Hermes's messaging gateway: Hermes's calls become frames of the link, and frames calls.

What a phone may see and when is the relay's business; here is only translation. Signatures follow 0.19, and `**_` takes
what later versions add (tests/hermes_plugin compares them with 0.19, 0.20 and 0.22).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult

from . import asks
from .asks import Ask
from .config import HOME_CHAT, LinkConfig, hermes_home
from .files import Files
from .inbound import Inbound, Lane
from .link import Frame, Link, Verdict
from .outbound import MAX_TEXT, STALE_S, UNSET, Metadata, Outbound, Unset, thread, thread_of
from .spool import Spool, SpoolFull
from .standalone import sole_owner
from .version import PLUGIN_VERSION, commands, hermes_version

PLATFORM = "talaria"
WAIT_FOR_OWNER_S = 1.0
KINDS = {"image": "PHOTO", "video": "VIDEO", "audio": "AUDIO"}

logger = logging.getLogger(__name__)


class TalariaAdapter(BasePlatformAdapter):
    """Hermes makes one for each start of the platform and calls it on the gateway's loop alone."""

    MAX_MESSAGE_LENGTH = MAX_TEXT
    REQUIRES_EDIT_FINALIZE = True  # else a configuration without a cursor never says which version is the last
    supports_code_blocks = True

    def __init__(self, config: Any) -> None:
        super().__init__(config, Platform(PLATFORM))
        self._link_config = LinkConfig.read(config.extra)
        folder = hermes_home() / "talaria"
        self._spool = Spool(folder)
        self._files = Files(self._link_config, folder / "files")
        self._link = Link(
            self._link_config, self._spool, self._files,
            greeting=self._greeting, receive=self._receive, refused=self._refused,
        )  # fmt: skip
        self._out = Outbound(self._spool, self._link, self._files, self._link_config.home)
        self._in = Inbound(
            self._spool, self._link, self._files,
            ready=self._is_ready, give=self._give, queued=self._is_queued, asked=self._is_asked,
        )  # fmt: skip
        self._asks: dict[str, Ask] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # the life of the platform

    async def connect(self, *, is_reconnect: bool = False, **_: Any) -> bool:
        """True at once: while the relay is away the spool takes what Hermes says."""
        await self._spool.do(Spool.open)
        await self._spool.do(Spool.recover)
        self._spawn(self._keep_linked())
        self._mark_connected()
        return True

    async def _keep_linked(self) -> None:
        """Once this process owns the spool: `hermes send` may hold it for a moment, a second gateway for ever."""
        while True:
            with sole_owner(self._spool.folder, otherwise=True) as alone:
                if alone:
                    await self._link.run()
            logger.warning("talaria: another process of this Hermes home owns the link; waiting for it")
            await asyncio.sleep(WAIT_FOR_OWNER_S)

    async def disconnect(self) -> None:
        self._mark_disconnected()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._in.close()
        await self._files.close()
        await self._spool.shut()

    @property
    def authorization_is_upstream(self) -> bool:
        """The relay paired the device and checks its session; Hermes must not ask for a second pairing."""
        return True

    @classmethod
    def supports_exec_approval_buttons(cls) -> bool:
        return True

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        return {"name": "Home" if chat_id == HOME_CHAT else chat_id, "type": "dm"}

    # what the agent says

    async def send(
        self, chat_id: str, content: str, reply_to: str | Unset | None = UNSET, metadata: Metadata = None, **_: Any
    ) -> SendResult:
        await self._close_settled(chat_id)
        return _result(await self._out.send(str(chat_id), content, reply_to, metadata))

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, finalize: bool = False, metadata: Metadata = None,
        **_: Any,
    ) -> SendResult:  # fmt: skip
        await self._close_settled(chat_id)
        return _result(await self._out.edit(str(chat_id), message_id, content, finalize=finalize, metadata=metadata))

    async def send_or_update_status(
        self, chat_id: str, status_key: str, content: str, metadata: Metadata = None, **_: Any
    ) -> SendResult:
        return SendResult(True, await self._out.status(str(chat_id), str(status_key), content, metadata))

    async def send_private_notice(
        self, chat_id: str, user_id: str | None, content: str, reply_to: str | None = None, metadata: Metadata = None,
        **_: Any,
    ) -> SendResult:  # fmt: skip
        return await self.send(str(chat_id), content, metadata=metadata)

    async def send_typing(self, chat_id: str, metadata: Metadata = None, **_: Any) -> None:
        self._out.typing(str(chat_id), True, metadata)

    async def stop_typing(self, chat_id: str, **_: Any) -> None:
        self._out.typing(str(chat_id), False)

    async def send_image_file(
        self, chat_id: str, image_path: str, caption: str | None = None, reply_to: str | None = None,
        metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        return _result(await self._out.file(str(chat_id), image_path, caption, reply_to, metadata))

    async def send_document(
        self, chat_id: str, file_path: str, caption: str | None = None, file_name: str | None = None,
        reply_to: str | None = None, metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        return _result(await self._out.file(str(chat_id), file_path, caption, reply_to, metadata))

    async def send_video(
        self, chat_id: str, video_path: str, caption: str | None = None, reply_to: str | None = None,
        metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        return _result(await self._out.file(str(chat_id), video_path, caption, reply_to, metadata))

    async def send_voice(
        self, chat_id: str, audio_path: str, caption: str | None = None, reply_to: str | None = None,
        metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        return _result(await self._out.file(str(chat_id), audio_path, caption, reply_to, metadata))

    async def send_image(
        self, chat_id: str, image_url: str, caption: str | None = None, reply_to: str | None = None,
        metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        """A picture elsewhere stays there: the phone gets the address, and fetches it if its owner wants to."""
        text = f"{caption}\n{image_url}" if caption else image_url
        return await self.send(str(chat_id), text, metadata={**(metadata or {}), "notify": True})

    # what the agent asks

    async def send_exec_approval(
        self, chat_id: str, command: str, session_key: str, description: str = "dangerous command",
        metadata: Metadata = None, allow_permanent: bool = True, allow_session: bool = True, **_: Any,
    ) -> SendResult:  # fmt: skip
        choices = ["once", *(["session"] if allow_session else []), *(["always"] if allow_permanent else []), "deny"]
        return await self._ask(
            "approval", chat_id, session_key, "", metadata, choices,
            text=command, description=description, timeout_s=asks.approval_timeout(),
        )  # fmt: skip

    async def send_clarify(
        self, chat_id: str, question: str, choices: list[Any] | None, clarify_id: str, session_key: str,
        metadata: Metadata = None, **_: Any,
    ) -> SendResult:  # fmt: skip
        return await self._ask(
            "question", chat_id, session_key, clarify_id, metadata, [str(choice) for choice in choices or ()],
            text=question, timeout_s=asks.clarify_timeout(),
        )  # fmt: skip

    async def send_slash_confirm(
        self, chat_id: str, title: str, message: str, session_key: str, confirm_id: str, metadata: Metadata = None,
        **_: Any,
    ) -> SendResult:  # fmt: skip
        return await self._ask(
            "confirm", chat_id, session_key, confirm_id, metadata, ["once", "always", "cancel"],
            text=title, description=message, timeout_s=asks.confirm_timeout(),
        )  # fmt: skip

    async def _ask(
        self, kind: str, chat_id: str, session_key: str, hermes_id: str, metadata: Metadata, choices: list[str],
        **fields: Any,
    ) -> SendResult:  # fmt: skip
        """A refusal is reported as one, so that Hermes asks in words instead."""
        ask = Ask(uuid.uuid4().hex, kind, session_key, str(hermes_id), str(chat_id), thread_of(metadata))
        frame = {
            "type": "ask", "asked_at": time.time(), "ask_id": ask.ask_id, "kind": kind, "chat_id": ask.chat_id,
            **thread(ask.thread_id), **({"choices": choices} if choices else {}), **fields,
        }  # fmt: skip
        self._asks[ask.ask_id] = ask
        try:
            verdict = await self._link.keep(frame)
        except SpoolFull as exc:
            verdict = Verdict(ok=False, message=str(exc))
        if not verdict.ok:
            self._asks.pop(ask.ask_id, None)
            return SendResult(False, error=verdict.message)
        return SendResult(True, ask.ask_id)

    async def _close_settled(self, chat_id: str) -> None:
        """Hermes went on without the link's answer: it was typed, it expired, or the turn was stopped."""
        for ask in [ask for ask in self._asks.values() if ask.chat_id == str(chat_id)]:
            if not asks.still_open(ask) and self._asks.pop(ask.ask_id, None) is not None:
                await self._spool.do(Spool.close_ask, ask.ask_id)
                self._link.poke()

    # what comes over the link

    async def _receive(self, frame: Frame) -> None:
        match frame["type"]:
            case "inbound":
                await self._in.receive(frame)
            case "answer":
                self._spawn(self._answer(frame))
            case other:
                logger.debug("talaria: the relay sent %s, which this version does not know", other)

    async def _answer(self, frame: Frame) -> None:
        ask = self._asks.pop(str(frame.get("ask_id")), None)
        found = asks.Answered(0)
        if ask is not None:
            try:
                found = await asks.answer(ask, str(frame.get("choice") or frame.get("text") or ""))
            except Exception:
                logger.exception("talaria: Hermes could not take an answer")
            if resume := getattr(self, "resume_typing_for_chat", None):
                resume(ask.chat_id)
            await self._spool.do(Spool.close_ask, ask.ask_id)
        self._link.now(
            {
                "type": "answered", "answer_id": frame["answer_id"], "result": "ok" if found.resolved else "gone",
                "resolved": found.resolved, **({"text": found.text} if found.text else {}),
            }
        )  # fmt: skip
        self._link.poke()
        if ask is not None and found.text:
            await self.send(ask.chat_id, found.text, metadata={"notify": True, **thread(ask.thread_id)})

    async def _give(self, frame: Frame, media: list[tuple[str, str]]) -> MessageEvent:
        text = str(frame.get("text") or "")
        name = "COMMAND" if text.startswith("/") else "TEXT"
        if media:
            name = KINDS.get(media[0][1].partition("/")[0], "DOCUMENT")
        event = MessageEvent(
            text=text,
            message_type=MessageType[name],
            source=self.build_source(
                chat_id=str(frame["chat_id"]),
                chat_name=frame.get("chat_name") or "Home",
                chat_type="dm",
                user_id=str(frame.get("user_id") or "owner"),
                user_name=frame.get("user_name") or "owner",
                thread_id=frame.get("thread_id"),
                message_id=str(frame["inbound_id"]),
            ),
            message_id=str(frame["inbound_id"]),
            media_urls=[path for path, _ in media],
            media_types=[mime for _, mime in media],
            reply_to_message_id=frame.get("reply_to"),
        )
        await self.handle_message(event)
        return event

    async def on_processing_start(self, event: MessageEvent) -> None:
        await self._in.started(event.message_id, _lane(event))

    async def on_processing_complete(self, event: MessageEvent, outcome: Any) -> None:
        await self._close_settled(_lane(event)[0])
        self._spawn(self._after_turn(event, str(getattr(outcome, "value", outcome)), asyncio.current_task()))

    async def _after_turn(self, event: MessageEvent, outcome: str, turn: asyncio.Task[Any] | None) -> None:
        """Hermes calls the hook inside the turn's task and frees the conversation at its very end: a message that came
        between the two would be joined with the next, or interrupt it."""
        lane = _lane(event)
        if turn is not None:
            await asyncio.wait({turn})
        await self._in.ended(event.message_id, lane, outcome)
        if begun := self._out.begun(*lane):
            await asyncio.sleep(STALE_S)
            await self._out.interrupt(begun)

    async def _refused(self, frame: Frame, verdict: Verdict) -> None:
        logger.warning("talaria: the relay refused a %s (%s): %s", frame["type"], verdict.code, verdict.message)
        # Not in the reader: it has to hear the answer to what is reported.
        self._spawn(self._out.report(frame, verdict))

    def _is_ready(self) -> bool:
        return not getattr(self.gateway_runner, "_startup_restore_in_progress", False)

    def _is_queued(self, event: Any) -> bool:
        return any(waiting is event for waiting in getattr(self, "_pending_messages", {}).values())

    def _is_asked(self, lane: Lane) -> bool:
        return any((ask.chat_id, ask.thread_id) == lane for ask in self._asks.values())

    def _greeting(self) -> Frame:
        return {
            "plugin": PLUGIN_VERSION, "hermes": hermes_version(), "platform": PLATFORM, "commands": commands()
        }  # fmt: skip

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_complain)


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("talaria: a task failed", exc_info=failure)


def _lane(event: MessageEvent) -> Lane:
    thread_id = getattr(event.source, "thread_id", None)
    return str(event.source.chat_id), str(thread_id) if thread_id else None


def _result(found: tuple[str, Verdict]) -> SendResult:
    local_id, verdict = found
    if verdict.ok:
        return SendResult(True, local_id)
    return SendResult(False, error=verdict.message, retryable=False)
