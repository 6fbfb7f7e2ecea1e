"""Terminals over SSH, on a real sshd with real shells."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pwd
import random
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncssh
import pytest

from app.errors import Misconfigured
from app.settings import SshSettings
from app.tasks import Supervisor
from app.terminal import ssh as ssh_module
from app.terminal.errors import TerminalUnavailable
from app.terminal.ssh import MAX_CHANNELS, WINDOW, Ssh
from app.terminal.ssh_target import Target
from tests.terminal.sshd import Sshd, running_sshd

WAIT = 15.0  # seconds until a test that waits has failed

HostOf = Callable[..., Ssh]


class Heard:
    """What a terminal said, and how it ended."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.end: asyncio.Future[tuple[int | None, str | None]] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()

    def output(self, data: bytes) -> None:
        assert not self.end.done(), "output after the end"
        self.said += data
        self._news.set()

    def ended(self, status: int | None, signal: str | None) -> None:
        self.end.set_result((status, signal))

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(WAIT):
            while text not in self.said:
                self._news.clear()
                await self._news.wait()

    async def ends(self) -> tuple[int | None, str | None]:
        return await asyncio.wait_for(self.end, WAIT)


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    async with running_sshd(tmp_path) as sshd:
        yield sshd


@pytest.fixture
async def host_of() -> AsyncIterator[HostOf]:
    """Makes hosts, and closes them."""
    async with Supervisor() as tasks:
        made: list[Ssh] = []

        def make(settings: SshSettings, shell: str = "") -> Ssh:
            made.append(Ssh(Target.of(settings), tasks, shell=shell))
            return made[-1]

        yield make
        for host in made:
            await host.close()


@pytest.fixture
def host(sshd: Sshd, host_of: HostOf) -> Ssh:
    return host_of(sshd.settings)


async def refusal(doing: Awaitable[object]) -> TerminalUnavailable:
    with pytest.raises(TerminalUnavailable) as caught:
        await asyncio.wait_for(doing, WAIT)
    assert (caught.value.code, caught.value.layer) == ("terminal_unavailable", "upstream")
    return caught.value


# Commands


async def test_a_command_has_a_status_and_says_what_it_says(host: Ssh) -> None:
    assert await host.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) in [(3, b"out\nerr\n"), (3, b"err\nout\n")]


async def test_arguments_arrive_as_they_are(host: Ssh) -> None:
    odd = ["a b", "$HOME", "'\"`;&|", "", "*", "line\nline", "ü"]
    status, said = await host.run(["printf", "%s\\0", *odd])
    assert (status, said.decode().split("\0")[:-1]) == (0, odd)


async def test_a_command_that_is_killed_has_the_status_that_a_shell_gives_it(host: Ssh) -> None:
    assert await host.run(["sh", "-c", "kill -9 $$"]) == (128 + 9, b"")


async def test_a_command_without_an_end_is_given_up(host: Ssh) -> None:
    await host.run(["true"])
    assert "did not finish sleep" in (await refusal(host.run(["sleep", "1000"], timeout_s=0.05))).message
    assert await host.run(["echo", "on"]) == (0, b"on\n")


