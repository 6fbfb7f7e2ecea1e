"""What the command says when there is no relay to talk to, or none it may talk to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.client import CommandFailed, host_token
from app.cli.commands import ORDER
from app.cli.show import duration
from app.errors import Misconfigured
from app.sessions.operator import OperatorToken
from app.settings import load_settings, parse_duration
from app.settings.groups import show_duration

from .conftest import Talaria

KEY = "an-api-key-of-hermes-0123"


def test_no_relay_answers(talaria: Talaria) -> None:
    talaria.data.mkdir()
    (talaria.data / "operator-token").write_text("talaria-op-" + "x" * 43 + "\n")
    for command in ("pair", "devices"):
        done = talaria.run(command, status=1)
        assert done.stdout == ""
        said = " ".join(done.stderr.split())
        assert "no relay answers at http://127.0.0.1:1. Start it with `talaria serve`" in said


def test_no_relay_was_ever_here(talaria: Talaria) -> None:
    said = " ".join(talaria.run("token", status=1).stderr.split())
    assert f"no relay has used the data directory {talaria.data} yet" in said
    assert not talaria.data.exists()


def test_port_0_says_nothing_about_where(talaria: Talaria) -> None:
    assert "TALARIA_PORT is 0" in talaria.run("devices", status=2, PORT="0").stderr


def test_a_token_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "operator-token"
    path.write_text("x")
    path.chmod(0)
    with _as_nobody(tmp_path), pytest.raises(CommandFailed) as caught:
        host_token(tmp_path, OperatorToken)
    assert f"{path} belongs to uid {path.stat().st_uid}" in caught.value.message


def test_an_env_file_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("TALARIA_PORT=1\n")
    path.chmod(0)
    with _as_nobody(tmp_path), pytest.raises(Misconfigured) as caught:
        load_settings({}, path)
    assert f"{path} cannot be read as uid" in caught.value.message


def test_the_help_has_a_whole_line_for_each_command(talaria: Talaria) -> None:
    shown = talaria.run("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in shown] == list(ORDER)
    assert not any(line.endswith("...") for line in shown)


def test_config_hides_secrets_and_says_where_from(talaria: Talaria) -> None:
    (talaria.home / ".env").write_text("TALARIA_SESSION_TTL=7d\n")
    done = talaria.run("config", HERMES_API_KEY=KEY, HERMES_PORT="1")
    assert KEY not in done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["TALARIA_HERMES_API_KEY", "(set)", "environment"] in rows
    assert ["TALARIA_SESSION_TTL", "7d", ".env"] in rows
    assert ["TALARIA_HOST", "127.0.0.1", "default"] in rows
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "TALARIA_HERMES_PORT is no setting" in done.stderr

    as_json = talaria.run("config", "--json", HERMES_API_KEY=KEY).stdout
    assert KEY not in as_json
    (key,) = [s for s in json.loads(as_json) if s["name"] == "TALARIA_HERMES_API_KEY"]
    assert (key["value"], key["source"], key["secret"]) == ("(set)", "environment", True)


def test_help_names_every_command(talaria: Talaria) -> None:
    shown = talaria.run("--help").stdout
    for command in ("serve", "demo", "pair", "devices", "config", "token"):
        assert f"\n  {command} " in shown
    assert talaria.run("--version").stdout == "talaria 0.1.0\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"), (1, "1 second"), (90, "90 seconds"), (120, "2 minutes"), (3600, "1 hour"),
        (5400, "90 minutes"), (86400, "1 day"), (129600, "36 hours"), (30 * 86400, "30 days"), (None, "never ends"),
    ],
)  # fmt: skip
def test_durations(seconds: int | None, text: str) -> None:
    assert duration(seconds) == text


@contextmanager
def _as_nobody(directory: Path) -> Iterator[None]:
    """Root can read everything, so step down for a moment; others are stopped by the mode alone."""
    if os.geteuid() != 0:
        yield
        return
    for parent in (directory, *directory.parents[:2]):  # pytest's, which are for root only
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("written", ["90s", "15m", "36h", "7d", "14d"])
def test_a_duration_is_shown_as_it_is_written(written: str) -> None:
    assert show_duration(parse_duration(written)) == written
