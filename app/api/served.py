"""A file as an answer: which bytes, under which headers, read by threads ahead of what the client takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.edge import header_values
from app.api.errors import refuse
from app.api.ranges import Span, Unsatisfiable, is_known, span_of
from app.errors import Overloaded
from app.media.service import Media, Opened
from app.media.sniff import is_shown

log = logging.getLogger("talaria.http")

CHUNK = 512 * 1024  # bytes: two of them are in memory for each file that is sent
STALLED_S = 60.0  # a client that takes nothing for so long is cut off


class FileAnswer(Response):
    """Closes the file, whatever happens. The whole of it, or one range."""

    def __init__(self, media: Media, opened: Opened, caller: str) -> None:
        super().__init__()
        self._media, self._opened, self._caller = media, opened, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, headers, span = self._chosen(scope)
            if scope["method"] == "HEAD" or span is None or not span.size:
                await _start(send, status, headers)
                await send({"type": "http.response.body", "body": b""})
                return
            with self._media.serving(self._caller):
                await _start(send, status, headers)
                await self._send(span, scope, receive, send)
        except Overloaded as exc:
            await refuse(scope, exc)(scope, receive, send)
        finally:
            self._opened.file.close()

    def _chosen(self, scope: Scope) -> tuple[int, Mapping[str, str], Span | None]:
        file, headers = self._opened.file, described(self._opened)
        if is_known(_header(scope, b"if-none-match"), file.etag):
            return 304, headers, None
        whole = Span(0, file.size)
        wanted = _header(scope, b"range") if scope["method"] == "GET" else None
        try:
            span = span_of(wanted, _header(scope, b"if-range"), file.size, file.etag)
        except Unsatisfiable:
            return 416, headers | {"Content-Range": f"bytes */{file.size}", "Content-Length": "0"}, None
        typed = headers | {"Content-Type": self._opened.mime, "Content-Length": str((span or whole).size)}
        if span is None:
            return 200, typed, whole
        return 206, typed | {"Content-Range": f"bytes {span.start}-{span.end - 1}/{file.size}"}, span

    async def _send(self, span: Span, scope: Scope, receive: Receive, send: Send) -> None:
        server: Any = scope.get("extensions", {}).get("talaria")
        at, reading = span.start, self._read(span.start, span.end)
        try:
            while True:
                chunk = await reading
                at += len(chunk)
                if not chunk:
                    log.warning("a file shrank while it was sent")
                    break
                if at < span.end:
                    reading = self._read(at, span.end)  # ahead, while the client takes this one
                async with asyncio.timeout(STALLED_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": at < span.end})
                if at >= span.end:
                    return
                if server is not None and server.is_gone:
                    break
        except TimeoutError:
            log.info("a client stopped taking a file")
        finally:
            reading.cancel()
        if server is not None:
            server.abort()  # the length was promised: only a cut says that it was not kept
        while (await receive())["type"] != "http.disconnect":
            pass

    def _read(self, at: int, end: int) -> asyncio.Future[bytes]:
        return self._media.read(self._opened.file, at, min(CHUNK, end - at))


def described(opened: Opened) -> dict[str, str]:
    """The headers that do not depend on the range."""
    headers = {
        "Accept-Ranges": "bytes", "Cache-Control": "private, max-age=3600", "ETag": opened.file.etag,
        "Content-Disposition": disposition(opened.name, shown=is_shown(opened.mime)),
        "Cross-Origin-Resource-Policy": "same-origin",
    }  # fmt: skip
    return headers | ({"X-Media-Sensitive": "1"} if opened.sensitive else {})


def disposition(name: str, *, shown: bool) -> str:
    """RFC 6266: a name that every client reads, and the whole one where that is not enough."""
    kind = "inline" if shown else "attachment"
    if not name:
        return kind
    plain = "".join(c if " " <= c <= "~" and c not in "%;" else "_" for c in name if c not in '"\\')
    extended = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{kind}; filename="{plain}"{extended}'


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


def _header(scope: Scope, name: bytes) -> str | None:
    return next(iter(header_values(scope, name)), None)
