"""Bodies, read with a bound and checked; and the answers of routes that hermes-relay had first."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.api.errors import BodyInvalid, BodyTooLarge, headers_of
from app.channels.base import describe
from app.errors import RelayError
from app.sessions.errors import SessionRefused

MAX_BODY = 64 * 1024
M = TypeVar("M", bound=BaseModel)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises BodyInvalid, BodyTooLarge."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise BodyTooLarge(f"the body may have at most {MAX_BODY} bytes")
    return parse_object(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises BodyInvalid for anything but a JSON object."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BodyInvalid("invalid JSON body") from None
    if not isinstance(value, dict):
        raise BodyInvalid("body must be a JSON object")
    return value


async def read_model(request: Request, model: type[M]) -> M:
    """Raises BodyInvalid, which does not repeat the values, and BodyTooLarge."""
    try:
        return model.model_validate(await read_object(request))
    except ValidationError as exc:
        raise BodyInvalid(describe(exc)) from None


class PeerRoute(APIRoute):
    """Refuses as hermes-relay does, plus our code in the header; what it never refused looks like everything else."""

    texts: ClassVar[frozenset[int]] = frozenset()  # statuses whose body is a line of text
    beside: ClassVar[dict[str, Any]] = {"ok": False}  # what stands beside `error` in a 400

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RelayError as exc:
                if exc.http_status == 400:
                    return JSONResponse({**self.beside, "error": exc.message}, 400, headers_of(exc))
                if exc.http_status in self.texts:
                    message = "invalid or expired session token" if isinstance(exc, SessionRefused) else exc.message
                    return PlainTextResponse(message, exc.http_status, headers_of(exc))
                raise

        return answer


def present(body: Mapping[str, Any], name: str) -> bool:
    """Null is absent."""
    return body.get(name) is not None
