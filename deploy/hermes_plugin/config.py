"""What the operator set: in the environment (`$HERMES_HOME/.env`), or in `platforms.talaria.extra` of config.yaml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HOME_CHAT = "home"  # exists in every relay, and all paired devices share it
LINK_PATH = "/agent/link"


class ConfigError(ValueError):
    """A setting is missing or wrong; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """`url` is the relay's origin, http or https, without a trailing slash."""

    url: str
    token: str
    home: str
    media_roots: tuple[Path, ...]

    @property
    def socket_url(self) -> str:
        return "ws" + self.url.removeprefix("http") + LINK_PATH

    @classmethod
    def read(cls, extra: Mapping[str, Any] | None, environ: Mapping[str, str] = os.environ) -> LinkConfig:
        """The environment goes before `extra`, as everywhere in Hermes. Raises ConfigError."""
        values = extra or {}

        def pick(name: str, key: str, default: str = "") -> str:
            return (environ.get(name) or str(values.get(key) or "") or default).strip()

        token = pick("TALARIA_LINK_TOKEN", "token")
        if not token:
            raise ConfigError("TALARIA_LINK_TOKEN is not set: `talaria token link` prints the token of the relay")
        roots = pick("TALARIA_MEDIA_ROOTS", "media_roots_path").replace(",", os.pathsep)  # as the relay writes it
        listed = values.get("media_roots")
        folders = [*roots.split(os.pathsep), *(map(str, listed) if isinstance(listed, list) else ())]
        return cls(
            url=origin(pick("TALARIA_LINK_URL", "url")),
            token=token,
            home=pick("TALARIA_HOME_CHANNEL", "home", HOME_CHAT),
            media_roots=tuple(Path(folder).expanduser() for folder in folders if folder.strip()),
        )


def origin(url: str) -> str:
    """`ws://host:1/agent/link`, `http://host:1/` → `http://host:1`. Raises ConfigError."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("TALARIA_LINK_URL is the address of the relay, such as http://127.0.0.1:8767")
    path = parts.path.rstrip("/").removesuffix(LINK_PATH)
    return f"{scheme}://{parts.netloc}{path}"


def parse_target(reference: str) -> tuple[str, str | None] | None:
    """`chat` or `chat:thread`, as in `hermes send --to talaria:home:plans`. A device's own chat has a colon itself."""
    reference = reference.strip()
    if not reference:
        return None
    head, _, rest = reference.partition(":")
    if head == "device" and rest:
        device, _, thread_id = rest.partition(":")
        return f"device:{device}", thread_id or None
    return head, rest or None


def hermes_home() -> Path:
    """The state directory of the Hermes that runs here."""
    try:
        from hermes_constants import get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(get_hermes_home())
