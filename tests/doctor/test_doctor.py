"""The other checks, on a real relay and on the command."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import pytest

from app.clock import ManualClock
from app.demo.stand_in import serve_stand_in
from app.doctor import host, upstreams
from app.doctor.finding import Finding
from tests.relay import RunningRelay, running, settings_for
from tests.requires import requires

KEY = "stand-in-key-0123456789"


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


async def test_a_relay_with_its_hermes_is_well(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as hermes:
        settings = settings_for(
            tmp_path, HERMES_API_URL=hermes.url, HERMES_API_KEY=KEY, HERMES_DASHBOARD_URL=hermes.dashboard_url
        )
        async with running(settings) as relay:
            await relay.relay.hermes._dashboard.settled()  # type: ignore[union-attr]
            await relay.connect()
            found = by_name(await relay.relay.doctor.examine())
    assert [name for name, finding in found.items() if finding.state == "fail"] == []
    assert found["Hermes API"].says.startswith("it answers by its local route, version 0.19")
    assert found["approvals"].says.endswith("Hermes waits 60 s (mode manual)")
    assert found["public URL"].state == "warn"
    assert found["push"].says.startswith("0 of 1 devices can be woken")


@pytest.mark.parametrize(
    ("mode", "seconds", "do"), [("off", 60.0, "approvals.mode manual"), ("manual", 20.0, "approvals.timeout 300")]
)
async def test_a_hermes_that_asks_nobody_or_too_briefly(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch, mode: str, seconds: float, do: str
) -> None:
    monkeypatch.setattr(relay.relay.hermes, "approvals", lambda: (mode, seconds))
    finding = by_name(await relay.relay.doctor.examine())["approvals"]
    assert finding.state == "warn"
    assert do in (finding.do or "")


@pytest.mark.parametrize(
    ("environ", "do"),
    [
        ({"HERMES_API_URL": "http://127.0.0.1:1"}, "hermes gateway run"),
        ({"HERMES_API_KEY": "wrong-key-wrong-key-wrong"}, "set TALARIA_HERMES_API_KEY"),
    ],
)
async def test_what_is_wrong_with_hermes_comes_with_what_to_do(
    tmp_path: Path, environ: dict[str, str], do: str
) -> None:
    async with serve_stand_in(KEY) as hermes:
        settings = settings_for(tmp_path, **({"HERMES_API_URL": hermes.url, "HERMES_API_KEY": KEY} | environ))
        async with running(settings) as relay:
            found = by_name(await relay.relay.doctor.examine())
    assert found["Hermes API"].state == "fail"
    assert found["Hermes API"].layer == "upstream"
    assert do in (found["Hermes API"].do or "")


@pytest.mark.parametrize(
    ("message", "says", "do"),
    [
        ("it has another name: start it with --host", "it has another name", "start it with --host"),
        ("it wants its token; set X to Y", "it wants its token", "set X to Y, and restart the relay"),
        ("it does not accept the login", "it does not accept the login", "set TALARIA_HERMES_DASHBOARD_USERNAME and"),
    ],
)
def test_what_to_do_is_what_hermes_was_refused_for(message: str, says: str, do: str) -> None:
    state = {"state": "auth_required", "code": "upstream_auth_required", "message": message}
    found = upstreams._upstream("dashboard", state)
    assert found.says == says
    assert (found.do or "").startswith(do)


async def test_two_urls_that_lead_to_different_hermes(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as one, serve_stand_in(KEY) as other:
        settings = settings_for(
            tmp_path, HERMES_API_URL=one.url, HERMES_API_KEY=KEY, HERMES_API_REMOTE_URL=other.url,
            HERMES_DASHBOARD_URL=one.dashboard_url,
        )  # fmt: skip
        async with running(settings) as relay:
            found = by_name(await relay.relay.doctor.examine())
    assert found["Hermes API"].state == "warn"
    assert "TALARIA_HERMES_API_REMOTE_URL to the same Hermes" in (found["Hermes API"].do or "")


async def test_of_a_hermes_that_is_switched_off_nothing_is_asked(relay: RunningRelay) -> None:
    found = by_name(await relay.relay.doctor.examine())
    assert {found[name].state for name in ("Hermes API", "Hermes dashboard", "approvals")} == {"skip"}


async def test_the_operator_alone_may_ask(relay: RunningRelay) -> None:
    phone = await relay.connect()
    async with httpx.AsyncClient(base_url=relay.url) as http:
        assert (await http.get("/doctor")).status_code == 401
        assert (await http.get("/doctor", headers={"Authorization": f"Bearer {phone.token}"})).status_code == 401
        answer = await http.get("/doctor", headers=relay.operator())
        assert [one for one in answer.json()["findings"] if one["state"] == "fail"] == []
        assert answer.json()["ok"] is True
        for path in ("/doctor/probe", "/doctor/probe/stream"):
            assert (await http.get(path)).status_code == 404
            assert (await http.get(path, headers={"X-Talaria-Probe": "guess"})).status_code == 404


async def test_a_check_that_breaks_hides_no_other(relay: RunningRelay) -> None:
    async def broken() -> list[Finding]:
        raise ValueError("secret")

    relay.relay.doctor._groups["broken"] = broken
    found = by_name(await relay.relay.doctor.examine())
    assert found["broken"].state == "fail"
    assert "secret" not in found["broken"].says
    assert found["database"].state == "ok"


async def test_who_asks_while_it_looks_gets_what_it_finds(relay: RunningRelay) -> None:
    """Each client gives up after 90 s, and one run may take 60."""
    begun, may_end, runs = asyncio.Event(), asyncio.Event(), 0

    async def slow() -> list[Finding]:
        nonlocal runs
        runs += 1
        begun.set()
        await may_end.wait()
        return [Finding("slow", "ok", f"run {runs}")]

    relay.relay.doctor._groups["slow"] = slow
    async with asyncio.TaskGroup() as callers:
        first = callers.create_task(relay.relay.doctor.examine())
        await begun.wait()
        second = callers.create_task(relay.relay.doctor.examine())
        first.cancel()
        await asyncio.sleep(0)  # so that both have done so
        may_end.set()
    assert by_name(second.result())["slow"].says == "run 1", "it ended with the one that began it, or ran twice"
    assert by_name(await relay.relay.doctor.examine())["slow"].says == "run 2", "what was found is out of date"


async def test_without_a_relay_the_host_is_looked_at(tmp_path: Path) -> None:
    settings, clock = settings_for(tmp_path / "data"), ManualClock()
    assert by_name(host.look(settings.server, clock))["data directory"].state == "fail"
    async with running(settings, clock=clock) as relay:
        await relay.connect()
    found = by_name(host.look(settings.server, clock))
    assert {finding.state for finding in found.values()} == {"ok"}
    clock.advance(-3600)
    assert "behind what was stored last" in by_name(host.look(settings.server, clock))["clock"].says
    (tmp_path / "data" / "operator-token").chmod(0o644)
    assert "operator-token" in (by_name(host.look(settings.server, clock))["key files"].do or "")
    with closing(sqlite3.connect(tmp_path / "data" / "talaria.db")) as db, db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "newer Talaria" in by_name(host.look(settings.server, clock))["schema"].says
    (tmp_path / "data" / "talaria.db").write_bytes(b"spoilt" * 100)
    assert "restore" in (by_name(host.look(settings.server, clock))["database"].do or "")


@pytest.mark.parametrize(
    ("environ", "state", "says"),
    [
        ({"TERMINAL_BACKEND": "off"}, "skip", "switched off"),
        ({"TERMINAL_BACKEND": "local"}, "ok", "in tmux"),
        (
            {
                "TERMINAL_BACKEND": "ssh", "SSH_HOST": "127.0.0.1", "SSH_PORT": "1", "SSH_USER": "nobody",
                "SSH_HOST_KEY": "SHA256:" + "A" * 43,
            },
            "fail", "127.0.0.1",
        ),
    ],
)  # fmt: skip
async def test_whether_devices_can_have_shells(tmp_path: Path, environ: dict[str, str], state: str, says: str) -> None:
    requires("tmux")
    if "SSH_HOST" in environ:
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "key")
        (tmp_path / "key").chmod(0o600)
        environ = environ | {"SSH_KEY": str(tmp_path / "key")}
    async with running(settings_for(tmp_path / "data", **environ)) as relay:
        finding = by_name(await relay.relay.doctor.examine())["terminal"]
    assert finding.state == state
    assert says in finding.says


async def test_a_tailscale_that_hangs_is_named_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def watched(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*args, **options))
        return started[-1]

    (tmp_path / "tailscale").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "tailscale").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("app.doctor.upstreams.TAILSCALE_S", 0.01)
    monkeypatch.setattr("app.doctor.upstreams.asyncio.create_subprocess_exec", watched)
    finding = await upstreams.tailscale(8767)
    assert finding.state == "warn"
    assert "tailscale status" in (finding.do or "")
    assert [process.returncode for process in started] == [-signal.SIGKILL]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that is another user's")
def test_a_database_of_another_user_is_not_called_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talaria.db"
    path.touch()
    os.chown(path, 4711, 4711)
    monkeypatch.setattr("app.doctor.host.os.access", lambda found, _: found != path)
    found = by_name(host.look(settings_for(tmp_path).server, ManualClock()))["database"]
    assert "belongs to uid 4711" in found.says
    assert "restore" not in (found.do or "")


def test_its_advice_can_be_pasted_where_a_path_has_spaces(tmp_path: Path) -> None:
    data_dir = tmp_path / "my data"
    data_dir.mkdir()
    (data_dir / "operator-token").touch(0o644)
    (data_dir / "operator-token").chmod(0o644)
    finding = by_name(host.look(settings_for(data_dir).server, ManualClock()))["key files"]
    assert finding.do is not None
    subprocess.run(["sh", "-c", finding.do.strip("`")], check=True)
    assert "key files" not in by_name(host.look(settings_for(data_dir).server, ManualClock()))


async def test_a_hermes_that_never_comes_to_an_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass
        writer.close()

    monkeypatch.setattr("app.doctor.upstreams.UPSTREAM_S", 0.5)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running(settings_for(tmp_path, HERMES_API_URL=url, HERMES_API_KEY=KEY)) as relay:
        found = by_name(await relay.relay.doctor.examine())
    assert found["Hermes API"].state == "fail"
    assert "hermes gateway run" in (found["Hermes API"].do or "")
    assert "Hermes plugin" in found
    assert "upstreams" not in found


def test_a_directory_that_others_may_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the volume of a container nobody else is there, and its mode comes from the image."""
    monkeypatch.setattr("app.container.MARKS", ())
    tmp_path.chmod(0o777)
    server = settings_for(tmp_path).server
    found = by_name(host.look(server, ManualClock()))["data directory"]
    assert (found.state, found.do) == ("warn", f"`chmod 700 {tmp_path}`")
    monkeypatch.setattr("app.doctor.host.os.getuid", lambda: 4711)
    found = by_name(host.look(server, ManualClock()))["data directory"]
    assert found.do == f"`chown 4711 {tmp_path} && chmod 700 {tmp_path}`", "the relay would be locked out"
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setattr("app.container.MARKS", (str(tmp_path / ".dockerenv"),))
    assert by_name(host.look(server, ManualClock()))["data directory"].state == "ok"
