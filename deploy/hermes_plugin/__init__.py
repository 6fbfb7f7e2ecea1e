"""Talaria as a platform of Hermes's messaging gateway. Installed by `talaria hermes-plugin install`."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from typing import Any

HOME_ENV = "TALARIA_HOME_CHANNEL"
HINT = (
    "You are talking to your owner on their phone, through Talaria. Markdown with code blocks, tables and links is "
    "rendered. To send a file, write MEDIA:/absolute/path on a line of its own."
)


def register(ctx: Any) -> None:
    """Called by Hermes. A field that this Hermes does not know would be an error, so it is left out."""
    from gateway.platform_registry import PlatformEntry

    from .config import parse_target
    from .standalone import send_standalone

    known = {field.name for field in dataclasses.fields(PlatformEntry)}
    newer = {"parse_target_ref_fn": parse_target}
    ctx.register_platform(
        name="talaria",
        label="Talaria",
        adapter_factory=_adapter,
        check_fn=has_libraries,
        validate_config=is_configured,
        is_connected=is_configured,
        required_env=["TALARIA_LINK_URL", "TALARIA_LINK_TOKEN"],
        install_hint="websockets and httpx come with Hermes; reinstall it if they are missing",
        env_enablement_fn=from_environment,
        cron_deliver_env_var=HOME_ENV,
        standalone_sender_fn=send_standalone,
        emoji="📱",
        platform_hint=HINT,
        **{name: value for name, value in newer.items() if name in known},
    )


def _adapter(config: Any) -> Any:
    from .adapter import TalariaAdapter

    return TalariaAdapter(config)


def has_libraries() -> bool:
    return all(importlib.util.find_spec(name) for name in ("websockets", "httpx"))


def is_configured(config: Any) -> bool:
    from .config import ConfigError, LinkConfig

    try:
        LinkConfig.read(getattr(config, "extra", None))
    except ConfigError:
        return False
    return True


def from_environment() -> dict[str, Any] | None:
    """The home channel, which Hermes reads from here for `hermes send` and from the environment for cron."""
    if not os.environ.get("TALARIA_LINK_URL") or not os.environ.get("TALARIA_LINK_TOKEN"):
        return None
    from .config import HOME_CHAT

    chat_id = os.environ.get(HOME_ENV) or HOME_CHAT
    # Cron takes a platform without this variable for one that has no home.
    os.environ.setdefault(HOME_ENV, chat_id)
    return {"home_channel": {"chat_id": chat_id, "name": "Home"}}
