"""The relay's end of the agent link, as the protocol page has it, and nothing behind it: a real server that remembers
what it was told, and says what the test lets it say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.servers import serving

TOKEN = "made-up-link-token"
WAIT_S = 10.0

Frame = dict[str, Any]


class ScriptedRelay:
    """`said` are the frames in the order in which they came, without those that came twice."""

    def __init__(self) -> None:
        self.url = ""
        self.token = TOKEN
        self.hellos: list[Frame] = []
        self.said: list[Frame] = []
        self.received: dict[str, int] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.refuse: Callable[[Frame], str | None] = lambda frame: None
        self.silent = False
        self.welcome: Frame = {}
        self.turn_away = ""
        self.on_link: Callable[[], Any] | None = None
        self.upload_status = 200
        self.news = asyncio.Condition()
        self.socket: WebSocket | None = None

    # what the test does

    async def until(self, found: Callable[[], Any], within: float = WAIT_S) -> Any:
        """What `found` returns once that is true."""
        async with asyncio.timeout(within), self.news:
            await self.news.wait_for(found)
        return found()

    async def heard(self, type_: str, count: int = 1, within: float = WAIT_S, **fields: Any) -> Frame:
        """The `count`th frame of this type with these fields."""
        found = await self.until(lambda: self.all(type_, **fields)[count - 1 : count], within)
        return dict(found[0])

    def all(self, type_: str, **fields: Any) -> list[Frame]:
        return [
            frame for frame in self.said
            if frame["type"] == type_ and all(frame.get(name) == value for name, value in fields.items())
        ]  # fmt: skip

    async def say(self, type_: str, **fields: Any) -> None:
        await self.until(lambda: self.socket)
        assert self.socket is not None
        await self.socket.send_text(json.dumps({"type": type_, **fields}))

    async def inbound(self, inbound_id: str, text: str, **fields: Any) -> None:
        said = {"chat_id": "home", "chat_name": "Home", "user_id": "owner", "user_name": "Owner", "media": []}
        await self.say("inbound", inbound_id=inbound_id, text=text, **(said | fields))

    async def hang_up(self, code: int = 1012) -> None:
        assert self.socket is not None
        socket, self.socket = self.socket, None
        await socket.close(code)

    # the server

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                WebSocketRoute("/agent/link", self._link),
                Route("/media/upload", self._upload, methods=["POST"]),
                Route("/media/{token}", self._download),
            ]
        )

    def _knows(self, headers: Any) -> bool:
        return bool(headers.get("authorization") == f"Bearer {self.token}")

    async def _link(self, socket: WebSocket) -> None:
        if not self._knows(socket.headers):
            await socket.send_denial_response(Response(status_code=401))
            return
        await socket.accept()
        try:
            hello = json.loads(await socket.receive_text())
            await self._note(lambda: self.hellos.append(hello))
            if self.turn_away:
                said = {"type": "refused", "code": "link_version", "message": self.turn_away}
                await socket.send_text(json.dumps(said))
                await socket.close(4406)
                return
            received = self.received.setdefault(hello["spool"], 0)
            await socket.send_text(
                json.dumps({"type": "welcome", "version": 1, "home": "home", "received": received} | self.welcome)
            )
            await self._note(lambda: setattr(self, "socket", socket))
            if self.on_link:
                await self.on_link()
            while True:
                await self._take(socket, hello["spool"], json.loads(await socket.receive_text()))
        except WebSocketDisconnect:
            pass
        finally:
            if self.socket is socket:
                self.socket = None

    async def _take(self, socket: WebSocket, spool: str, frame: Frame) -> None:
        n = frame.get("n")
        if n is None:
            await self._note(lambda: self.said.append(frame))
            return
        if n > self.received[spool]:
            assert n == self.received[spool] + 1, "the numbers of a spool are dense"
            self.received[spool] = n
            await self._note(lambda: self.said.append(frame))
        if self.silent:
            return
        refusal = self.refuse(frame)
        verdict = {"type": "ok"} if refusal is None else {"type": "no", "code": "chat_unknown", "message": refusal}
        await socket.send_text(json.dumps({**verdict, "n": n}))

    async def _note(self, change: Callable[[], Any]) -> None:
        async with self.news:
            change()
            self.news.notify_all()

    async def _upload(self, request: Request) -> Response:
        if not self._knows(request.headers):
            return Response(status_code=401)
        if self.upload_status != 200:
            return Response(status_code=self.upload_status)
        body = await request.body()
        head, _, rest = body.partition(b"\r\n\r\n")
        name = head.partition(b'filename="')[2].partition(b'"')[0].decode()
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        token = f"m{len(self.files) + 1}"
        self.files[token] = (name, rest.rpartition(b"\r\n--" + boundary)[0])
        return JSONResponse({"ok": True, "token": token})

    async def _download(self, request: Request) -> Response:
        found = self.files.get(request.path_params["token"])
        if found is None or not self._knows(request.headers):
            return Response(status_code=404)
        return Response(found[1])


@asynccontextmanager
async def scripted_relay() -> AsyncIterator[ScriptedRelay]:
    relay = ScriptedRelay()
    async with serving(relay.app()) as port:
        relay.url = f"http://127.0.0.1:{port}"
        yield relay
