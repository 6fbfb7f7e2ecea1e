"""The commands of the bridge as tools: made of its one table, so a command that is added there is a tool."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from mcp_types import CallToolResult, ContentBlock

from app.bridge.commands import COMMANDS, Command
from app.bridge.errors import CommandUnsupported
from app.bridge.service import Answer, Bridge
from app.mcp.errors import NoPicture, PhoneRefused
from app.mcp.marks import failed, marked, picture, said, untrusted
from app.mcp.tool import DATA, Arguments, Tool
from app.media.service import PICTURES, Media
from app.media.sniff import HEAD, picture_type

HIDDEN = {"apps", "setup"}  # what older tools call: an older name, and nothing at all
LOOKS = {"find_nodes", "describe_node", "diff_screen", "search_contacts", "wait"}  # POST, and change nothing
CALLER = "mcp"
MAX_PICTURE = 16 * 1024 * 1024  # bytes; a screen as PNG has about 3 MB
DEVICE = {
    "type": "string",
    "description": "which phone, by its id or its name as devices lists them; not needed where there is one",
}
ASKS = " The owner is asked for consent first, unless they have lifted that, and may refuse."
_TOKEN = re.compile(r"(?:MEDIA:)?hermes-relay://([\w-]{8,128})")
_CODE = re.compile(r"[a-z0-9_]{1,64}")
_NAME = re.compile(r"\w{1,64}", re.ASCII)


class Commands:
    def __init__(self, bridge: Bridge, media: Media) -> None:
        self._bridge, self._media = bridge, media

    def tools(self) -> Iterator[Tool]:
        return (self._tool(command) for command in COMMANDS if command.name not in HIDDEN)

    def _tool(self, command: Command) -> Tool:
        async def run(arguments: Arguments, _: str) -> CallToolResult:
            own = {name: value for name, value in arguments.items() if name != "device"}
            try:
                answer = await self._bridge.ask(command, own, device=arguments.get("device"), caller=CALLER)
            except CommandUnsupported as exc:  # in the phone's own words
                return failed(CommandUnsupported(), marked("the phone", exc.message))
            return await self._told(command, answer)

        schema = command.schema()
        return Tool(
            name=command.name,
            description=f"{command.summary}.{ASKS * command.destructive}{DATA * command.untrusted}",
            properties=schema["properties"] | {"device": DEVICE}, required=tuple(schema["required"]), run=run,
            reads=command.method == "GET" or command.name in LOOKS, destroys=command.destructive,
        )  # fmt: skip

    async def _told(self, command: Command, answer: Answer) -> CallToolResult:
        if answer.status >= 400:
            return refused(answer)
        if command.name == "screenshot":
            return CallToolResult(content=await self._screenshot(answer.result))
        if command.untrusted or holds_text(answer.result):
            return untrusted(f"the phone ({command.name})", answer.result)
        return said(answer.result)

    async def _screenshot(self, result: dict[str, Any]) -> list[ContentBlock]:
        """Uploaded to this relay and named by its token, or in the answer itself. Raises NoPicture, MediaUnknown."""
        for name, value in result.items():
            if isinstance(value, str) and (found := await self._picture(name, value)) is not None:
                return picture("the screen of the phone", *found)
        raise NoPicture()

    async def _picture(self, name: str, value: str) -> tuple[str, bytes] | None:
        token = _TOKEN.search(value)
        if token is not None:
            return await self._uploaded(token[1])
        if name in ("token", "media_token"):
            return await self._uploaded(value)
        return inline_picture(value)

    async def _uploaded(self, token: str) -> tuple[str, bytes]:
        opened = await self._media.fetch(token)
        try:
            if opened.mime not in PICTURES or opened.file.size > MAX_PICTURE:
                raise NoPicture("the phone uploaded something that is no picture, or too large for one")
            return opened.mime, await self._media.read(opened.file, 0, opened.file.size)
        finally:
            opened.file.close()


def refused(answer: Answer) -> CallToolResult:
    """The phone says why, in words that may quote its screen."""
    given = answer.result.get("error_code")
    code = f", {given}" if isinstance(given, str) and _CODE.fullmatch(given) else ""
    return failed(PhoneRefused(f"the phone did not do it ({answer.status}{code})"), marked("the phone", answer.result))


def inline_picture(value: str) -> tuple[str, bytes] | None:
    """(type, bytes) of base64 or a `data:` URL that begins like a picture."""
    text = value.partition(";base64,")[2] if value.startswith("data:") else value
    try:
        head = base64.b64decode(text[: HEAD * 2], validate=True)
        mime = picture_type(head)
        if mime not in PICTURES or len(text) > MAX_PICTURE * 4 // 3:
            return None
        return str(mime), base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def holds_text(value: Any) -> bool:
    """Whether there are words in it that the phone may have read somewhere."""
    if isinstance(value, dict):
        return any(not _NAME.fullmatch(name) or holds_text(item) for name, item in value.items())
    if isinstance(value, list):
        return any(holds_text(item) for item in value)
    return isinstance(value, str)
