"""The container's health check tells a relay that answers from one that does not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "healthcheck.py"


class _Relay(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(getattr(self.server, "status") if self.path == "/livez" else 404)  # noqa: B009 - set by the test
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def relay() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Relay) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])
def test_the_answer_decides(relay: ThreadingHTTPServer, status: int, exit_code: int, host: str) -> None:
    relay.status = status  # type: ignore[attr-defined]
    assert _check(host, relay.server_port) == exit_code


def test_nobody_listens(relay: ThreadingHTTPServer) -> None:
    port = relay.server_port
    relay.socket.close()
    assert _check("127.0.0.1", port) == 1


def _check(host: str, port: int) -> int:
    env = {"TALARIA_HOST": host, "TALARIA_PORT": str(port)}
    return subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, timeout=20).returncode
