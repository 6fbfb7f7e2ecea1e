"""`talaria push test`: a push followed from here to the device's acknowledgement."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client import CommandFailed, RelayClient
from app.cli.devices import Which, find
from app.cli.show import note, printable, say, say_json, wrapped

POLL_S = 10.0
PROVIDER_S = 60.0  # three requests of ten seconds, to each target at the same time, and some air

push = typer.Typer(help="How sleeping phones are woken.", no_args_is_help=True, rich_markup_mode=None)


@push.callback()
def _group() -> None:
    """A callback keeps `test` a command of its own while it is the only one."""


@push.command("test")
def follow(
    device: Which,
    wait: Annotated[int, typer.Option(metavar="SECONDS", min=0, help="How long the device may take to answer.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Push to a device now, and say which hop failed."""
    with RelayClient.of_settings() as relay:
        found = find(relay.get("/devices")["devices"], device)
        trial = relay.post("/push/test", {"device_id": found["device_id"]}, timeout=PROVIDER_S)
        if not as_json:
            say(f"Push to {printable(trial['name'])}")
            for hop in trial["hops"]:
                _show(hop)
        accepted = any(hop["hop"] == "accepted" and hop["ok"] for hop in trial["hops"])
        trial["hops"].append(_answer(relay, trial, wait if accepted else 0, accepted, quiet=as_json))
    if as_json:
        say_json(trial)
    else:
        _show(trial["hops"][-1])
    if any(hop["ok"] is False for hop in trial["hops"]):
        raise CommandFailed("the push did not come through: the first FAILED line above says where it stopped")


def _answer(relay: RelayClient, trial: dict[str, Any], wait: float, accepted: bool, *, quiet: bool) -> dict[str, Any]:
    """The last hop: the device came back and acknowledged."""
    hop: dict[str, Any] = {"hop": "answered", "ok": None}
    if not accepted:
        return hop
    if not trial["answers"]:
        return hop | {"said": "this client cannot acknowledge: look whether the notification is there"}
    if not quiet:
        note(f"  … waiting up to {wait:.0f} s for the device")
    answered, left = False, float(wait)
    while not answered and left >= 0:
        step = min(POLL_S, left)
        path = f"/push/test/{trial['message_id']}"
        answered = relay.get(path, wait=step, timeout=step + 10)["answered"]
        left -= max(step, 1.0)
    if answered and trial["online"]:
        said = "it acknowledged, but it was connected anyway: close the app on it to test the waking"
        return hop | {"ok": True, "said": said}
    if answered:
        return hop | {"ok": True, "said": "it woke up, connected and acknowledged"}
    return hop | {
        "ok": False, "said": f"nothing came back within {wait} s",
        "advice": "If the notification is there, open it: then the way back works. If not, look at the system's "
        "settings for the app: notifications allowed, battery not restricted; with ntfy: subscribed to the topic.",
    }  # fmt: skip


_NAMES = {
    "target": "a target is registered", "reached": "the provider is reached", "accepted": "the provider takes it",
    "answered": "the device answers",
}  # fmt: skip


def _show(hop: dict[str, Any]) -> None:
    mark = {True: "ok", False: "FAILED", None: "-"}[hop["ok"]]
    where = f" ({hop['provider']})" if "provider" in hop else ""
    what = f"{_NAMES[hop['hop']]}{where}"
    said = f": {printable(hop['said'])}" if hop.get("said") else ""
    say(f"  {mark:6}  {what}{said}")
    if hop.get("advice"):
        say("\n".join(f"          {line}" for line in wrapped(hop["advice"]).splitlines()))
