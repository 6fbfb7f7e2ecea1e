"""What this plugin and this Hermes call themselves, and the commands that a phone may complete."""

from __future__ import annotations

import logging
from typing import Any

PLUGIN_VERSION = "1.0.0"
MAX_TEXT = 500  # characters, as the relay takes them
MAX_COMMANDS = 500  # as well: a hello with more is refused as a whole

logger = logging.getLogger(__name__)


def hermes_version() -> str:
    try:
        from hermes_cli import __version__
    except ImportError:
        return "unknown"
    return str(__version__)


def commands() -> list[dict[str, Any]]:
    """`[{name, description, usage?}]` of the commands that the gateway takes, without the slash."""
    try:
        from hermes_cli.commands import COMMAND_REGISTRY, is_gateway_known_command
    except ImportError:
        return []
    found = []
    for command in COMMAND_REGISTRY:
        try:
            if getattr(command, "cli_only", False) or not is_gateway_known_command(command.name):
                continue
            usage = str(getattr(command, "args_hint", "") or "")
            entry = {"name": command.name, "description": str(command.description)[:MAX_TEXT]}
            found.append(entry | ({"usage": f"/{command.name} {usage}"[:MAX_TEXT]} if usage else {}))
        except Exception:  # another version's registry; a catalogue is a help, not a need
            logger.debug("talaria: a command of this Hermes is not understood", exc_info=True)
    return found[:MAX_COMMANDS]
