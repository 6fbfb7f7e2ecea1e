"""One POST to a push service, and what is left of it: an answer, or the step at which it failed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx
import orjson

from app.guard import AddressRefused, AnswerTooBig, NameUnknown
from app.push.answers import Table, outcome, parse_retry_after
from app.push.provider import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: float | None  # seconds

    def json(self) -> dict[str, object]:
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    def words(self) -> str:
        return self.body.decode(errors="replace").strip()

    def outcome(self, own: Table, *, key: int | str | None = None, detail: str | None = None) -> Outcome:
        said = self.words() if detail is None else detail
        return outcome(
            self.status if key is None else key, own, detail=said if self.status >= 300 else "",
            status=self.status, retry_after=self.retry_after,
        )  # fmt: skip


async def post(
    client: httpx.AsyncClient, url: str, now: float, *, content: bytes, headers: Mapping[str, str], own: Table
) -> Answer | Outcome:
    """An Outcome if no answer came."""
    try:
        answer = await client.post(url, content=content, headers=dict(headers))
    except AddressRefused:
        return outcome("address_refused", own, stage="named")
    except NameUnknown:
        return outcome("name_unknown", own, stage="named")
    except AnswerTooBig:
        return outcome("answer_too_big", own)
    except httpx.ConnectTimeout:
        return outcome("timeout", own, detail="no connection in time", stage="connected")
    except httpx.TimeoutException:
        return outcome("timeout", own)
    except httpx.ConnectError as exc:
        return _unconnected(exc, own)
    except httpx.HTTPError:
        return outcome("broken", own)
    return Answer(answer.status_code, answer.content, parse_retry_after(answer.headers.get("retry-after"), now))


def _unconnected(exc: httpx.ConnectError, own: Table) -> Outcome:
    causes = list(_causes(exc))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        reason = getattr(tls, "verify_message", "") or tls.reason or ""
        return outcome("tls", own, detail=str(reason), stage="tls")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return outcome("refused", own, stage="connected")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return outcome("name_unknown", own, stage="named")
    return outcome("unreachable", own, stage="connected")


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    """It, what caused it, and the members of groups: connecting tries several ways at once."""
    waiting: list[BaseException | None] = [exc]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
