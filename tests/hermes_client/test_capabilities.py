"""What recorded versions advertise, and what is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.hermes.capabilities import Capabilities, parse_capabilities


def recorded(version: str) -> Capabilities:
    path = Path(__file__).parent / f"capabilities_{version.replace('.', '_')}.json"
    return parse_capabilities(json.loads(path.read_text()), None)


@pytest.mark.parametrize("version", ["0.19", "0.20", "0.22"])
def test_every_recorded_version_streams_chat_in_sessions(version: str) -> None:
    capabilities = recorded(version)
    assert capabilities.allows("session_chat_streaming")
    assert not capabilities.allows("admin_config_rw")
    assert not capabilities.allows("never_heard_of")
    assert capabilities.path("session_chat_stream", session_id="a/b ü") == "/api/sessions/a%2Fb%20%C3%BC/chat/stream"
    assert capabilities.drop_interrupts is (version != "0.19")


def test_a_feature_may_be_described_by_an_object() -> None:
    capabilities = recorded("0.22")
    assert capabilities.allows("runs_idempotency")
    assert not capabilities.allows("browser_extension_control")


@pytest.mark.parametrize(
    ("version", "interrupts"),
    [("0.19.0", False), ("0.20.1.2", True), ("1.0", True), ("fake", False), (None, False), ("0.3", False)],
)
def test_what_a_dropped_stream_does_goes_by_the_version_too(version: str | None, interrupts: bool) -> None:
    assert Capabilities(known=True, version=version).drop_interrupts is interrupts


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example/",
        "//evil.example/x",
        "no-slash",
        "",
        None,
        7,
        {"path": "http://evil/"},
        "/with space",
        "/a\r\nb",
    ],
)  # fmt: skip
def test_an_endpoint_that_is_no_path_is_not_followed(endpoint: Any) -> None:
    capabilities = parse_capabilities({"endpoints": {"sessions": endpoint}}, None)
    assert capabilities.path("sessions") == "/api/sessions"


@pytest.mark.parametrize("answer", [{}, {"features": [], "endpoints": []}, {"features": None, "endpoints": "x"}])
def test_nonsense_advertises_nothing(answer: dict[str, Any]) -> None:
    capabilities = parse_capabilities(answer, None)
    assert not capabilities.allows("session_chat_streaming")
    assert capabilities.path("health") == "/health"


def test_an_advertised_path_is_used() -> None:
    capabilities = parse_capabilities({"endpoints": {"session_messages": {"path": "/v9/{session_id}/rows"}}}, None)
    assert capabilities.path("session_messages", session_id="s1") == "/v9/s1/rows"
