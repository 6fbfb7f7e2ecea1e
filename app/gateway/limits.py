"""The bounds of a link. Tests make them small; nothing else changes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    auth_seconds: float = 30.0
    queue_bytes: int = 256 * 1024  # over this, droppable frames are refused and producers of others wait
    stall_seconds: float = 10.0  # age of the oldest unsent frame that may not be dropped, then eviction
    close_seconds: float = 1.0  # how long a close frame may wait behind a stopped reader
    handshake_seconds: float = 5.0  # how long the client may take to answer it
    waiting_frames: int = 8  # behind an auth that is being checked
    inbound_frames: int = 64  # read ahead of the worker; when full nothing more is read
    inbound_bytes: int = 4 * 1024 * 1024
    unauthenticated: int = 64  # sockets without auth; the oldest goes
    unauthenticated_per_address: int = 8
    plain_per_device: int = 8  # sockets of one device whose clients name no instance
    recheck_seconds: float = 30.0  # sessions of open links
    drain_seconds: float = 2.0  # for queues to empty before a restart
    heartbeat_s: int = 30  # what clients are told to ping at
