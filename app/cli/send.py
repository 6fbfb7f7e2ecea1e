"""`talaria send`: put a message into mailboxes."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal

import typer

from app.cli.client import RelayClient, RelayRefused
from app.cli.devices import find
from app.cli.show import listed, note, printable, say, say_json
from app.settings import parse_duration

POLL_S = 1.0
STATES = {
    "kept": "waits for the device", "sent": "sent, not confirmed yet", "woken": "waits, the device was woken",
    "acked": "has it", "void": "not shown",
}  # fmt: skip
SETTLED = ("acked", "void")


def send(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    title: Annotated[str | None, typer.Option(help="A line above it.")] = None,
    device: Annotated[str | None, typer.Option(help="One device, by its name or id. Default: all of them.")] = None,
    kind: Annotated[Literal["message", "cron"], typer.Option(help="What it is: devices choose what wakes them.")] = (
        "message"
    ),
    no_wake: Annotated[bool, typer.Option("--no-wake", help="Let a sleeping phone sleep.")] = False,
    ttl: Annotated[str | None, typer.Option(metavar="TIME", help="Not shown any more after: 1h, 1d.")] = None,
    key: Annotated[str | None, typer.Option(help="Sent again with the same key, it is still one message.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until every device has it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Send a message to the paired phones. It is kept until each has it."""
    body: dict[str, Any] = {"text": _from_stdin() if text == "-" else text, "kind": kind, "wake": not no_wake}
    body |= {"title": title} if title is not None else {}
    body |= {"ttl_seconds": _seconds(ttl)} if ttl is not None else {}
    with RelayClient.of_settings() as relay:
        devices = relay.get("/devices")["devices"]
        names = {one["device_id"]: one["name"] for one in devices}
        body |= {"device_id": find(devices, device)["device_id"]} if device is not None else {}
        sent = _post(relay, body, key)
        if not as_json:
            _say_sent(sent, names)
        if wait:
            _follow(relay, sent["message_id"], names, as_json=as_json)
        elif as_json:
            say_json(sent)


def _post(relay: RelayClient, body: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Raises typer.BadParameter for what the relay cannot take."""
    try:
        sent: dict[str, Any] = relay.post("/messages", body, headers={"Idempotency-Key": key} if key else None)
    except RelayRefused as exc:
        if exc.status == 400:
            raise typer.BadParameter(exc.message) from None
        raise
    except UnicodeEncodeError:  # the shell hands over bytes that are no text as they are
        raise typer.BadParameter("a message is UTF-8 text, and a key is ASCII") from None
    return sent


def _from_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise typer.BadParameter("what came on standard input is no UTF-8 text") from None


def _seconds(ttl: str) -> int:
    try:
        return parse_duration(ttl)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None


def _say_sent(sent: dict[str, Any], names: dict[str, str]) -> None:
    to = [printable(names.get(one["device_id"], one["device_id"])) for one in sent["deliveries"]]
    say(f"Kept for {listed(to)} as {sent['message_id']}")
    if refused := [printable(names.get(id, id)) for id in sent.get("refused", [])]:
        note(f"Not for {listed(refused)}: too much waits there already.")


def _follow(relay: RelayClient, message_id: str, names: dict[str, str], *, as_json: bool) -> None:
    """Until each device has confirmed it, or will not get it any more; says what changes meanwhile."""
    shown: dict[str, str] = {}
    while True:
        found = relay.get(f"/messages/{message_id}")
        for one in found["deliveries"] if not as_json else ():
            if shown.get(one["device_id"]) != (said := _said(one)):
                shown[one["device_id"]] = said
                say(f"{printable(names.get(one['device_id'], one['device_id']))}: {said}")
        if all(one["state"] in SETTLED for one in found["deliveries"]):
            break
        time.sleep(POLL_S)
    if as_json:
        say_json(found)


def _said(delivery: dict[str, Any]) -> str:
    return STATES[delivery["state"]] + (f": {delivery['reason']}" if "reason" in delivery else "")