async def test_a_command_that_says_too_much_is_stopped(host: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.terminal.ssh_channel.MAX_OUTPUT", 100_000)
    assert "more than" in (await refusal(host.run(["yes"]))).message


async def test_a_command_waits_for_no_input(host: Ssh) -> None:
    assert await host.run(["cat"]) == (0, b"")


# Terminals


async def test_a_terminal_echoes_follows_its_size_and_has_a_status(host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(["env", "PS1=> ", "sh"], 93, 41, heard)
    await heard.until(b"> ")
    terminal.write(b"stty size; echo $TERM\n")
    await heard.until(b"41 93\r\nxterm-256color\r\n")
    terminal.resize(120, 30)
    terminal.write(b"stty size\n")
    await heard.until(b"30 120\r\n")
    terminal.write(b"exit 7\n")
    assert await heard.ends() == (7, None)
    terminal.write(b"nobody")  # what comes too late does no harm
    terminal.resize(1, 1)
    terminal.pause()
    terminal.resume()
    terminal.close()
    assert terminal.unwritten == 0


async def test_the_login_shell_is_the_one_of_the_user(host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(None, 80, 24, heard)
    terminal.write(b"shopt -q login_shell 2>/dev/null; echo is=$0=$?; exit\n")
    await heard.until(b"is=-")
    assert await heard.ends() == (0, None)
    assert host.shell == pwd.getpwuid(os.getuid()).pw_shell


async def test_another_shell_may_be_set(sshd: Sshd, host_of: HostOf) -> None:
    host = host_of(sshd.settings, shell="/bin/sh")
    heard = Heard()
    (await host.open(None, 80, 24, heard)).write(b"echo is=$0; exit\n")
    await heard.until(b"is=/bin/sh")
    assert host.shell == "/bin/sh"


async def test_the_signal_that_ended_a_program_is_named(host: Ssh) -> None:
    heard = Heard()
    await host.open(["sh", "-c", "kill -TERM $$"], 80, 24, heard)
    assert await heard.ends() == (None, "SIGTERM")


async def test_all_output_comes_before_the_end(host: Ssh) -> None:
    heard = Heard()
    await host.open(["seq", "200000"], 80, 24, heard)
    assert await heard.ends() == (0, None)
    assert heard.said == b"".join(b"%d\r\n" % n for n in range(1, 200001))


async def test_closing_hangs_up(host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(["sh", "-c", "echo pid=$$; exec sleep 1000"], 80, 24, heard)
    await heard.until(b"\n")
    pid = heard.said.split(b"=")[1].strip().decode()
    terminal.close()
    await heard.ends()
    async with asyncio.timeout(WAIT):
        while (await host.run(["kill", "-0", pid]))[0] == 0:
            pass


async def test_closing_does_not_wait_for_input_that_nobody_reads(host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(["sh", "-c", "stty raw -echo; echo ready; exec sleep 30"], 80, 24, heard)
    await heard.until(b"ready")
    terminal.write(b"x" * 4_000_000)
    assert terminal.unwritten > 1_000_000  # sshd takes 2 MiB ahead
    terminal.close()
    assert terminal.unwritten == 0
    await heard.ends()


class SignalServer(asyncssh.SSHServer):
    """Lets everyone in and notes which signals their sessions are sent: an sshd that runs as root refuses them."""

    def __init__(self, signals: asyncio.Queue[str]) -> None:
        self._signals = signals

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        signals = self._signals

        class Session(asyncssh.SSHServerSession[bytes]):
            def pty_requested(self, *_: object) -> bool:
                return True

            def exec_requested(self, command: str) -> bool:
                return True

            def signal_received(self, signal: str) -> None:
                signals.put_nowait(signal)

        return Session()


async def test_closing_sends_the_signal_of_a_hangup(sshd: Sshd, host_of: HostOf) -> None:
    signals: asyncio.Queue[str] = asyncio.Queue()
    async with await asyncssh.create_server(
        lambda: SignalServer(signals), "127.0.0.1", 0, server_host_keys=[sshd.host_key], encoding=None
    ) as server:
        heard = Heard()
        host = host_of(sshd.with_settings(ssh_port=server.get_port()), shell="/bin/sh")
        terminal = await host.open(["sh"], 80, 24, heard)
        terminal.close()
        assert await asyncio.wait_for(signals.get(), WAIT) == "HUP"


async def test_a_program_waits_for_a_reader_that_pauses(host: Ssh, tmp_path: Path) -> None:
    flood, finished = 4 * 1024 * 1024, tmp_path / "finished"  # far more than the window and sshd hold
    heard = Heard()
    script = f"stty raw; head -c {flood} /dev/zero; touch {finished}"
    terminal = await host.open(["sh", "-c", script], 80, 24, heard)
    terminal.pause()
    for _ in range(10):  # commands still have their turn on the same connection, and what is read stays the same
        assert (await host.run(["test", "-e", str(finished)]))[0] == 1
        assert heard.said == b""
    terminal.resume()
    await heard.until(b"\0")
    terminal.pause()
    held = len(heard.said)
    await host.run(["true"])
    assert len(heard.said) == held <= WINDOW + flood / 2
    terminal.resume()
    assert await heard.ends() == (0, None)
    assert len(heard.said) == flood
    assert finished.exists()


async def test_a_paste_of_a_megabyte_arrives_whole(host: Ssh) -> None:
    paste = random.Random(1).randbytes(1_000_000)
    heard = Heard()
    script = "stty raw -echo; echo ready; head -c 1000000 | sha256sum"
    terminal = await host.open(["sh", "-c", script], 80, 24, heard)
    await heard.until(b"ready")
    for begin in range(0, len(paste), 50_000):
        terminal.write(paste[begin : begin + 50_000])
    assert await heard.ends() == (0, None)
    assert hashlib.sha256(paste).hexdigest().encode() in heard.said
    assert terminal.unwritten == 0


async def test_many_small_writes_that_nobody_reads_take_little(host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(
        ["sh", "-c", "stty raw -echo; echo ready; read -r line; exec head -c 20000"], 80, 24, heard
    )
    await heard.until(b"ready")
    terminal.pause()
    while not terminal.unwritten:
        terminal.write(bytes(256 * 1024))
    waiting = terminal.unwritten
    tracemalloc.start()
    try:
        for _ in range(20_000):
            terminal.write(b"x")
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert terminal.unwritten == waiting + 20_000
    terminal.close()
    await heard.ends()


# Connections


async def test_one_connection_is_shared_until_it_has_no_room(sshd: Sshd, host: Ssh) -> None:
    heard = [Heard() for _ in range(MAX_CHANNELS)]
    terminals = await asyncio.gather(*(host.open(["cat"], 80, 24, one) for one in heard))
    assert len(sshd.connections) == 1
    more = Heard()
    terminals.append(await host.open(["cat"], 80, 24, more))
    assert len(sshd.connections) == 2
    for terminal in terminals:
        terminal.close()
    for one in (*heard, more):
        await one.ends()
    for _ in range(3 * MAX_CHANNELS):  # places come back
        await host.run(["true"])
    assert len(sshd.connections) == 2


async def test_there_is_a_bound_of_connections(sshd: Sshd, host: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_module, "MAX_CONNECTIONS", 1)
    for _ in range(MAX_CHANNELS):
        await host.open(["cat"], 80, 24, Heard())
    assert "no more than" in (await refusal(host.open(["cat"], 80, 24, Heard()))).message
    assert len(sshd.connections) == 1


async def test_a_host_that_takes_fewer_sessions_says_what_to_set(tmp_path: Path, host_of: HostOf) -> None:
    async with running_sshd(tmp_path, MaxSessions="1") as sshd:
        host = host_of(sshd.settings)
        heard = Heard()
        terminal = await host.open(["cat"], 80, 24, heard)
        assert "MaxSessions" in (await refusal(host.run(["true"]))).message
        terminal.write(b"\x04")
        assert await heard.ends() == (0, None)
        assert await host.run(["echo", "room"]) == (0, b"room\n")


async def test_a_connection_that_died_ends_its_terminals_and_the_next_one_is_new(sshd: Sshd, host: Ssh) -> None:
    heard = Heard()
    terminal = await host.open(["cat"], 80, 24, heard)
    running = asyncio.ensure_future(host.run(["sleep", "1000"], timeout_s=WAIT))
    await host.run(["true"])
    await sshd.drop()
    assert await heard.ends() == (None, None)
    assert "was lost" in (await refusal(running)).message
    terminal.write(b"nobody")
    assert await host.run(["echo", "back"]) == (0, b"back\n")
    assert len(sshd.connections) == 2


async def test_a_host_that_is_off_is_said_and_found_again(sshd: Sshd, host: Ssh) -> None:
    await host.run(["true"])
    await sshd.kill()
    assert "cannot be reached" in (await refusal(host.run(["true"]))).message
    assert "cannot be reached" in (await refusal(host.open(None, 80, 24, Heard()))).message
    await sshd.restart()
    assert await host.run(["echo", "back"]) == (0, b"back\n")


async def test_who_comes_together_shares_one_attempt(sshd: Sshd, host: Ssh) -> None:
    assert await asyncio.gather(*(host.run(["true"]) for _ in range(MAX_CHANNELS))) == [(0, b"")] * MAX_CHANNELS
    assert len(sshd.connections) == 1


async def test_who_goes_away_meanwhile_leaves_nothing_behind(host: Ssh, tmp_path: Path) -> None:
    await host.run(["true"])
    script = tmp_path / "left-behind"
    script.write_text("exec sleep 1000\n")
    for rounds in range(40):
        opening = asyncio.ensure_future(host.open(["sh", str(script)], 80, 24, Heard()))
        for _ in range(rounds):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        if not opening.cancelled():
            opening.result().close()
    async with asyncio.timeout(WAIT):
        while (await host.run(["pgrep", "-f", f"^sh {script}"]))[0] == 0:
            pass
    for _ in range(MAX_CHANNELS):
        await host.open(["cat"], 80, 24, Heard())  # all places are free


# Keys


async def test_a_host_with_another_key_is_refused_before_anything_is_sent(sshd: Sshd, host_of: HostOf) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    refused = await refusal(host_of(sshd.with_settings(ssh_host_key=other)).run(["true"]))
    assert "was sent nothing" in refused.message
    assert sshd.host_key.get_fingerprint() in refused.message
    await sshd.connections[0].wait()
    assert "Connection from" in sshd.log
    assert "Accepted" not in sshd.log
    assert "user" not in sshd.log  # it was not even told a name


async def test_a_key_of_another_kind_is_pinned(sshd: Sshd, host_of: HostOf) -> None:
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
    refused = await refusal(host_of(sshd.with_settings(ssh_host_key=other)).run(["true"]))
    assert "a host key of the kind" in refused.message


async def test_a_fingerprint_or_a_line_of_ssh_keyscan_pins_as_well(sshd: Sshd, host_of: HostOf) -> None:
    line = f"[127.0.0.1]:22,example.org {sshd.host_key.export_public_key().decode()}"
    for pin in (sshd.host_key.get_fingerprint(), line):
        assert await host_of(sshd.with_settings(ssh_host_key=pin)).run(["echo", "in"]) == (0, b"in\n")
    other = asyncssh.generate_private_key("ssh-ed25519").get_fingerprint()
    assert "was sent nothing" in (await refusal(host_of(sshd.with_settings(ssh_host_key=other)).run(["true"]))).message


async def test_no_key_but_the_one_that_is_set_is_tried(
    sshd: Sshd, host_of: HostOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "own-home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_bytes((sshd.directory / "key").read_bytes())  # it would let us in
    (home / ".ssh" / "config").write_text(f"Host *\n IdentityFile {home}/.ssh/id_ed25519\n")
    monkeypatch.setenv("HOME", str(home))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        agent.setblocking(False)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        private_key(tmp_path / "other")
        host = host_of(sshd.with_settings(ssh_key=tmp_path / "other"))
        assert "authorized_keys" in (await refusal(host.run(["true"]))).message
        with pytest.raises(BlockingIOError):
            agent.accept()


def private_key(path: Path) -> asyncssh.SSHKey:
    """A new one, in a file that only its owner reads."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(path)
    path.chmod(0o600)
    return key


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ssh_user": None}, "TALARIA_SSH_USER is not set"),
        ({"ssh_key": None}, "ssh-keygen -t ed25519"),
        ({"ssh_key": Path("/nowhere/key")}, "/nowhere/key cannot be read: No such file"),
        ({"ssh_key": Path(__file__)}, "is not a private key without a passphrase"),
        ({"ssh_host_key": None}, "`ssh-keyscan -t ed25519 -p 2222 example.org` prints"),
        ({"ssh_host_key": "SHA256:short"}, "neither a public key nor"),
        ({"ssh_host_key": "ssh-ed25519 AAAA"}, "neither a public key nor"),
        ({"ssh_host_key": "MD5:00:11"}, "neither a public key nor"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    key = private_key(tmp_path / "key")
    settings = SshSettings(
        ssh_host="example.org", ssh_port=2222, ssh_user="me", ssh_key=tmp_path / "key",
        ssh_host_key=key.export_public_key().decode(),
    )  # fmt: skip
    Target.of(settings)
    with pytest.raises(Misconfigured) as caught:
        Target.of(settings.model_copy(update=changes))
    assert says in caught.value.message


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_key_that_anybody_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    key = private_key(tmp_path / "key")
    settings = SshSettings(
        ssh_host="example.org", ssh_user="me", ssh_key=tmp_path / "key", ssh_host_key=key.get_fingerprint()
    )
    Target.of(settings)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(Misconfigured, match=f"chmod 600 {tmp_path}/key"):
        Target.of(settings)


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "key", "pkcs8-pem", passphrase="hunter2")
    settings = SshSettings(
        ssh_host="example.org", ssh_user="me", ssh_key=tmp_path / "key", ssh_host_key=key.get_fingerprint()
    )
    with pytest.raises(Misconfigured, match="is not a private key without a passphrase"):
        Target.of(settings)


# What may stand in the way


async def test_a_name_without_an_address_is_named(sshd: Sshd, host_of: HostOf) -> None:
    refused = await refusal(host_of(sshd.with_settings(ssh_host="no-such-host.invalid")).run(["true"]))
    assert "TALARIA_SSH_HOST) has no address" in refused.message


@pytest.mark.parametrize(
    ("answer", "says"), [(b"", "did not finish the host key"), (b"HTTP/1.1 400\r\n\r\n", "is that an sshd")]
)
async def test_what_listens_there_may_not_be_an_sshd(
    sshd: Sshd, host_of: HostOf, monkeypatch: pytest.MonkeyPatch, answer: bytes, says: str
) -> None:
    if not answer:  # nothing but time ends that
        monkeypatch.setattr(ssh_module, "CONNECT_S", 0.3)

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        if answer:
            writer.close()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert says in (await refusal(host_of(sshd.with_settings(ssh_port=port)).run(["true"]))).message


async def test_a_user_without_a_name_says_what_to_set(host: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container under any uid: asyncssh asks for the name of its own user."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert "LOGNAME" in (await refusal(host.run(["true"]))).message
    monkeypatch.setenv("LOGNAME", "talaria")
    assert await host.run(["echo", "in"]) == (0, b"in\n")
