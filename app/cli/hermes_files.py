"""The two files of a Hermes home that name the plugin: what is added to their text and what is taken out of it again.

Pure: text in, text out. Comments, order, quotes and everything else in the file stay.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from app.cli.client import CommandFailed

PLUGIN = "talaria"
MARK = "# Talaria: written by `talaria hermes-plugin install`, removed by `talaria hermes-plugin uninstall`"
NAMES = ("TALARIA_LINK_URL", "TALARIA_LINK_TOKEN", "TALARIA_HOME_CHANNEL")
BLOCK = f"plugins:\n  enabled:\n    - {PLUGIN}\n"
BEARER = "Bearer ${TALARIA_LINK_TOKEN}"  # Hermes fills it in from its .env
_SEQUENCE = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n( *)- ", re.MULTILINE)
_OURS = re.compile(rf"^(?:export )?(?:{'|'.join(NAMES)})=")


def config_with(text: str, mcp_url: str | None = None) -> str:
    """`plugins.enabled` names the plugin, and `mcp_servers` the relay's tools where there is a URL of them. Raises
    CommandFailed where the file is no configuration.
    """
    text = _with_plugin(text)
    return text if mcp_url is None else _with_server(text, mcp_url)


def _with_plugin(text: str) -> str:
    config = _parsed(text)
    plugins = config.get("plugins") or {}
    if not isinstance(plugins, dict):
        raise CommandFailed("plugins in config.yaml is not a mapping; mend it and try again")
    enabled = plugins.get("enabled") or []
    if not isinstance(enabled, list):
        raise CommandFailed("plugins.enabled in config.yaml is not a list; mend it and try again")
    if PLUGIN in enabled:
        return text
    if "plugins" not in config and _is_block(text):
        return _checked(config | {"plugins": {"enabled": [PLUGIN]}}, _ended(text) + BLOCK)
    enabled.append(PLUGIN)
    plugins["enabled"] = enabled
    config["plugins"] = plugins
    return _dumped(config, text)


def _with_server(text: str, url: str) -> str:
    """One that the owner has written stays."""
    config = _parsed(text)
    servers = config.get("mcp_servers") or {}
    if not isinstance(servers, dict):
        raise CommandFailed("mcp_servers in config.yaml is not a mapping; mend it and try again")
    if PLUGIN in servers:
        return text
    ours = {"url": url, "headers": {"Authorization": BEARER}}
    if "mcp_servers" not in config and _is_block(text):
        return _checked(config | {"mcp_servers": {PLUGIN: ours}}, _ended(text) + server_block(url))
    servers[PLUGIN] = ours
    config["mcp_servers"] = servers
    return _dumped(config, text)


def server_block(url: str) -> str:
    """As an owner writes it."""
    return f"mcp_servers:\n  {PLUGIN}:\n    url: {url}\n    headers:\n      Authorization: {BEARER}\n"


def has_server(text: str) -> bool:
    """Raises CommandFailed."""
    servers = _parsed(text).get("mcp_servers")
    return isinstance(servers, dict) and PLUGIN in servers


def config_without(text: str, before: str) -> str:
    """Neither is named; what is empty now and was not in `before` goes too. Raises CommandFailed."""
    return _without_plugin(_without_server(text, before), before)


def _without_server(text: str, before: str) -> str:
    config, old = _parsed(text), _parsed(before)
    servers = config.get("mcp_servers")
    if not isinstance(servers, dict) or PLUGIN not in servers or PLUGIN in (old.get("mcp_servers") or {}):
        return text
    block = server_block(str((servers[PLUGIN] or {}).get("url")))
    if text.endswith(block) and "mcp_servers" not in old:
        return text.removesuffix(block)
    del servers[PLUGIN]
    if not servers and "mcp_servers" not in old:
        del config["mcp_servers"]
    return _dumped(config, text)


def _without_plugin(text: str, before: str) -> str:
    config, old = _parsed(text), _parsed(before)
    plugins = config.get("plugins")
    enabled = plugins.get("enabled") if isinstance(plugins, dict) else None
    if not isinstance(plugins, dict) or not isinstance(enabled, list) or PLUGIN not in enabled:
        return text
    if text.endswith(BLOCK) and "plugins" not in old:
        return text.removesuffix(BLOCK)
    enabled.remove(PLUGIN)
    if not enabled and "enabled" not in (old.get("plugins") or {}):
        del plugins["enabled"]
    if not plugins and "plugins" not in old:
        del config["plugins"]
    return _dumped(config, text)


def env_with(text: str, values: Mapping[str, str]) -> str:
    """Our block at the end, where it goes before what somebody wrote above it."""
    lines = [MARK, *(f"{name}={values[name]}" for name in NAMES if name in values)]
    return _ended(env_without(text)) + "\n".join(lines) + "\n"


def env_without(text: str) -> str:
    """Without our lines. What has these names without our mark above it was not ours."""
    if MARK not in text:
        return text
    return "".join(line for line in text.splitlines(True) if line.rstrip("\n") != MARK and not _OURS.match(line))


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = _yaml(text).load(text)
    except YAMLError as exc:
        where = getattr(exc, "problem_mark", None)
        at = f" in line {where.line + 1}" if where is not None else ""
        raise CommandFailed(f"config.yaml cannot be read: it is no valid YAML{at}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CommandFailed("config.yaml holds no settings: it is a list or a single value")
    return found


def _dumped(config: dict[str, Any], text: str) -> str:
    if _is_json(text):
        comments = text[: text.index("{")]
        return _checked(config, comments + json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    out = io.StringIO()
    _yaml(text).dump(config, out)
    return _checked(config, out.getvalue())


def _checked(wanted: dict[str, Any], text: str) -> str:
    """The text, if it says what it is meant to. Raises CommandFailed."""
    try:
        found = YAML(typ="safe", pure=True).load(text) or {}
    except YAMLError:
        found = None
    if _plain(found) != _plain(wanted):
        raise CommandFailed(
            f"config.yaml is written in a way that this command would damage. Add {PLUGIN} to plugins.enabled by hand,"
            " and run the command again"
        )
    return text


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _is_block(text: str) -> bool:
    """A mapping in block style, to whose end another key can be written."""
    return not text.lstrip().startswith("{") and not _is_json(text)


def _is_json(text: str) -> bool:
    body = "".join(line for line in text.splitlines(True) if not line.lstrip().startswith("#"))
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _yaml(text: str) -> YAML:
    """Reads and writes in the file's own style."""
    yaml = YAML(pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    first = _SEQUENCE.search(text)
    if first is not None and len(first[2]) > len(first[1]):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
