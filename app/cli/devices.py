"""`talaria devices`: who is paired, and what each may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from app.cli.client import CommandFailed, RelayClient, RelayRefused
from app.cli.pair import known_grant, parse_ttl
from app.cli.show import date, duration, listed, printable, say, say_json, say_table
from app.clock import Clock
from app.sessions.grants import DEFAULT

ENDED = 1  # a grant ends by being given for one second

Device = dict[str, Any]
Which = Annotated[str, typer.Argument(metavar="DEVICE", help="Its name, its id, or the start of its id or session.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]

devices = typer.Typer(
    help="Who is paired: list, rename, revoke, grant.",
    invoke_without_command=True,
    no_args_is_help=False,
    rich_markup_mode=None,
)


@devices.callback()
def _default(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand is None:
        list_devices(as_json)


@devices.command("list")
def list_devices(as_json: AsJson = False) -> None:
    """Show every paired device."""
    with RelayClient.of_settings() as relay:
        found: list[Device] = relay.get("/devices")["devices"]
    if as_json:
        say_json(found)
    elif not found:
        say("No device is paired. `talaria pair` pairs one.")
    else:
        now = Clock().now()
        say_table(("NAME", "ID", "SEEN", "PAIRED UNTIL", "PUSH", "MAY"), [_row(device, now) for device in found])


@devices.command()
def rename(device: Which, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Call a device something else."""

    def apply(relay: RelayClient, found: Device) -> None:
        relay.patch(f"/sessions/{_sessions(found)[0]}", {"name": name})

    found = _change(device, apply)
    say(f"{printable(found['name'])} is now called {printable(name)}")


@devices.command()
def revoke(device: Which) -> None:
    """End a device's session: its sockets close at once, and it must be paired again."""

    def apply(relay: RelayClient, found: Device) -> None:
        for prefix in _sessions(found, or_over=True):
            relay.delete(f"/sessions/{prefix}")

    found = _change(device, apply)
    say(f"{printable(found['name'])} is no longer paired")


@devices.command()
def grant(
    device: Which,
    grants: Annotated[
        list[str],
        typer.Argument(metavar="GRANT[=TIME]…", help="Such as terminal, bridge=7d, chat=never, tui=off."),
    ],
) -> None:
    """Give a device more, or less.

    TIME counts from now; `never` lasts as long as the session does, and `off` ends the grant. Without a time it lasts
    as it would by default: as long as the session, bridge 7 days.
    """
    asked = dict(map(_parse_grant, grants))

    def apply(relay: RelayClient, found: Device) -> None:
        for prefix in _sessions(found):
            relay.patch(f"/sessions/{prefix}", {"grants": asked})

    found = _change(device, apply)
    given, taken = ([name for name, seconds in asked.items() if (seconds == ENDED) is ended] for ended in (False, True))
    said = [f"may now use {listed(given)}"] if given else []
    said += [f"may no longer use {listed(taken)}"] if taken else []
    say(f"{printable(found['name'])} {' and '.join(said)}")


def _change(which: str, apply: Callable[[RelayClient, Device], None]) -> Device:
    """The device as it was before. Raises CommandFailed; typer.BadParameter for what the relay does not know."""
    with RelayClient.of_settings() as relay:
        found = find(relay.get("/devices")["devices"], which)
        try:
            apply(relay, found)
        except RelayRefused as exc:
            if exc.status == 400:
                raise typer.BadParameter(exc.message) from None
            raise
    return found


def find(devices: Sequence[Device], which: str) -> Device:
    """A whole name or id comes before the start of one."""
    exact = [device for device in devices if which in (device["device_id"], device["name"])]
    starts = [
        device
        for device in devices
        if any(known.startswith(which) for known in (device["device_id"], *_prefixes(device["sessions"])))
    ]
    found = exact or starts
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandFailed(f"no device is called {which}; `talaria devices` lists them")
    ids = listed([device["device_id"] for device in found])
    raise CommandFailed(f"{which} may be more than one device: say which of {ids}")


def _prefixes(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [session["token_prefix"] for session in sessions]


def _sessions(device: Device, *, or_over: bool = False) -> list[str]:
    """`or_over`: also those that have ended, and that the device may begin again. Raises CommandFailed for none."""
    if not (prefixes := _prefixes([one for one in device["sessions"] if or_over or not one["is_over"]])):
        raise CommandFailed(f"{device['name']} has no session any more: it must be paired again")
    return prefixes


def _parse_grant(text: str) -> tuple[str, int]:
    name, given, time = text.partition("=")
    known_grant(name)
    if given:
        return name, ENDED if time == "off" else parse_ttl(time)
    return name, DEFAULT.get(name) or 0


def _row(device: Device, now: float) -> tuple[str, ...]:
    sessions = device["sessions"]
    if not sessions:
        return device["name"], device["device_id"], _seen(device, now), "not paired", _push(device), "nothing"
    newest = sessions[0]
    may = [name for name, end in newest["grants"].items() if end is None or end > now] or ["nothing"]
    until = "over, may renew" if newest["is_over"] else date(newest["expires_at"])
    return device["name"], device["device_id"], _seen(device, now), until, _push(device), ", ".join(may)


def _seen(device: Device, now: float) -> str:
    if device["online"]:
        return "now"
    return f"{duration(now - device['last_seen'])} ago" if device["last_seen"] else "never"


def _push(device: Device) -> str:
    """`failing: gone` says the rest; `talaria push test` says more."""
    state, error = device["push"]["state"], device["push"]["last_error"]
    return f"{state}: {error['code']}" if state == "failing" and error else state
