"""What a Hermes says it can do. Nothing is used that it does not advertise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from app.hermes.errors import SessionNotFound

ENDPOINTS = {
    "health": "/health",
    "health_detailed": "/health/detailed",
    "sessions": "/api/sessions",
    "session_create": "/api/sessions",
    "session": "/api/sessions/{session_id}",
    "session_update": "/api/sessions/{session_id}",
    "session_delete": "/api/sessions/{session_id}",
    "session_fork": "/api/sessions/{session_id}/fork",
    "session_messages": "/api/sessions/{session_id}/messages",
    "session_chat_stream": "/api/sessions/{session_id}/chat/stream",
    "chat_completions": "/v1/chat/completions",
    "runs": "/v1/runs",
    "run_status": "/v1/runs/{run_id}",
    "run_events": "/v1/runs/{run_id}/events",
    "run_stop": "/v1/runs/{run_id}/stop",
    "run_approval": "/v1/runs/{run_id}/approval",
}
# Came with the versions in which a dropped stream interrupts its turn; before, the turn runs on.
_INTERRUPTING = ("run_steer", "session_model_lock")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`known` is false for a version so old that it does not say."""

    known: bool
    version: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)

    def allows(self, feature: str) -> bool:
        """Newer versions describe a feature by an object instead of `true`."""
        value = self.features.get(feature)
        if isinstance(value, Mapping):
            return bool(value.get("supported", value.get("enabled", True)))
        return bool(value)

    def path(self, endpoint: str, **ids: str) -> str:
        """The path as advertised, else the one that every known version has.

        Raises SessionNotFound for what no quoting keeps from being a step in the path; no id of Hermes is like that.
        """
        if not {".", ".."}.isdisjoint(ids.values()):
            raise SessionNotFound()
        path = self.endpoints.get(endpoint) or ENDPOINTS[endpoint]
        for name, value in ids.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        return path

    @property
    def drop_interrupts(self) -> bool:
        """Whether a turn of the session stream ends when its stream is dropped."""
        match = re.match(r"(\d+)\.(\d+)", self.version or "")
        newer = match is not None and (int(match[1]), int(match[2])) >= (0, 20)
        return newer or any(self.allows(feature) for feature in _INTERRUPTING)


def parse_capabilities(answer: Mapping[str, Any], version: str | None) -> Capabilities:
    features, endpoints = answer.get("features"), answer.get("endpoints")
    return Capabilities(
        known=True,
        version=version,
        features=features if isinstance(features, Mapping) else {},
        endpoints=dict(_paths(endpoints)) if isinstance(endpoints, Mapping) else {},
    )


def _paths(endpoints: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Only paths: a URL would send the key to whatever host it names."""
    found = ((name, e.get("path") if isinstance(e, Mapping) else e) for name, e in endpoints.items())
    return [(n, p) for n, p in found if isinstance(p, str) and re.fullmatch(r"/(?!/)[!-~]*", p)]
