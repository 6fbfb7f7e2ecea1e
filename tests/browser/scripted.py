"""A relay that says what the test tells it to: the page is served as always, its socket is the test's.

For what the page must show whatever an agent asks, in any order; that the real relay says these things is for others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from playwright.async_api import Browser, Locator, Page, expect

from app.web import site
from tests.browser.watch import Watch
from tests.servers import serving

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Json], tuple[str, Json] | None]  # None: no answer

WAIT = 15.0  # seconds
DEVICE = "device-of-the-page"
PAIRED = f"""
if (location.protocol === "http:") {{
    localStorage.setItem("talaria.token", '"a-token"');
    localStorage.setItem("talaria.device_id", '"{DEVICE}"');
}}
"""
PHONE: Json = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


def refusal(code: str, message: str) -> tuple[str, Json]:
    return "error", {"code": code, "message": message, "layer": "relay", "retryable": False}


@dataclass
class ScriptedRelay:
    hello: Json = field(default_factory=dict)  # beside what every auth.ok has
    sessions: list[Json] = field(default_factory=list)
    rows: dict[str, list[Json]] = field(default_factory=dict)  # of a conversation
    answers: dict[str, Answer] = field(default_factory=dict)  # by type, where a test wants another one
    heard: list[Json] = field(default_factory=list)  # frames of the page
    url: str = ""
    head: int = 0  # of the mailbox
    _n: int = 0  # of the last event of the turn
    _sockets: set[WebSocket] = field(default_factory=set)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    # what the relay says

    async def say(self, type_: str, payload: Json, *, channel: str = "chat", kept: bool = False) -> None:
        """To every page. A kept frame has the next number."""
        frame: Json = {"channel": channel, "type": type_, "id": "x", "payload": payload}
        if kept:
            self.head += 1
            frame["seq"] = self.head
        for socket in list(self._sockets):
            await socket.send_text(json.dumps(frame))

    async def event(self, name: str, turn_id: str = "t", session_id: str = "s", **payload: Any) -> None:
        self._n += 1
        await self.say("stream.event", {
            "turn_id": turn_id, "session_id": session_id, "seq": self._n, "event": name, "payload": payload,
        })  # fmt: skip

    async def approval(self, id_: str, command: str, **fields: Any) -> None:
        await self.say("approval.request", approval(id_, command, **fields), kept=True)

    async def resolved(self, id_: str, outcome: str, **fields: Any) -> None:
        payload = {"approval_id": id_, "turn_id": "t", "outcome": outcome} | fields
        await self.say("approval.resolved", payload, kept=True)

    async def ask(self, id_: str, text: str, **fields: Any) -> None:
        await self.say("question.ask", question(id_, text, **fields), kept=True)

    async def hang_up(self) -> None:
        for socket in list(self._sockets):
            await socket.close(1012)

    # what the page says

    async def until(self, type_: str, count: int = 1) -> Json:
        """The payload of the `count`th frame of this type."""
        async with asyncio.timeout(WAIT), self._news:
            await self._news.wait_for(lambda: len(self.all(type_)) >= count)
        return self.all(type_)[count - 1]

    def all(self, type_: str) -> list[Json]:
        return [frame["payload"] for frame in self.heard if frame["type"] == type_]

    async def talk(self, socket: WebSocket) -> None:
        await socket.accept()
        try:
            while True:
                await self._take(socket, json.loads(await socket.receive_text()))
        except WebSocketDisconnect:
            pass
        finally:
            self._sockets.discard(socket)

    async def _take(self, socket: WebSocket, frame: Json) -> None:
        type_, payload = frame["type"], frame["payload"]
        if type_ == "auth":
            await self._open(socket, frame)
        elif (answer := self.answers.get(type_, self._answer(type_))(payload)) is not None:
            channel = "system" if answer[0] in ("error", "pong") else "chat"
            body = answer[1] | ({"ref": frame["id"]} if answer[0] == "error" else {})
            await socket.send_text(
                json.dumps({"channel": channel, "type": answer[0], "id": frame["id"], "payload": body})
            )
        self.heard.append(frame)
        async with self._news:
            self._news.notify_all()

    async def _open(self, socket: WebSocket, frame: Json) -> None:
        hello = {"session_token": "a-token", "epoch": "e", "head": self.head, "heartbeat_s": 30, "turns": []}
        for type_, payload in (("auth.ok", hello | self.hello), ("synced", {"epoch": "e", "head": self.head})):
            await socket.send_text(
                json.dumps({"channel": "system", "type": type_, "id": frame["id"], "payload": payload})
            )
        self._sockets.add(socket)

    def _answer(self, type_: str) -> Answer:
        listed = {"sessions": self.sessions, "limit": 50, "offset": 0, "has_more": False}
        usual: dict[str, Answer] = {
            "ping": lambda payload: ("pong", {"ts": payload["ts"]}),
            "chat.sessions.list": lambda _: ("chat.sessions", listed),
            "chat.sessions.messages": lambda payload: (
                "chat.sessions.messages",
                {
                    "session_id": payload["session_id"],
                    "messages": self.rows.get(payload["session_id"], []),
                    "offset": 0,
                },
            ),
        }
        return usual.get(type_, lambda _: None)


def approval(id_: str, command: str, **fields: Any) -> Json:
    now = time.time()
    return {
        "approval_id": id_, "turn_id": "t", "session_id": "s", "tool": "terminal", "summary": command,
        "choices": ["once", "session", "always", "deny"], "asked_at": now, "expires_at": now + 57, "state": "open",
    } | fields  # fmt: skip


def question(id_: str, text: str, **fields: Any) -> Json:
    now = time.time()
    return {
        "question_id": id_, "turn_id": "t", "session_id": "s", "text": text, "asked_at": now, "expires_at": now + 117,
    } | fields  # fmt: skip


@dataclass
class ScriptedPage:
    page: Page
    relay: ScriptedRelay
    watch: Watch

    async def open(self, *, began: bool = True) -> None:
        """Connected; with the turn `t` of the session `s` under way if `began`."""
        await self.page.goto(self.relay.url)
        await expect(self.page.locator(".status")).to_contain_text("Connected")
        if began:
            await self.begin()

    async def begin(self, said: str = "Tidy up, please") -> None:
        seen = len(self.relay.all("chat.send"))
        await self.page.get_by_label("Message", exact=True).fill(said)
        await self.page.get_by_role("button", name="Send").click()
        sent = await self.relay.until("chat.send", seen + 1)
        await self.relay.say("chat.accepted", {
            "client_msg_id": sent["client_msg_id"], "turn_id": "t", "session_id": "s", "position": 0,
        })  # fmt: skip
        await self.relay.event("run.started")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def cards(self) -> Locator:
        return self.page.locator(".ask")

    @property
    def outcomes(self) -> Locator:
        return self.page.locator(".outcome")

    @property
    def answer(self) -> Locator:
        return self.page.locator(".answer").last


def sent_by(phone: ScriptedPage, type_: str) -> list[str]:
    """Ids of the page's frames of this type."""
    return [frame["id"] for frame in phone.relay.heard if frame["type"] == type_]


@asynccontextmanager
async def scripted(browser: Browser, **options: Any) -> AsyncIterator[ScriptedPage]:
    """A paired page that has not been opened yet. Afterwards: no error, no violation, no request elsewhere."""
    relay = ScriptedRelay()
    app = FastAPI()
    app.include_router(site.router)
    app.add_api_websocket_route("/ws", relay.talk)
    async with serving(app) as port:
        relay.url = f"http://127.0.0.1:{port}"
        context = await browser.new_context(**(PHONE | options))
        await context.add_init_script(PAIRED)
        page = await context.new_page()
        watch = Watch(relay.url)
        await watch.over(page)
        yield ScriptedPage(page, relay, watch)
        await context.close()
    watch.verdict()
