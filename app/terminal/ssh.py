"""Shells on the operator's host, over SSH: what a relay in a container has.

The host is known by the one key that a setting pins, and the relay by the one key of another: no known_hosts, agent,
password or configuration of whoever the relay runs as is looked at. Connections are opened at the first need, shared,
and opened again after they died. There are several where there are many terminals, since sshd takes ten sessions on
one (`MaxSessions`).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import asyncssh

from app.tasks import Supervisor
from app.terminal.errors import HostUnavailable
from app.terminal.host import Hearer
from app.terminal.ssh_channel import Channel, Command, Terminal
from app.terminal.ssh_target import Target

CONNECT_S = 15.0
OPEN_S = 15.0
SHELL_S = 3.0  # it is only shown
KEEPALIVE_S = 10  # three of them unanswered, and the connection is dead
TERM = "xterm-256color"
WINDOW = 256 * 1024  # bytes that a paused terminal gathers here; after them its program waits
MAX_CHANNELS = 8  # of one connection. Of sshd's ten, two may still be ending when we count them as ended
MAX_CONNECTIONS = 12

# With a fingerprint the kind of key is not known, and a certificate would hide the key.
_PLAIN_KEYS = [
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
]  # fmt: skip
_CIPHERS = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr"]

Stage = Literal["connection", "host key", "login"]

log = logging.getLogger("talaria.terminal")


class Ssh:
    """A host of terminals. `shell` is known once the first connection stands."""

    name = "ssh"

    def __init__(self, target: Target, tasks: Supervisor, *, shell: str = "") -> None:
        """`shell` instead of the user's login shell."""
        self.shell = shell
        self._login = [shell, "-l"] if shell else None
        self._target, self._tasks = target, tasks
        self._lines: list[_Line] = []
        self._attempt: asyncio.Task[HostUnavailable | None] | None = None
        self._closed = False

    async def run(self, argv: Sequence[str], *, timeout_s: float = 10) -> tuple[int, bytes]:
        """A program that a signal ended has 128 and the signal's number, as in a shell."""
        command = Command(argv[0])
        await self._reserve(command)
        try:
            async with asyncio.timeout(timeout_s):
                await self._start(command, argv)
                return await command.ended
        except TimeoutError:
            raise HostUnavailable(f"{self._target} did not finish {argv[0]} in {timeout_s:g} seconds") from None
        finally:
            command.close()

    async def open(self, argv: Sequence[str] | None, cols: int, rows: int, hearer: Hearer) -> Terminal:
        terminal = Terminal(hearer)
        await self._reserve(terminal)
        try:
            async with asyncio.timeout(OPEN_S):
                await self._start(terminal, argv or self._login, term_type=TERM, term_size=(cols, rows))
        except BaseException as exc:
            terminal.close()
            if isinstance(exc, TimeoutError):
                raise HostUnavailable(f"{self._target} did not open a terminal in {OPEN_S:g} seconds") from None
            raise
        terminal.begin()
        return terminal

    async def close(self) -> None:
        self._closed = True
        lines = self._lines.copy()
        for line in lines:
            for channel in line.channels.copy():
                channel.close()
            line.connection.close()
        try:
            async with asyncio.timeout(2):  # a host that does not answer is left
                await asyncio.gather(*(line.connection.wait_closed() for line in lines))
        except TimeoutError:
            for line in lines:
                line.connection.abort()

    async def _reserve(self, channel: Channel) -> None:
        """Its place on a connection. Who comes while one is being made waits for that one, and shares its failure."""
        while (line := next((line for line in self._lines if len(line.channels) < MAX_CHANNELS), None)) is None:
            if self._closed:
                raise HostUnavailable("the relay is closing")
            if len(self._lines) >= MAX_CONNECTIONS:
                raise HostUnavailable(f"no more than {MAX_CONNECTIONS * MAX_CHANNELS} terminals are open at a time")
            if self._attempt is None or self._attempt.done():
                self._attempt = self._tasks.start(self._connect(), "ssh connection")
            if failure := await asyncio.shield(self._attempt):
                raise failure
        channel.on(line.connection, line.channels)

    async def _start(self, channel: Channel, argv: Sequence[str] | None, **terminal: Any) -> None:
        """In a task of its own: when nobody waits any more, what opens all the same is closed."""
        command = None if argv is None else shlex.join(argv)
        opening = self._tasks.start(self._create(channel, command, terminal), "ssh channel")
        if failure := await asyncio.shield(opening):
            raise failure

    async def _create(self, channel: Channel, command: str | None, terminal: dict[str, Any]) -> HostUnavailable | None:
        try:
            try:
                await self._open(channel, command, terminal)
            except asyncssh.ChannelOpenError:
                # sshd may still count channels that ended just now; when its refusal is here it has cleared them away.
                await self._open(channel, command, terminal)
        except (asyncssh.Error, OSError) as exc:
            channel.leave()
            refused = isinstance(exc, asyncssh.ChannelOpenError) and not channel.connection.is_closed()
            hint = f" (MaxSessions in its sshd_config must be {MAX_CHANNELS} or more)" if refused else ""
            return HostUnavailable(f"{self._target} did not open a session: {str(exc) or type(exc).__name__}{hint}")
        return None

    async def _open(self, channel: Channel, command: str | None, terminal: dict[str, Any]) -> None:
        await channel.connection.create_session(
            lambda: channel, command, encoding=None, window=WINDOW, request_pty=bool(terminal), **terminal
        )

    async def _connect(self) -> HostUnavailable | None:
        target, watch = self._target, _Watch(self._target.fingerprint)
        trusted = [target.host_key] if target.host_key else []
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await asyncssh.connect(
                    target.host, target.port, username=target.user, client_keys=[target.key],
                    client_factory=lambda: watch, known_hosts=(trusted, [], []),
                    server_host_key_algs=() if trusted else _PLAIN_KEYS, x509_trusted_certs=None,
                    config=None, agent_path=None, preferred_auth=["publickey"], gss_host=None, encryption_algs=_CIPHERS,
                    compression_algs=["none"], keepalive_interval=KEEPALIVE_S, keepalive_count_max=3,
                )  # fmt: skip
        except (OSError, asyncssh.Error, ValueError) as exc:
            failure = _explained(exc, target, watch)
            log.warning("no ssh connection", extra={"target": str(target), "reason": failure.message})
            return failure
        if connection.is_closed():
            return HostUnavailable(f"{target} let the relay in and closed the connection")
        line = _Line(connection)
        self._lines.append(line)
        watch.lost = lambda: self._lines.remove(line)
        log.info("ssh connection is up", extra={"target": str(target)})
        if not self.shell:
            self.shell = await self._login_shell()
        return None

    async def _login_shell(self) -> str:
        try:
            status, said = await self.run(["printenv", "SHELL"], timeout_s=SHELL_S)
        except HostUnavailable:
            return ""
        return said.decode(errors="replace").strip() if status == 0 else ""


