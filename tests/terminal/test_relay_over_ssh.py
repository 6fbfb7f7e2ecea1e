"""What a relay in a container has: its terminals are on another host, through a real relay and a real sshd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from app.bootstrap import open_relay
from app.errors import Misconfigured
from app.settings import Settings
from tests.phone import WAIT
from tests.relay import RunningRelay, running, settings_for
from tests.terminal.conftest import SHELL
from tests.terminal.seat import seat
from tests.terminal.sshd import Sshd, running_sshd


def settings_of(sshd: Sshd, data_dir: Path, **environ: str) -> Settings:
    ssh = {name.upper(): str(value) for name, value in sshd.settings.model_dump().items()}
    return settings_for(data_dir, **({"TERMINAL_BACKEND": "ssh", "TERMINAL_SHELL": SHELL} | ssh | environ))


@asynccontextmanager
async def host(home: Path, tmp_path: Path, **environ: str) -> AsyncIterator[Sshd]:
    """`environ` of what it runs. The home's profile sets the prompt."""
    directory = tmp_path / "host"
    directory.mkdir()
    async with running_sshd(directory, {"HOME": str(home)} | environ) as sshd:
        yield sshd


@pytest.fixture
async def with_tmux(home: Path, tmux_server: Path, tmp_path: Path) -> AsyncIterator[tuple[Sshd, Settings]]:
    async with host(home, tmp_path, TMUX_TMPDIR=str(tmux_server)) as sshd:
        yield sshd, settings_of(sshd, tmp_path / "data")


@pytest.fixture
async def bare(home: Path, no_tmux: None, tmp_path: Path) -> AsyncIterator[tuple[Sshd, Settings]]:
    async with host(home, tmp_path, PATH=str(tmp_path / "programs")) as sshd:
        yield sshd, settings_of(sshd, tmp_path / "data")


Place = tuple[Sshd, Settings]


@pytest.fixture
def place(either: str, request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(either)
    return found


async def test_a_device_has_a_shell_there(place: Place, either: str) -> None:
    sshd, settings = place
    async with running(settings) as relay:
        it = await seat(relay, cols=90, rows=20)
        assert (it.attached["shell"], it.attached["tmux_available"]) == (SHELL, either == "with_tmux")
        assert str(sshd.settings.ssh_host) in await it.run("echo ${SSH_CONNECTION}")
        assert "hi-42 héllo" in await it.run("echo hi-$((40+2)) héllo")
        assert await it.size() == (90, 20)
        await it.phone.send("terminal", "terminal.resize", session_name="work", cols=70, rows=30)
        async with asyncio.timeout(WAIT):
            while await it.size() != (70, 30):  # tmux takes its time
                pass
        await it.type("exit 7\r")
        assert (await it.detached())["status"] == 7


async def test_sessions_are_shared_listed_and_killed(place: Place) -> None:
    _, settings = place
    async with running(settings) as relay:
        one, two = await seat(relay), await seat(relay)
        await one.type("echo from-$((1+0))\r")
        await two.until("from-1")
        listed = (await one.phone.ask("terminal", "terminal.list")).payload["sessions"]
        assert [session["name"] for session in listed] == ["work"]
        killed = await one.phone.ask("terminal", "terminal.kill", session_name="work")
        assert killed.payload == {"session_name": "work", "reason": "client kill"}
        assert (await two.detached())["reason"] == "client kill"


async def test_a_paste_of_a_megabyte_arrives_whole(place: Place, tmp_path: Path) -> None:
    _, settings = place
    async with running(settings) as relay:
        it = await seat(relay)
        await it.type(f"stty raw -echo; echo re''ady; head -c 1000000 > {tmp_path}/paste; stty sane; echo do''ne\r")
        await it.until("ready")
        await it.type("".join(chr(ord("a") + n % 26) for n in range(1_000_000)))
        await it.until("done")
        assert (tmp_path / "paste").read_bytes() == bytes(ord("a") + n % 26 for n in range(1_000_000))


async def test_with_tmux_a_session_outlives_the_relay(with_tmux: Place) -> None:
    _, settings = with_tmux
    async with running(settings) as relay:
        it = await seat(relay)
        await it.run("marked=still-here")
    async with running(settings) as relay:
        again = await seat(relay)
        assert again.attached["reattach"] is True
        assert again.attached["pid"] == it.attached["pid"]
        assert "still-here" in await again.run("echo $marked")


async def test_a_broken_connection_detaches_and_the_next_one_finds_the_session(place: Place, either: str) -> None:
    sshd, settings = place
    async with running(settings) as relay:
        it = await seat(relay)
        await it.run("marked=still-here")
        await sshd.drop()
        assert (await it.detached())["status"] is None
        again = await seat(relay)
        assert again.attached["reattach"] is (either == "with_tmux")
        assert ("still-here" in await again.run("echo =$marked=")) is (either == "with_tmux")


async def test_a_host_that_cannot_be_had_is_said_with_its_step(bare: Place, tmp_path: Path) -> None:
    sshd, settings = bare
    async with running(settings) as relay:
        await sshd.kill()
        await _refused(relay, "cannot be reached")
        await sshd.restart()
        assert (await seat(relay)).attached["session_name"] == "work"
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    async with running(settings_of(sshd, tmp_path / "data", SSH_HOST_KEY=other)) as relay:
        await _refused(relay, "showed another host key than TALARIA_SSH_HOST_KEY")


async def _refused(relay: RunningRelay, says: str) -> None:
    answer = await (await relay.connect()).ask("terminal", "terminal.attach", session_name="work")
    error = answer.payload
    assert (error["code"], error["layer"], error["retryable"]) == ("terminal_unavailable", "upstream", True)
    assert says in error["message"]


async def test_without_a_pinned_host_key_the_relay_does_not_start(bare: Place, tmp_path: Path) -> None:
    sshd, _ = bare
    with pytest.raises(Misconfigured, match="`ssh-keyscan -t ed25519 -p"):
        async with open_relay(settings_of(sshd, tmp_path / "data", SSH_HOST_KEY="")):
            pass


async def test_without_a_host_the_terminal_is_off_as_in_the_image(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TERMINAL_BACKEND="ssh")) as relay:
        answer = await (await relay.connect()).ask("terminal", "terminal.attach", session_name="work")
        assert answer.payload["code"] == "terminal_off"
