"""Prints, as JSON, what a Hermes offers to platform plugins. Run by that Hermes's own Python:

HERMES_HOME=$(mktemp -d) …/venv/bin/python tests/hermes_plugin/record_interface.py
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from typing import Any

FUNCTIONS = {
    "tools.approval": ["resolve_gateway_approval", "has_blocking_approval"],
    "tools.clarify_gateway": ["resolve_gateway_clarify", "get_pending_for_session", "get_clarify_timeout"],
    "tools.slash_confirm": ["resolve", "get_pending"],
    "gateway.platforms.base": ["cache_media_bytes"],
    "hermes_cli.commands": ["is_gateway_known_command"],
    "hermes_constants": ["get_hermes_home"],
}


def parameters(function: Any) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "kind": one.kind.name, "required": one.default is inspect.Parameter.empty}
        for one in inspect.signature(function).parameters.values()
    ]


def record() -> dict[str, Any]:
    base = importlib.import_module("gateway.platforms.base")
    entry = importlib.import_module("gateway.platform_registry").PlatformEntry
    adapter = base.BasePlatformAdapter
    methods = {
        name: parameters(member)
        for name, member in inspect.getmembers(adapter, inspect.isfunction)
        if not name.startswith("__") and (not name.startswith("_") or name in ("_mark_connected", "_mark_disconnected"))
    }
    return {
        "version": importlib.import_module("hermes_cli").__version__,
        "abstract": sorted(adapter.__abstractmethods__),
        "methods": methods,
        "functions": {
            f"{module}.{name}": parameters(getattr(importlib.import_module(module), name))
            for module, names in FUNCTIONS.items()
            for name in names
        },
        "PlatformEntry": [one.name for one in dataclasses.fields(entry)],
        "MessageEvent": [one.name for one in dataclasses.fields(base.MessageEvent)],
        "SendResult": [one.name for one in dataclasses.fields(base.SendResult)],
        "MessageType": [one.name for one in base.MessageType],
    }


if __name__ == "__main__":
    print(json.dumps(record()))
