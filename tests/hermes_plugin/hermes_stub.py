"""The names of Hermes that the plugin uses, so that it runs here. What the real ones are like is in interface.json
(compared with the plugin by test_interface.py) and in tests/hermes, on a real Hermes."""

from __future__ import annotations

import asyncio
import enum
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Platform(enum.Enum):
    TALARIA = "talaria"


class MessageType(enum.Enum):
    TEXT = "text"
    COMMAND = "command"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    DOCUMENT = "document"


class ProcessingOutcome(enum.Enum):
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass
class SendResult:
    success: bool
    message_id: str | None = None
    error: str | None = None
    retryable: bool = False


@dataclass
class MessageEvent:
    text: str
    message_type: MessageType = MessageType.TEXT
    source: Any = None
    message_id: str | None = None
    media_urls: list[str] = field(default_factory=list)
    media_types: list[str] = field(default_factory=list)
    reply_to_message_id: str | None = None


@dataclass
class PlatformConfig:
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class PlatformEntry:
    name: str
    parse_target_ref_fn: Any = None


class BasePlatformAdapter:
    """A turn is what the test does between `begin` and `end`; with `in_place` Hermes answers without one,
    and with `queues` as well it keeps the message for a later one.
    """

    gateway_runner: Any = None

    def __init__(self, config: PlatformConfig, platform: Platform) -> None:
        self.config, self.platform = config, platform
        self.given: list[MessageEvent] = []
        self.gave = asyncio.Condition()
        self.in_place = self.queues = False
        self._pending_messages: dict[str, MessageEvent] = {}

    def build_source(self, **fields: Any) -> types.SimpleNamespace:
        return types.SimpleNamespace(**fields)

    async def handle_message(self, event: MessageEvent) -> None:
        async with self.gave:
            self.given.append(event)
            if self.queues:
                self._pending_messages["key"] = event
            self.gave.notify_all()
        if not self.in_place:
            await self.on_processing_start(event)

    async def next_given(self, count: int) -> MessageEvent:
        async with asyncio.timeout(10), self.gave:
            await self.gave.wait_for(lambda: len(self.given) >= count)
        return self.given[count - 1]

    async def end(self, event: MessageEvent, released: asyncio.Event | None = None) -> None:
        """As a turn's task does: the hook, and only at its very end the conversation is free."""

        async def turn() -> None:
            await self.on_processing_complete(event, ProcessingOutcome.SUCCESS)
            if released is not None:
                await released.wait()

        task = asyncio.create_task(turn())
        if released is None:
            await task

    async def on_processing_start(self, event: MessageEvent) -> None: ...
    async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None: ...
    def resume_typing_for_chat(self, chat_id: str) -> None: ...
    def _mark_connected(self) -> None: ...
    def _mark_disconnected(self) -> None: ...


class Asks:
    """What Hermes waits for: session keys of approvals, ids of questions, `{key: confirm_id}`."""

    def __init__(self) -> None:
        self.approvals: list[str] = []
        self.questions: dict[str, str] = {}
        self.confirms: dict[str, str] = {}
        self.answers: list[tuple[str, str]] = []

    def resolve_gateway_approval(self, session_key: str, choice: str) -> int:
        if session_key not in self.approvals:
            return 0
        self.approvals.remove(session_key)
        self.answers.append((session_key, choice))
        return 1

    def has_blocking_approval(self, session_key: str) -> bool:
        return session_key in self.approvals

    def resolve_gateway_clarify(self, clarify_id: str, response: str) -> bool:
        known = clarify_id in self.questions.values()
        self.questions = {key: one for key, one in self.questions.items() if one != clarify_id}
        self.answers.append((clarify_id, response))
        return known

    def get_pending_for_session(self, session_key: str, *, include_choice_prompts: bool = False) -> Any:
        found = self.questions.get(session_key)
        return types.SimpleNamespace(clarify_id=found) if found else None

    async def resolve(self, session_key: str, confirm_id: str, choice: str) -> str | None:
        self.confirms.pop(session_key)
        self.answers.append((confirm_id, choice))
        return f"done: {choice}"

    def get_pending(self, session_key: str) -> dict[str, str] | None:
        found = self.confirms.get(session_key)
        return {"confirm_id": found} if found else None


@contextmanager
def installed(home: Path, asks: Asks) -> Iterator[None]:
    """As modules, for as long as the block lasts."""

    def cache_media_bytes(data: bytes, *, filename: str, mime_type: str) -> Any:
        path = home / "cache" / "documents" / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return types.SimpleNamespace(path=str(path), media_type=mime_type)

    contents: dict[str, dict[str, Any]] = {
        "gateway": {},
        "gateway.config": {"Platform": Platform},
        "gateway.platform_registry": {"PlatformEntry": PlatformEntry},
        "gateway.platforms": {},
        "gateway.platforms.base": {
            "BasePlatformAdapter": BasePlatformAdapter, "MessageEvent": MessageEvent, "MessageType": MessageType,
            "SendResult": SendResult, "cache_media_bytes": cache_media_bytes,
            "MEDIA_DELIVERY_SAFE_ROOTS": (home / "cache" / "images",),
        },
        "hermes_cli": {"__version__": "0.19.0"},
        "hermes_cli.commands": {
            "COMMAND_REGISTRY": [
                types.SimpleNamespace(name="new", description="Start anew", args_hint="[name]", cli_only=False),
                types.SimpleNamespace(name="quit", description="Leave", args_hint="", cli_only=True),
            ],
            "is_gateway_known_command": lambda name: True,
        },
        "hermes_constants": {"get_hermes_home": lambda: home},
        "tools": {},
        "tools.approval": {
            "resolve_gateway_approval": asks.resolve_gateway_approval,
            "has_blocking_approval": asks.has_blocking_approval, "_get_approval_config": lambda: {"timeout": 60},
        },
        "tools.clarify_gateway": {
            "resolve_gateway_clarify": asks.resolve_gateway_clarify,
            "get_pending_for_session": asks.get_pending_for_session, "get_clarify_timeout": lambda: 3600,
        },
        "tools.slash_confirm": {
            "resolve": asks.resolve, "get_pending": asks.get_pending, "DEFAULT_TIMEOUT_SECONDS": 300,
        },
    }  # fmt: skip
    for name, members in contents.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in [*contents, *(name for name in sys.modules if name.startswith("deploy.hermes_plugin"))]:
            del sys.modules[name]
