"""The plugin goes into a Hermes home, and the home is afterwards as it was."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from app.cli.client import CommandFailed
from app.cli.hermes_files import MARK, config_with, config_without
from app.cli.hermes_home import HermesHome, plugin_files
from app.sessions.operator import LinkToken
from tests.cli.conftest import Talaria

CONFIGS = {
    "with comments": "# mine\nmodel:\n  provider: 'custom'   # the one at home\n  default: \"x\"\n\n# the end",
    "with other plugins": "plugins:\n- a\nmodel: {a: 1}\n".replace("- a", "  enabled:\n  - weather  # keep\n  - x"),
    "with indented lists": "toolsets:\n  - web\nplugins:\n  enabled:\n    - weather\n  disabled: []\nz: yes\n",
    "with an empty list": "plugins:\n  enabled: []\nother: 1\n",
    "with a bare key": "plugins:\nother: 1\n",
    "in JSON": json.dumps({"model": {"a": 1}, "list": [1, 2]}, indent=2) + "\n",
    "in JSON under a comment": "# made by a script\n" + json.dumps({"plugins": {"enabled": ["x"]}}, indent=2) + "\n",
    "in flow style": "{model: {a: 1}, z: [1, 2]}\n",
    "with other servers": "mcp_servers:\n  files:  # mine\n    command: x\nz: yes\n",
    "with a bare key of servers": "mcp_servers:\nz: yes\n",
    "empty": "",
}


SERVER: dict[str, Any] = {"url": "http://relay:1/mcp", "headers": {"Authorization": "Bearer ${TALARIA_LINK_TOKEN}"}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "hermes"
    (home / "plugins" / "weather").mkdir(parents=True)
    (home / "plugins" / "weather" / "plugin.yaml").write_text("name: weather\n")
    (home / "config.yaml").write_text(CONFIGS["with comments"])
    (home / ".env").write_text("API_SERVER_KEY=secret\nOTHER=1")
    (home / ".env").chmod(0o640)
    return home


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("made-up-link-token-0123456789\n")
    return path


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else None,
            stat.S_IMODE(path.stat().st_mode),
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_install_adds_one_name_and_keeps_the_rest(config: str) -> None:
    from ruamel.yaml import YAML

    after = config_with(config)
    was = YAML(typ="safe").load(config) or {}
    enabled = (was.get("plugins") or {}).get("enabled") or []
    expected = was | {"plugins": (was.get("plugins") or {}) | {"enabled": [*enabled, "talaria"]}}
    assert YAML(typ="safe").load(after) == expected
    for comment in (line for line in config.splitlines() if "#" in line):
        assert comment in after
    assert config_with(after) == after


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_install_adds_the_tools_too(config: str) -> None:
    from ruamel.yaml import YAML

    after = config_with(config, SERVER["url"])
    plain = YAML(typ="safe").load(config_with(config))
    assert YAML(typ="safe").load(after) == plain | {
        "mcp_servers": (plain.get("mcp_servers") or {}) | {"talaria": SERVER}
    }
    for comment in (line for line in config.splitlines() if "#" in line):
        assert comment in after
    assert config_with(after, SERVER["url"]) == after


def test_tools_that_the_owner_has_written_stay(home: Path) -> None:
    own = "mcp_servers:\n  talaria:\n    url: http://elsewhere/mcp\n"
    (home / "config.yaml").write_text(own)
    there = HermesHome(home)
    there.install({"TALARIA_LINK_TOKEN": "one"}, SERVER["url"])
    assert (home / "config.yaml").read_text().startswith(own)
    with (home / "config.yaml").open("a") as file:
        file.write("timezone: UTC\n")
    assert there.uninstall()
    assert (home / "config.yaml").read_text() == own + "timezone: UTC\n"


@pytest.mark.parametrize("mcp_url", [None, SERVER["url"]], ids=["alone", "with tools"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_uninstall_takes_out_what_install_put_in_though_others_wrote_since(config: str, mcp_url: str | None) -> None:
    from ruamel.yaml import YAML

    since = config_with(config, mcp_url).replace("z: yes", "z: no")
    left = YAML(typ="safe").load(config_without(since, config)) or {}
    was = YAML(typ="safe").load(config.replace("z: yes", "z: no")) or {}
    assert {k: v or None for k, v in left.items()} == {k: v or None for k, v in was.items()}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("a: [1\nb: 2\n", "no valid YAML in line"),
        ("- a\n- b\n", "holds no settings"),
        ("plugins: [a]\n", "is not a mapping"),
        ("plugins:\n  enabled: all\n", "is not a list"),
        ("mcp_servers: [a]\n", "is not a mapping"),
        ("a: 1\n...\n", "by hand"),
    ],
)
def test_a_configuration_that_cannot_be_changed_safely_is_left_alone(config: str, says: str) -> None:
    with pytest.raises(CommandFailed, match=says):
        config_with(config, SERVER["url"])


def test_uninstall_leaves_no_trace(talaria: Talaria, home: Path, token_file: Path) -> None:
    before = snapshot(home)
    arguments = ("--hermes-home", str(home))
    said = talaria.run("hermes-plugin", "install", *arguments, "--token-file", str(token_file))
    assert str(home / "plugins" / "talaria") in said.stdout
    assert "hermes gateway restart" in said.stderr
    assert "made-up-link-token" not in said.stdout + said.stderr
    installed = {path.name for path in (home / "plugins" / "talaria").iterdir()}
    assert installed == {path.name for path in plugin_files().iterdir() if path.name != "__pycache__"}
    assert "plugins:\n  enabled:\n    - talaria\n" in (home / "config.yaml").read_text()
    assert (home / ".env").read_text() == (
        f"API_SERVER_KEY=secret\nOTHER=1\n{MARK}\nTALARIA_LINK_URL=http://127.0.0.1:{talaria.settings['PORT']}\n"
        "TALARIA_LINK_TOKEN=made-up-link-token-0123456789\nTALARIA_HOME_CHANNEL=home\n"
    )
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    first = snapshot(home)
    talaria.run("hermes-plugin", "install", *arguments, "--token-file", str(token_file))
    assert snapshot(home) == first
    talaria.run("hermes-plugin", "uninstall", *arguments)
    assert snapshot(home) == before
    assert "no plugin" in talaria.run("hermes-plugin", "uninstall", *arguments).stderr


def test_the_tools_come_when_asked_for_and_stay_until_they_are_not(
    talaria: Talaria, home: Path, token_file: Path
) -> None:
    before = snapshot(home)
    arguments = ("--hermes-home", str(home), "--token-file", str(token_file), "--url", "wss://relay:1/")
    block = (
        "mcp_servers:\n  talaria:\n    url: https://relay:1/mcp\n"
        "    headers:\n      Authorization: Bearer ${TALARIA_LINK_TOKEN}\n"
    )

    def install(*more: str) -> tuple[bool, bool]:
        """Whether the tools are in the file, and whether that is said."""
        said = talaria.run("hermes-plugin", "install", *arguments, *more)
        return block in (home / "config.yaml").read_text(), "hermes-agent[mcp]" in said.stderr

    assert [install(), install("--mcp"), install(), install("--no-mcp")] == [
        (False, False), (True, True), (True, True), (False, False),
    ]  # fmt: skip
    install("--mcp")
    talaria.run("hermes-plugin", "uninstall", "--hermes-home", str(home))
    assert snapshot(home) == before


def test_what_was_written_since_stays(home: Path) -> None:
    there = HermesHome(home)
    there.install({"TALARIA_LINK_URL": "http://a:1", "TALARIA_LINK_TOKEN": "one"})
    for name, line in (("config.yaml", "timezone: UTC\n"), (".env", "LATER=2\n")):
        with (home / name).open("a") as file:
            file.write(line)
    there.install({"TALARIA_LINK_URL": "http://b:2", "TALARIA_LINK_TOKEN": "two"})
    env = (home / ".env").read_text()
    assert "TALARIA_LINK_TOKEN=two\n" in env
    assert "one" not in env
    assert there.uninstall()
    assert (home / ".env").read_text() == "API_SERVER_KEY=secret\nOTHER=1\nLATER=2\n"
    config = (home / "config.yaml").read_text()
    assert config.startswith(CONFIGS["with comments"])
    assert "timezone: UTC\n" in config
    assert "talaria" not in config


def test_the_token_of_this_relay_is_taken_by_itself(talaria: Talaria, home: Path) -> None:
    talaria.data.mkdir()
    token = LinkToken.load(talaria.data).read()
    talaria.run("hermes-plugin", "install", "--hermes-home", str(home), "--url", "http://relay.lan:8767/")
    env = (home / ".env").read_text()
    assert f"TALARIA_LINK_TOKEN={token}\n" in env
    assert "TALARIA_LINK_URL=http://relay.lan:8767\n" in env


def test_a_linked_configuration_stays_a_link(home: Path, tmp_path: Path) -> None:
    (home / "config.yaml").rename(tmp_path / "dotfiles.yaml")
    (home / "config.yaml").symlink_to(tmp_path / "dotfiles.yaml")
    HermesHome(home).install({"TALARIA_LINK_TOKEN": "one"})
    assert (home / "config.yaml").is_symlink()
    assert "talaria" in (tmp_path / "dotfiles.yaml").read_text()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda home: home.rename(home.parent / "moved"), "there is no Hermes home"),
        (lambda home: [(home / name).unlink() for name in ("config.yaml", ".env")], "is no Hermes home"),
        (lambda home: (home / "config.yaml").write_text("a: [1\n"), "no valid YAML"),
        (lambda home: (home / "config.yaml").write_bytes(b"\xff\xfe"), "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(
    talaria: Talaria, home: Path, token_file: Path, make: Any, says: str
) -> None:
    make(home)
    before = snapshot(home.parent)
    said = talaria.run(
        "hermes-plugin", "install", "--hermes-home", str(home), "--token-file", str(token_file), status=1
    )
    assert says in " ".join(said.stderr.split())
    assert snapshot(home.parent) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--url", "relay.lan:8767"), "is no address of a relay"),
        (("--token-file", "/nonexistent"), "cannot be read"),
        ((), "no relay has used the data directory"),
    ],
)
def test_a_wrong_option_is_named(talaria: Talaria, home: Path, arguments: tuple[str, ...], says: str) -> None:
    said = talaria.run("hermes-plugin", "install", "--hermes-home", str(home), *arguments, status=1)
    assert says in " ".join(said.stderr.split())


def test_an_old_hermes_is_refused(
    talaria: Talaria, home: Path, token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "hermes"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Hermes Agent v0.17.2 (2026.5.1)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    said = talaria.run(
        "hermes-plugin", "install", "--hermes-home", str(home), "--token-file", str(token_file), status=1
    )
    assert "0.17" in said.stderr
    assert not (home / "plugins" / "talaria").exists()
