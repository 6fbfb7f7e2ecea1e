"""Files, by token or by path: taken from devices and the agent, and given to them, with hermes-relay's bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ClassVar

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from app.api import examples
from app.api.bodies import PeerRoute, read_object
from app.api.deps import DeviceOrHost, HostOrHostTool, OpenRelay, WithChat
from app.api.errors import BodyInvalid, headers_of
from app.api.multipart import MAX_AROUND, FormFile
from app.api.openapi import answers, header, sends, takes
from app.api.served import FileAnswer
from app.media.errors import MediaTooLarge, PathDenied, PathMissing, UploadStalled
from app.wire.payloads import RegisterMedia

STALLED_S = 60.0  # an upload of which nothing comes for so long is over

_RANGED = {"parameters": [header("Range", "one range of the bytes", {"type": "string"})]}
_BYTES = sends("The file", "*/*") | sends("A part of it", "*/*", status=206) | sends("No such part", status=416)
_FORM = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}


class MediaRoute(PeerRoute):
    """A refusal is a line of text, or hermes-relay's JSON."""

    texts: ClassVar[frozenset[int]] = frozenset({401, 403, 404})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except MediaTooLarge as exc:
                return JSONResponse({"ok": False, "error": exc.message}, 413, headers_of(exc))

        return answer


router = APIRouter(tags=["media"])
files = APIRouter(route_class=MediaRoute)


@files.post(
    "/media/upload",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
    responses=answers(examples.UPLOADED) | answers(examples.TOO_LARGE, 413, "Too large"),
)
async def upload(request: Request, relay: OpenRelay, caller: WithChat) -> dict[str, Any]:
    """Keep the part `file`; 200, and a token that fetches it until `expires_at`."""
    form = FormFile(request.headers.get("content-type", ""))
    most = relay.media.max_size + MAX_AROUND
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(relay.media.max_size)
    async with relay.media.upload(caller.sender) as incoming:
        read = 0
        async for chunk in _chunks(request.receive):
            read += len(chunk)
            if read > most:
                raise _too_large(relay.media.max_size)
            for piece in form.feed(chunk):
                await incoming.add(piece)
        form.finish()
        stored = await relay.media.store(
            incoming, sender=caller.sender, name=form.name or "", content_type=form.content_type
        )
    return {"ok": True, "token": stored.token, "expires_at": stored.expires_at}


@files.post(
    "/media/register",
    openapi_extra=takes(RegisterMedia, examples.REGISTER_FILE),
    responses=answers(examples.REGISTERED_FILE),
)
async def register(request: Request, relay: OpenRelay, caller: HostOrHostTool) -> dict[str, Any]:
    """A token for a file that stays where it lies, under one of TALARIA_MEDIA_ROOTS."""
    said = _registered(await read_object(request))
    try:
        stored = await relay.media.register(
            said.path, content_type=said.content_type, name=said.file_name, sensitive=bool(said.sensitive),
            sender=caller.sender,
        )  # fmt: skip
    except (PathDenied, PathMissing, MediaTooLarge) as exc:
        exc.http_status = 400  # here it is about the body
        raise
    return {"ok": True, "token": stored.token, "expires_at": stored.expires_at, "sensitive": stored.sensitive}


@files.get("/media/by-path", response_class=Response, openapi_extra=_RANGED, responses=_BYTES)
@files.head("/media/by-path", include_in_schema=False)
async def by_path(
    relay: OpenRelay, caller: WithChat, path: str = "", content_type: str = "", sensitive: str = ""
) -> Response:  # fmt: skip
    """A file of the relay's host, under one of TALARIA_MEDIA_ROOTS."""
    if not path:
        raise BodyInvalid("missing 'path' query parameter")
    try:
        opened = await relay.media.by_path(
            path, content_type=content_type, sensitive=sensitive.lower() in ("1", "true", "yes")
        )
    except MediaTooLarge as exc:
        raise PathDenied(exc.message) from exc
    return FileAnswer(relay.media, opened, caller.sender)


@files.get("/media/{token}", response_class=Response, openapi_extra=_RANGED, responses=_BYTES)
@files.head("/media/{token}", include_in_schema=False)
async def fetch(token: str, relay: OpenRelay, caller: DeviceOrHost) -> Response:
    """Its bytes; one `Range` of them with 206."""
    return FileAnswer(relay.media, await relay.media.fetch(token), caller.sender)


router.include_router(files)


def _registered(body: dict[str, Any]) -> RegisterMedia:
    """Field by field, in the words of hermes-relay. Raises BodyInvalid."""
    for name, kind, required in (
        ("path", str, True), ("content_type", str, True), ("file_name", str, False), ("sensitive", bool, False),
    ):  # fmt: skip
        value = body.get(name)
        if (required and not value) or (value is not None and not isinstance(value, kind)):
            raise BodyInvalid(f"missing or invalid '{name}'")
    return RegisterMedia.model_validate(body)


def _too_large(limit: int) -> MediaTooLarge:
    return MediaTooLarge(f"file too large: at most {limit} bytes")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes. Raises ClientDisconnect, UploadStalled."""
    more = True
    while more:
        try:
            async with asyncio.timeout(STALLED_S):
                message = await receive()
        except TimeoutError:
            raise UploadStalled() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)
