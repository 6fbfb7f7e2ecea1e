"""The running relay, spoken to over HTTP on this host with the operator token of the data directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from app.errors import Misconfigured, RelayError
from app.sessions.operator import HostToken, OperatorToken
from app.settings import ServerSettings, load_settings

TIMEOUT_S = 10.0


class CommandFailed(RelayError):
    """The command did not do what it was asked."""

    code = "command_failed"


class RelayRefused(CommandFailed):
    """The relay refused; its words are the message."""

    code = "relay_refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RelayClient:
    """Requests as the operator. Every failure says what to do about it."""

    def __init__(self, data_dir: Path, url: str) -> None:
        self._data_dir = data_dir
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {host_token(data_dir, OperatorToken)}"},
            timeout=TIMEOUT_S,
            trust_env=False,  # a proxy setting must not carry the operator's token off this host
        )

    @classmethod
    def of_settings(cls) -> Self:
        """Raises Misconfigured, CommandFailed."""
        server = load_settings().server
        return cls(server.data_dir, own_url(server))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    def get(self, path: str, *, timeout: float = TIMEOUT_S, **query: Any) -> Any:
        return self._request("GET", path, params=query, timeout=timeout)

    def post(
        self, path: str, body: dict[str, Any], *, timeout: float = TIMEOUT_S, headers: Mapping[str, str] | None = None
    ) -> Any:
        return self._request("POST", path, json=body, timeout=timeout, headers=headers)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._request("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        return self._request("DELETE", path)

    def _request(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of the answer. Raises CommandFailed."""
        try:
            answer = self._http.request(method, path, **options)
        except httpx.ConnectError:
            raise CommandFailed(
                f"no relay answers at {self.url}. Start it with `talaria serve`"
                " (or `docker compose up -d`); if it listens elsewhere, set TALARIA_PORT as it has it"
            ) from None
        except httpx.HTTPError as exc:
            raise CommandFailed(f"the relay at {self.url} did not answer: {exc}") from None
        if answer.status_code == 401:
            raise CommandFailed(
                f"the relay at {self.url} does not accept the operator token of {self._data_dir.absolute()}:"
                " it runs with another data directory. Set TALARIA_DATA_DIR as it has it"
            )
        if answer.is_error:
            raise RelayRefused(_said(answer), answer.status_code)
        try:
            return answer.json()
        except ValueError:
            raise CommandFailed(f"what answers at {self.url} is not Talaria") from None


def _said(answer: httpx.Response) -> str:
    """The relay's own words: our error body, hermes-relay's, or a line of text."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:500] or f"HTTP {answer.status_code}"
    return str(error.get("message", error) if isinstance(error, dict) else error)


def own_url(server: ServerSettings) -> str:
    if server.port == 0:
        raise Misconfigured("TALARIA_PORT is 0: set it to the port that the relay printed")
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def host_token(data_dir: Path, kind: type[HostToken]) -> str:
    path = data_dir / kind.FILE
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        raise CommandFailed(
            f"no relay has used the data directory {data_dir.absolute()} yet. Start one with `talaria serve`,"
            " or set TALARIA_DATA_DIR to the directory of the one that runs"
        ) from None
    except PermissionError:
        raise CommandFailed(_not_ours(path)) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandFailed(f"{path.absolute()} cannot be read: {exc}") from None


def _not_ours(path: Path) -> str:
    found = next((p for p in (path, *path.parents) if _owner(p) is not None), path)
    return (
        f"{path.absolute()} belongs to uid {_owner(found)} and cannot be read as uid {os.getuid()}:"
        " run this command as the user that runs the relay"
    )


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
