"""The keys that sign session tokens: `session-keys.json`, kid → Ed25519, used for nothing else.

The one with the highest number signs, all verify. So a file with one more key is a rotation, and taking one out ends
its sessions. Numbers, not times: home servers' clocks jump.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.errors import Misconfigured
from app.sessions.files import read_or_make, replace

FILE = "session-keys.json"


class Signing(NamedTuple):
    """The key that signs and its name, of one moment: a rotation runs beside whoever signs."""

    kid: str
    private: Ed25519PrivateKey


class SessionKeys:
    """`signing` signs; `public` has every key by its kid."""

    def __init__(self, path: Path, found: dict[str, tuple[int, Ed25519PrivateKey]]) -> None:
        self._path = path
        self._use(found)

    def _use(self, found: dict[str, tuple[int, Ed25519PrivateKey]]) -> None:
        self._found = found
        self.public: dict[str, Ed25519PublicKey] = {kid: key.public_key() for kid, (_, key) in found.items()}
        kid = max(found, key=lambda kid: (found[kid][0], kid))
        self.signing = Signing(kid, found[kid][1])  # last: what it signs can be verified by now

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Makes the file on first start. Raises Misconfigured for one that holds anything else."""
        path = data_dir / FILE
        return cls(path, _parse(path, read_or_make(path, lambda: _written([(1, Ed25519PrivateKey.generate())]))))

    def rotate(self, in_use: Container[str]) -> list[str]:
        """A new key signs from now on; the kids of those that went, which `in_use` does not name. Raises Misconfigured.

        The one that signed until now stays: a token may be under way.
        """
        kept = {kid: entry for kid, entry in self._found.items() if kid == self.signing.kid or kid in in_use}
        number = max(number for number, _ in self._found.values()) + 1
        content = _written([*kept.values(), (number, Ed25519PrivateKey.generate())])
        gone = [kid for kid in self._found if kid not in kept]
        replace(self._path, content)
        self._use(_parse(self._path, content))
        return gone


def merged(ours: bytes, backed_up: bytes) -> bytes:
    """Two files as one. Of a key in both ours counts, and ours signs. What is damaged gives way to the other."""
    try:
        _parse(Path(FILE), ours)
    except Misconfigured:
        return backed_up
    try:
        _parse(Path(FILE), backed_up)
    except Misconfigured:
        return ours
    mine, theirs = orjson.loads(ours), orjson.loads(backed_up)
    lowest = min(entry["number"] for entry in mine.values())
    older = {kid: entry | {"number": min(entry["number"], lowest - 1)} for kid, entry in theirs.items()}
    return orjson.dumps(older | mine, option=orjson.OPT_INDENT_2)


def _written(keys: Iterable[tuple[int, Ed25519PrivateKey]]) -> bytes:
    entries = {
        _kid(key): {"number": number, "key": base64.urlsafe_b64encode(key.private_bytes_raw()).decode()}
        for number, key in keys
    }
    return orjson.dumps(entries, option=orjson.OPT_INDENT_2)


def _kid(key: Ed25519PrivateKey) -> str:
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]


def _parse(path: Path, content: bytes) -> dict[str, tuple[int, Ed25519PrivateKey]]:
    try:
        entries = orjson.loads(content)
        if not isinstance(entries, dict) or not entries:
            raise ValueError("it must be an object with at least one key")
        return {kid: _key(kid, entry) for kid, entry in entries.items()}
    except ValueError as exc:
        reason = "it is not JSON" if isinstance(exc, orjson.JSONDecodeError) else exc
        raise Misconfigured(
            f"{path}: {reason}. Restore it from a backup, or delete it and pair every device again"
        ) from None


def _key(kid: str, entry: Any) -> tuple[int, Ed25519PrivateKey]:
    """Raises ValueError, which never repeats the key."""
    if not kid or not isinstance(entry, dict):
        raise ValueError("each kid must map to an object")
    number, seed = entry.get("number"), entry.get("key")
    if type(number) is not int or not isinstance(seed, str):
        raise ValueError(f"key {kid!r} needs number (an integer) and key (base64url)")
    try:
        raw = base64.b64decode(seed + "=" * (-len(seed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"key {kid!r} is not base64url") from None
    if len(raw) != 32:
        raise ValueError(f"key {kid!r} is {len(raw)} bytes long, an Ed25519 key has 32")
    return number, Ed25519PrivateKey.from_private_bytes(raw)
