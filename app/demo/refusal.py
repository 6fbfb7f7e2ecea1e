"""How Hermes says no: one envelope for every refused request."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """A request that Hermes refuses before it does anything.

    It is Hermes' failure and Hermes' wording, so it is not one of the relay's own error classes.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None,
        *,
        kind: str = "invalid_request_error",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.kind = kind
        self.retry_after = retry_after  # seconds

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": None, "code": self.code}}


class KeyRefused(Refusal):
    """The one envelope without `param`."""

    def __init__(self) -> None:
        super().__init__(401, "Invalid API key", "invalid_api_key")

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "code": self.code}}


def session_not_found(session_id: str) -> Refusal:
    return Refusal(404, f"Session not found: {session_id}", "session_not_found")


def draining() -> Refusal:
    return Refusal(503, "Gateway is draining", "gateway_draining", kind="server_error", retry_after=1)
