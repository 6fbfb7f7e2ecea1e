"""The channel on which hermes-relay's command would run Hermes' own terminal interface, which is not in this version.

The command attaches on every connect, whatever it is about to do, and leaves at a `tui.error`. Where it does want the
interface it waits a minute for `gateway.ready` before it asks anything. So it is told that it may ask, and then no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import __version__
from app.channels.base import Call, Channel, receives
from app.wire.envelope import encode

NOT_HERE = "Talaria has no tui channel in this version: chat with --relay-chat."
_METHOD_NOT_FOUND = -32601  # of JSON-RPC


class Tui(Channel):
    """A refusal needs no grant."""

    name = "tui"
    grant = None

    @receives("tui.attach", None)
    def attach(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("tui.attached", {"pid": None, "server_version": __version__})
        ready = {"type": "gateway.ready", "payload": {}}
        call.peer.send(encode("tui", "tui.rpc.event", {"jsonrpc": "2.0", "method": "event", "params": ready}))

    @receives("tui.rpc.request", None)
    def request(self, payload: Mapping[str, Any], call: Call) -> None:
        error = {"code": _METHOD_NOT_FOUND, "message": NOT_HERE}
        call.answer("tui.rpc.response", {"jsonrpc": "2.0", "id": payload.get("id"), "error": error})

    @receives("tui.resize", None)
    def resize(self, payload: Mapping[str, Any], call: Call) -> None:
        """There is nothing to resize."""

    @receives("tui.detach", None)
    def detach(self, payload: Mapping[str, Any], call: Call) -> None:
        """There is nothing to leave."""
