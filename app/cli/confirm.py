"""`talaria confirm`: let a device in that waits with six digits on its screen."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import RelayClient
from app.cli.show import clock_time, printable, say, say_table


def confirm(
    digits: Annotated[
        str | None, typer.Argument(metavar="DIGITS", help="What the device shows; without it, who waits.")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Do not let it in; its code ends.")] = False,
) -> None:
    """Let a device in that waits with six digits on its screen (TALARIA_PAIRING_CONFIRM)."""
    with RelayClient.of_settings() as relay:
        if digits is not None:
            relay.post("/pairing/confirm", {"confirm": digits, "allow": not deny})
            say("Its code has ended." if deny else "It is let in.")
            return
        waiting = relay.get("/pairing/pending")["pending"]
    if not waiting:
        say("No device waits.")
        return
    rows = []
    for one in waiting:
        device = one["device"]
        named = ", ".join(device[key] for key in ("name", "model", "platform") if key in device) or "unknown"
        rows.append((one["confirm"], printable(named), device.get("address", ""), clock_time(one["expires_at"])))
    say_table(("DIGITS", "DEVICE", "FROM", "UNTIL"), rows)