def _explained(exc: Exception, target: Target, watch: _Watch) -> HostUnavailable:
    """At which step it failed, and what to do."""
    match exc:
        case socket.gaierror():
            said = f"{target.host} (TALARIA_SSH_HOST) has no address"
        case ValueError():  # asyncssh wants to know the name of its own user, which a container may not know
            said = "the relay does not know under which user it runs: set LOGNAME in its environment"
        case TimeoutError() if watch.stage == "connection":
            said = f"{target} does not answer: is the host up, and does its firewall let the relay in?"
        case TimeoutError():
            said = f"{target} takes connections but did not finish the {watch.stage} in {CONNECT_S:g} seconds"
        case asyncssh.HostKeyNotVerifiable():
            said = (
                f"{target} showed another host key than TALARIA_SSH_HOST_KEY, and was sent nothing: {watch.shown}. Set "
                "that one if it is really the host's"
            )
        case asyncssh.PermissionDenied():
            said = f"{target} does not let {target.user} in with TALARIA_SSH_KEY: is its .pub in authorized_keys there?"
        case OSError() if watch.stage == "connection":
            said = f"{target} cannot be reached: {exc.strerror or exc}. Does its sshd listen there?"
        case _ if watch.stage == "host key":
            said = f"{target} broke off: is that an sshd, with a host key of the kind that TALARIA_SSH_HOST_KEY pins?"
        case _:
            said = f"{target} broke off at the {watch.stage}: its sshd's log says why"
    return HostUnavailable(said, detail=f"{type(exc).__name__}: {exc}")


class _Watch(asyncssh.SSHClient):
    """How far a connection came, which key the host showed, and when it is gone."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self.stage: Stage = "connection"
        self.shown = ""
        self.lost: Callable[[], None] = lambda: None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.stage = "host key"

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Asked about keys that are not pinned as such: with a fingerprint, about each."""
        self.shown = f"{key.get_algorithm()} {key.get_fingerprint()}"
        return key.get_fingerprint() == self._fingerprint

    def begin_auth(self, username: str) -> None:
        self.stage = "login"

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()


@dataclass(slots=True)
class _Line:
    """A connection, and what is open on it."""

    connection: asyncssh.SSHClientConnection
    channels: set[Channel] = field(default_factory=set)
