"""A real sshd on a free port, in its inetd mode: one process for each connection, which a test can count and kill."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from app.settings import SshSettings
from tests.requires import requires

CONFIG = """\
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
PidFile none
LogLevel VERBOSE
"""


@dataclass(slots=True)
class Sshd:
    """`settings` are those that let the relay in. `connections` are the processes that serve one each."""

    directory: Path
    host_key: asyncssh.SSHKey
    settings: SshSettings
    listener: socket.socket
    program: Path
    group: asyncio.TaskGroup
    connections: list[asyncio.subprocess.Process] = field(default_factory=list)
    accepting: asyncio.Task[None] | None = None

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def with_settings(self, **changes: object) -> SshSettings:
        return self.settings.model_copy(update=changes)

    async def start(self) -> None:
        self.accepting = self.group.create_task(self._accept())

    async def kill(self) -> None:
        """As a host that is switched off: every connection breaks, and nothing listens."""
        if self.accepting:
            self.accepting.cancel()
            await asyncio.wait([self.accepting])
        self.listener.close()
        await self.drop()

    async def drop(self) -> None:
        """Every connection breaks; new ones are taken."""
        for process in self.connections:
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(process.pid, signal.SIGKILL)  # and what it forked; shells have a session of their own
            await process.wait()

    async def restart(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", self.settings.ssh_port))
        self.listener.setblocking(False)
        await self.start()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self.listener)
            connection.setblocking(True)
            with connection, (self.directory / "log").open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    self.program, "-i", "-e", "-f", self.directory / "sshd_config",
                    stdin=connection.fileno(), stdout=connection.fileno(), stderr=log, start_new_session=True,
                )  # fmt: skip
            self.connections.append(process)


@asynccontextmanager
async def running_sshd(
    directory: Path, environ: Mapping[str, str] | None = None, **config: str
) -> AsyncIterator[Sshd]:  # fmt: skip
    """Skips where there is no sshd. `config` are further lines of its sshd_config.

    `environ` is what programs get besides; their home is empty unless it names one: bash reads a .bashrc under sshd.
    """
    program = requires("sshd")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where a root's sshd separates privileges
    host_key, own_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    for name, key in (("host_key", host_key), ("key", own_key)):
        key.write_private_key(directory / name)
        (directory / name).chmod(0o600)
    own = own_key.export_public_key().decode()
    (directory / "authorized_keys").write_text(f'restrict,pty,from="127.0.0.1,::1" {own}')  # as deploy/guide.md says
    (directory / "home").mkdir()
    environ = {"HOME": str(directory / "home")} | dict(environ or {})
    config["SetEnv"] = " ".join(f"{name}={value}" for name, value in environ.items())
    lines = CONFIG.format(directory=directory) + "".join(f"{name} {value}\n" for name, value in config.items())
    (directory / "sshd_config").write_text(lines)
    (directory / "log").touch()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    settings = SshSettings(
        ssh_host="127.0.0.1", ssh_port=listener.getsockname()[1], ssh_user=getpass.getuser(), ssh_key=directory / "key",
        ssh_host_key=host_key.export_public_key().decode(),
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        sshd = Sshd(directory, host_key, settings, listener, program, group)
        await sshd.start()
        try:
            yield sshd
        finally:
            await sshd.kill()
