"""A phone for tests that can be asked to do things: a real socket, a small screen, and a will of its own.

It answers as the Android app does, whose registry decides what it can do: an unknown path is a 404 that says so, and
what its owner switched off is a 403.
"""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed

from app.bridge.commands import COMMANDS
from tests.phone import OLDER, WAIT, Frame, Phone
from tests.relay import RunningRelay

Json = dict[str, Any]
Reply = tuple[Any, Any]  # status, result
STATUS: Json = {
    "device": {"name": "Pixel 9", "battery_percent": 81, "screen_on": True, "flavor": "sideload"},
    "bridge": {"device_control_supported": True, "master_enabled": True, "accessibility_granted": True},
    "capabilities": {"schema_version": 1, "permanent": ["contacts_read"], "timed": {}, "unlimited": []},
    "screen_on": True, "battery": 81, "accessibility_enabled": True, "ts": 1740000000000,
}  # fmt: skip
APPS = {"com.android.chrome": "Chrome", "com.example.notes": "Notes", "com.hermes.app": "Hermes"}
CONTACTS = [{"name": "Ada Lovelace", "number": "+44 20 7946 0001"}, {"name": "Bob", "number": "+44 20 7946 0002"}]
SIZE = (108, 240)  # pixels


def png(width: int = SIZE[0], height: int = SIZE[1]) -> bytes:
    """A real picture: one row of colours after the other."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((y % 256, 96, 160)) * width for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@dataclass(eq=False)
class PhoneSimulator:
    """One socket of one phone. `heard` are the commands that came, in order; `replies` replaces what it answers to a
    path; `silent` lets it answer nothing.
    """

    phone: Phone
    url: str
    heard: list[Json] = field(default_factory=list)
    replies: dict[str, Callable[[Json], Reply]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # paths that its owner has switched off
    silent: bool = False
    uploads: bool = True  # screenshots go to the relay's files, as the app does; else they come inside the answer
    app: str = "com.hermes.app"
    typed: str = ""
    clipboard: str = ""
    taken: int = 0  # of `heard`, by `command`
    came: asyncio.Event = field(default_factory=asyncio.Event)
    known: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def device_id(self) -> str:
        return str(self.phone.auth["device_id"])

    async def status(self, **more: Any) -> None:
        """Say that it can be asked; returns when the relay knows."""
        id = await self.phone.send("bridge", "bridge.status", STATUS | more)
        self.known.clear()
        await self.phone.send("system", "ping", {"ts": id})
        async with asyncio.timeout(WAIT):
            await self.known.wait()

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """It has said its status, and answers."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.run())
            try:
                await self.status()
                yield
            finally:
                running.cancel()

    async def run(self) -> None:
        """Answer until the socket is gone."""
        with suppress(ConnectionClosed):
            while True:
                frame = Frame.parse(await self.phone.socket.recv())
                self.phone.frames.append(frame)
                if frame.type == "pong":
                    self.known.set()
                elif frame.type == "bridge.command":
                    self.heard.append(frame.payload)
                    self.came.set()
                    if not self.silent:
                        await self.respond(frame.payload["request_id"], *await self.do(frame.payload))

    async def respond(self, request_id: str, status: Any, result: Any) -> None:
        said = {"request_id": request_id, "status": status, "result": result}
        await self.phone.send("bridge", "bridge.response", said)

    async def command(self) -> Json:
        """The next command that this was not asked for yet."""
        async with asyncio.timeout(WAIT):
            while len(self.heard) <= self.taken:
                self.came.clear()
                await self.came.wait()
        self.taken += 1
        return self.heard[self.taken - 1]

    # what it does

    async def do(self, command: Json) -> Reply:
        method, path, body = command["method"], command["path"], command["body"]
        if path in self.replies:
            return self.replies[path](body)
        if (method, path) not in {(known.method, known.path) for known in COMMANDS}:
            return 404, {"error": f"unknown bridge path '{path}'"}
        if path in self.refused:
            return 403, {"error": "Bridge capability is not granted", "error_code": "bridge_capability_denied"}
        if path == "/screenshot":
            return 200, await self._screenshot()
        if (method, path) == ("GET", "/clipboard"):
            return 200, {"text": self.clipboard}
        does = getattr(self, "_" + re.sub(r"\W", "_", path.strip("/")), None)
        try:
            reply: Reply = does(body) if does is not None else (200, {"ok": True})
        except (KeyError, TypeError, AttributeError):
            return 400, {"error": "a parameter is missing or of another type"}
        return reply

    def _nodes(self) -> list[Json]:
        nodes = [{"nodeId": "w0:0", "text": APPS[self.app], "className": "android.widget.TextView", "clickable": False}]
        if self.app == "com.example.notes":
            nodes.append({
                "nodeId": "w0:1", "text": self.typed, "className": "android.widget.EditText", "clickable": True,
            })  # fmt: skip
        return [node | {"bounds": [0, 20 * n, SIZE[0], 20 * n + 20]} for n, node in enumerate(nodes)]

    def _ping(self, body: Json) -> Reply:
        return 200, {"status": "ok", "phone_connected": True, "accessibilityService": True}

    def _screen(self, body: Json) -> Reply:
        nodes = self._nodes()
        if body.get("include_bounds") == "false":
            nodes = [{name: value for name, value in node.items() if name != "bounds"} for node in nodes]
        return 200, {"packageName": self.app, "nodes": nodes}

    def _find_nodes(self, body: Json) -> Reply:
        wanted = str(body.get("text", "")).lower()
        found = [node for node in self._nodes() if wanted in node["text"].lower()]
        return 200, {"matches": found, "count": len(found)}

    def _describe_node(self, body: Json) -> Reply:
        found = [node for node in self._nodes() if node["nodeId"] == body.get("nodeId")]
        return (200, found[0]) if found else (404, {"error": f"node not found: {body.get('nodeId')}"})

    def _screen_hash(self, body: Json) -> Reply:
        return 200, {"hash": f"{zlib.crc32(str(self._nodes()).encode()):08x}", "node_count": len(self._nodes())}

    def _current_app(self, body: Json) -> Reply:
        return 200, {"package": self.app}

    def _get_apps(self, body: Json) -> Reply:
        return 200, {"apps": [{"package": p, "label": label} for p, label in APPS.items()], "count": len(APPS)}

    _apps = _get_apps

    def _open_app(self, body: Json) -> Reply:
        if body.get("package") not in APPS:
            return 404, {"error": f"no launch intent for package '{body.get('package')}'"}
        self.app = body["package"]
        return 200, {"ok": True, "package": self.app}

    def _return_to_hermes(self, body: Json) -> Reply:
        return self._open_app({"package": "com.hermes.app"})

    def _type(self, body: Json) -> Reply:
        self.typed = ("" if body.get("clearFirst") else self.typed) + body["text"]
        return 200, {"ok": True, "typed": body["text"]}

    def _clipboard(self, body: Json) -> Reply:
        self.clipboard = body["text"]
        return 200, {"ok": True}

    def _tap(self, body: Json) -> Reply:
        return 200, {"ok": True, "echo": body}

    def _location(self, body: Json) -> Reply:
        return 200, {"latitude": 51.5072, "longitude": -0.1276, "accuracy": 12, "provider": "fused"}

    def _search_contacts(self, body: Json) -> Reply:
        found = [one for one in CONTACTS if str(body.get("query", "")).lower() in one["name"].lower()]
        return 200, {"contacts": found, "count": len(found)}

    async def _screenshot(self) -> Json:
        if not self.uploads:
            return {"image": base64.b64encode(png()).decode(), "width": SIZE[0], "height": SIZE[1]}
        async with httpx.AsyncClient() as http:
            answer = await http.post(
                f"{self.url}/media/upload",
                headers={"Authorization": f"Bearer {self.phone.token}"},
                files={"file": ("screenshot.png", png(), "image/png")},
            )
        return {"media": f"MEDIA:hermes-relay://{answer.json()['token']}"}


@asynccontextmanager
async def simulated(relay: RunningRelay, **auth: Any) -> AsyncIterator[PhoneSimulator]:
    """A phone that has connected and said its status, and answers. It pairs as a new device unless it has a token."""
    about = {"device_name": "Pixel Test", "device_form_factor": "phone", "client_surface": "android", "supports": OLDER}
    phone = await relay.connect(**(about | auth))
    simulator = PhoneSimulator(phone, relay.url)
    async with simulator.answering():
        yield simulator
