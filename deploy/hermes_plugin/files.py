"""Files cross the link as bytes under the link token, never as paths.

Out: a file of an allowed folder is copied into the spool first, because Hermes deletes some right after the call, and
uploaded when the link is up. In: what a phone attached is fetched into Hermes's own cache.
"""

from __future__ import annotations

import logging
import mimetypes
import os
import stat
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from .config import LinkConfig, hermes_home
from .spool import MAX_FILES_BYTES

TIMEOUT = httpx.Timeout(60, connect=10)
MAX_INBOUND = 128 * 1024 * 1024  # bytes; what Hermes allows by itself
BLOCK = 1024 * 1024  # bytes
TRANSIENT = {408, 425, 429}

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)

logger = logging.getLogger(__name__)


class FileRefused(Exception):
    """This file may not, or cannot, cross; the message is for the owner and names no path."""


@dataclass(frozen=True, slots=True)
class Fetched:
    path: str
    mime: str


class Files:
    """Uploads and downloads of one gateway."""

    def __init__(self, config: LinkConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def copy(self, path: str, waiting_bytes: int) -> Path:
        """A copy in the spool that keeps the file's name. Raises FileRefused."""
        name = Path(path).name
        try:
            source = Path(path).resolve(strict=True)
            if not any(source.is_relative_to(root) for root in self._roots()):
                raise FileRefused(
                    f"{name} was not sent: its folder is not one that files may be sent from. "
                    "Add the folder to TALARIA_MEDIA_ROOTS on the Hermes host."
                )
            descriptor = _open(source)
        except (OSError, RuntimeError, ValueError):  # a loop of links is the second, a zero byte the third
            raise FileRefused(f"{name} was not sent: it cannot be read") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FileRefused(f"{name} was not sent: it is not a regular file")
            if waiting_bytes + status.st_size > MAX_FILES_BYTES:
                raise FileRefused(f"{name} was not sent: too many files wait for the relay already")
            return self._copied(descriptor, name, status.st_size)
        finally:
            os.close(descriptor)

    def _copied(self, descriptor: int, name: str, left: int) -> Path:
        """As many bytes as were weighed: a log may grow meanwhile."""
        target = self._folder / uuid.uuid4().hex / name
        try:
            target.parent.mkdir(mode=0o700, parents=True)
            with target.open("xb") as writer:
                while block := os.read(descriptor, min(left, BLOCK)):
                    left -= writer.write(block)
        except OSError:
            drop(target)
            raise FileRefused(f"{name} was not sent: no room for a copy of it") from None
        return target

    async def upload(self, file: Path) -> str:
        """The relay's token for it. Raises FileRefused for good, httpx.HTTPError when another try may succeed."""
        mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        try:
            with file.open("rb") as reader:
                answer = await self._http().post("/media/upload", files={"file": (file.name, reader, mime)})
        except OSError:
            raise FileRefused(f"{file.name} was not sent: its copy is gone") from None
        if answer.is_success:
            return str(answer.json()["token"])
        if answer.status_code in TRANSIENT or answer.is_server_error:
            answer.raise_for_status()
        raise FileRefused(f"{file.name} was not sent: the relay refused it ({answer.status_code})")

    async def fetch(self, media: dict[str, Any]) -> Fetched:
        """Into Hermes's cache. Raises FileRefused, httpx.HTTPError."""
        name, mime = str(media.get("name") or "file"), str(media.get("mime") or "application/octet-stream")
        data = bytearray()
        async with self._http().stream("GET", f"/media/{quote(str(media['token']), safe='')}") as answer:
            if not answer.is_success:
                if answer.status_code in TRANSIENT or answer.is_server_error:
                    answer.raise_for_status()
                raise FileRefused(f"the attached {name} is not there any more")
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > MAX_INBOUND:
                    raise FileRefused(f"the attached {name} is too big for Hermes")
        from gateway.platforms.base import cache_media_bytes

        try:
            cached = cache_media_bytes(bytes(data), filename=name, mime_type=mime)
        except ValueError:
            cached = None
        if cached is None:
            raise FileRefused(f"the attached {name} is damaged")
        return Fetched(str(cached.path), str(getattr(cached, "media_type", None) or mime))

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                base_url=self._config.url, headers={"Authorization": f"Bearer {self._config.token}"}, timeout=TIMEOUT
            )
        return self._client

    def _roots(self) -> Iterable[Path]:
        """Where Hermes puts what it makes, and what the operator allows besides."""
        try:
            from gateway.platforms.base import MEDIA_DELIVERY_SAFE_ROOTS as given
        except ImportError:
            given = tuple(hermes_home() / name for name in ("cache", "image_cache", "audio_cache", "document_cache"))
        for root in (*map(Path, given), *self._config.media_roots):
            yield root.resolve()


def _open(path: Path) -> int:
    """Of a resolved path: through no link at all, since one may have come in between after it was looked at."""
    at = os.open("/", _DIRECTORY)
    try:
        for part in path.parts[1:-1]:
            below = os.open(part, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        return os.open(path.name or "/", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def drop(copy: Path) -> None:
    """Remove a copy with the folder that was made for it."""
    copy.unlink(missing_ok=True)
    try:
        copy.parent.rmdir()
    except OSError:
        logger.debug("talaria: %s stays", copy.parent)
