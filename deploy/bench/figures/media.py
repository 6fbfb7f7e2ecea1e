"""Files up and down: one connection, bytes a second, and how much more memory a large one takes than a small one."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.bench import processes
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, peak_kib
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_least, at_most, compared

MB = 1_000_000
BLOCK = os.urandom(MB)
SMALL, LARGE = 8, 256  # of those blocks
ROOMY = "TALARIA_MEDIA_MAX_MB=512\nTALARIA_MEDIA_QUOTA_MB=1024\n"
OPENING = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="bench"\r\n\r\n'
CLOSING = b"\r\n--edge--\r\n"


@dataclass(frozen=True, slots=True)
class Run:
    up: float  # MB a second
    down: float
    others: float


async def measure(lab: Lab) -> list[Row]:
    scratch = lab.scratch()
    (scratch / ".env").write_text(ROOMY)
    async with processes.relay(scratch) as relay:
        await _run(relay, SMALL)
        before = peak_kib(relay.pid)
        runs = await lab.in_turn(relay=lambda: _run(relay, LARGE), disk=lambda: asyncio.to_thread(_disk, scratch))
        grown = (peak_kib(relay.pid) - before) / 1024
    ours = [run for run in runs["relay"] if isinstance(run, Run)]
    disk = [rate for rate in runs["disk"] if isinstance(rate, float)]
    others = max(run.others for run in ours)
    down = [run.down for run in ours]
    return [
        compared(
            f"upload of {LARGE} MB, synced", "MB/s", [run.up for run in ours], disk, "disk", aim=at_least(200),
            others=others, note="beside it the same bytes written and synced without a relay",
        ),
        Row(
            f"download of {LARGE} MB", "MB/s", statistics.median(down), at_least(200), others=others,
            runs={"ours": down},
        ),
        Row(f"more memory for {LARGE} MB than for {SMALL} MB", "MiB", grown, at_most(8)),
    ]  # fmt: skip


async def _run(relay: Server, blocks: int) -> Run:
    with Meter([relay.pid]) as meter:
        token, up = await asyncio.to_thread(_upload, relay, blocks)
        down = await asyncio.to_thread(_download, relay, token, blocks)
    return Run(blocks / up, blocks / down, meter.usage.others)


def _upload(relay: Server, blocks: int) -> tuple[str, float]:
    """The token, and seconds from the first byte to the answer."""
    length = len(OPENING) + blocks * MB + len(CLOSING)
    head = f"Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {length}\r\n"
    with socket.create_connection((relay.host, relay.port)) as wire:
        began = time.perf_counter()
        wire.sendall(_head(relay, "POST /media/upload", head) + OPENING)
        for _ in range(blocks):
            wire.sendall(BLOCK)
        wire.sendall(CLOSING)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
        seconds = time.perf_counter() - began
    found = re.search(rb'"token":"([^"]+)"', answer)
    if found is None:
        raise Broken(f"an upload was answered {answer[:200]!r}")
    return found[1].decode(), seconds


def _download(relay: Server, token: str, blocks: int) -> float:
    buffer, got = bytearray(MB), 0
    with socket.create_connection((relay.host, relay.port)) as wire:
        began = time.perf_counter()
        wire.sendall(_head(relay, f"GET /media/{token}", ""))
        while count := wire.recv_into(buffer):
            got += count
        seconds = time.perf_counter() - began
    if got <= blocks * MB:  # a head comes before
        raise Broken(f"{got} bytes of {blocks * MB} came back")
    return seconds


def _head(relay: Server, request: str, headers: str) -> bytes:
    ours = f"Host: {relay.host}\r\nAuthorization: Bearer {relay.key}\r\nConnection: close\r\n"
    return f"{request} HTTP/1.1\r\n{ours}{headers}\r\n".encode()


def _disk(scratch: Path) -> float:
    """MB a second."""
    path = scratch / "plain"
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(LARGE):
            file.write(BLOCK)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    path.unlink()
    return LARGE / seconds
