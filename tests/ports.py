"""Ports that have to be known before something listens there, or again after it was killed."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """One that nobody listens on now, and that the system gives to nobody who asks for any: those begin at 32768."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
