"""Where to connect, and the two keys: ours, and the one that the host must show."""

from __future__ import annotations

import binascii
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from app.errors import Misconfigured
from app.settings import SshSettings


@dataclass(frozen=True, slots=True)
class Target:
    """Where, as whom, with which key, and which key the host must show."""

    host: str
    port: int
    user: str
    key: asyncssh.SSHKey
    fingerprint: str  # SHA256:…
    host_key: asyncssh.SSHKey | None  # None where only the fingerprint is pinned

    @classmethod
    def of(cls, settings: SshSettings) -> Target:
        """Raises Misconfigured, naming the setting and what it takes."""
        host, user, path = settings.ssh_host, settings.ssh_user, settings.ssh_key
        assert host, "without a host nobody asks"
        if not user:
            raise Misconfigured("TALARIA_SSH_USER is not set: whose shells they are")
        if path is None:
            raise Misconfigured("TALARIA_SSH_KEY is not set: make a key with `ssh-keygen -t ed25519 -N '' -f FILE`")
        where = f"ssh-keyscan -t ed25519 -p {settings.ssh_port} {host}"
        if not settings.ssh_host_key:
            raise Misconfigured(
                f"TALARIA_SSH_HOST_KEY is not set, so any host could pose as {host}: give it the line that `{where}` "
                "prints, run where you trust the network"
            )
        fingerprint, host_key = _pinned(settings.ssh_host_key, where)
        return cls(host, settings.ssh_port, user, _private_key(path), fingerprint, host_key)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _pinned(text: str, where: str) -> tuple[str, asyncssh.SSHKey | None]:
    """A fingerprint, and the key where there is one: in a line of its own, or of known_hosts with the names before."""
    if re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", text):
        return text, None
    parts = text.split()
    begin = next((n for n, part in enumerate(parts) if part.startswith(("ssh-", "ecdsa-"))), None)
    if begin is not None:
        try:
            key = asyncssh.import_public_key(" ".join(parts[begin : begin + 2]))
        except (asyncssh.KeyImportError, binascii.Error):
            pass
        else:
            return key.get_fingerprint(), key
    raise Misconfigured(f"TALARIA_SSH_HOST_KEY is neither a public key nor a SHA256: fingerprint: `{where}` prints it")


def _private_key(path: Path) -> asyncssh.SSHKey:
    try:
        key, of = asyncssh.read_private_key(path), path.stat()
    except OSError as exc:
        raise Misconfigured(f"TALARIA_SSH_KEY: {path} cannot be read: {exc.strerror}") from exc
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        raise Misconfigured(f"TALARIA_SSH_KEY: {path} is not a private key without a passphrase") from None
    if of.st_uid == os.geteuid() and of.st_mode & stat.S_IRWXO:  # a container's secrets are another's, as they are
        raise Misconfigured(f"TALARIA_SSH_KEY: every user of this host can get at {path}: run `chmod 600 {path}`")
    return key
