"""`talaria pair`: make an offer and show it as a QR code, a link and a code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from app.cli.client import RelayClient, RelayRefused
from app.cli.show import clock_time, complain, duration, listed, note, printable, say, say_json, wrapped
from app.settings import parse_duration

POLL_S = 25  # the relay holds the question open for at most 30


def pair(
    name: Annotated[str | None, typer.Option(help="What the phone will be called; default: what it says.")] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,…", help="What it may do: chat, terminal, bridge … Default: all but dashboard."),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it stays paired: 12h, 30d, never. Default: 30d.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the phone arrives or the offer ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Make an offer that pairs one phone: a QR code, a link and a code, for ten minutes."""
    with RelayClient.of_settings() as relay:
        offer = mint(relay, name=name, grants=grant, ttl=ttl)
        if as_json:
            say_json(offer)
        else:
            show_offer(offer)
        if wait and not wait_for_phone(relay, offer["offer_id"], as_json):
            complain("the offer ended before a phone came; `talaria pair` makes a new one")
            raise typer.Exit(1)


def mint(
    relay: RelayClient, *, name: str | None = None, grants: Sequence[str] | None = None, ttl: str | None = None
) -> dict[str, Any]:
    """The relay's answer. Raises typer.BadParameter for what it does not know."""
    body: dict[str, Any] = {"for": "web"}
    if name is not None:
        body["name"] = name
    if grants:
        body["grants"] = [part.strip() for item in grants for part in item.split(",") if part.strip()]
    if ttl is not None:
        body["ttl_seconds"] = parse_ttl(ttl)
    try:
        offer: dict[str, Any] = relay.post("/pairing/mint", body)
    except RelayRefused as exc:
        if exc.status == 400:
            raise typer.BadParameter(exc.message) from None
        raise
    return offer


def parse_ttl(text: str) -> int:
    """Seconds; 0 is never, as the relay writes it. Raises typer.BadParameter."""
    if text.strip().lower() == "never":
        return 0
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise typer.BadParameter(f"{exc}, or never") from None


def show_offer(offer: Mapping[str, Any]) -> None:
    from app.pairing.qr import render_text

    say(render_text(offer["web_url"]))
    say(f"Link  {offer['web_url']}")
    say(f"Code  {offer['code']}, once, until {clock_time(offer['expires_at'])}")
    say(f"Relay {offer['fingerprint']}, its fingerprint, which the link holds")
    say()
    say(wrapped(promise(offer)))
    if not offer["public"]:
        port = urlsplit(offer["web_url"]).port
        note(
            "\nNo phone can reach this link yet: it leads to this machine. Give the relay an\n"
            f"HTTPS name: `tailscale serve --bg {port}`, set TALARIA_PUBLIC_URL to what that\n"
            "prints (https://<host>.<tailnet>.ts.net), and start the relay again."
        )


def promise(offer: Mapping[str, Any]) -> str:
    """One sentence: who gets what, for how long."""
    ends = offer["ttl_seconds"]
    named = f"“{printable(offer['name'])}”" if offer["name"] else "The phone"
    shorter: dict[int, list[str]] = {}
    whole: list[str] = []
    for grant, seconds in offer["grants"].items():
        if seconds is None or (ends is not None and seconds >= ends):
            whole.append(grant)
        else:
            shorter.setdefault(seconds, []).append(grant)
    parts = [f"{listed(whole)} {_for(ends)}"] if whole else []
    parts += [f"{listed(grants)} {_for(seconds)}" for seconds, grants in shorter.items()]
    what = ", and ".join(parts) or "nothing"
    return f"{named} gets {what}; take it back with `talaria devices revoke`."


def _for(seconds: int | None) -> str:
    return "for good" if seconds is None else f"for {duration(seconds)}"


def wait_for_phone(relay: RelayClient, offer_id: str, as_json: bool = False) -> bool:
    """Whether one came before the offer ended."""
    if not as_json:
        note("\nWaiting for the phone …")
    status = {"state": "waiting"}
    while status["state"] == "waiting":
        status = relay.get(f"/pairing/offers/{offer_id}", wait=POLL_S, timeout=POLL_S + 10)
    if as_json:
        say_json(status)
    elif status["state"] == "redeemed":
        say(f"Paired: {printable(status['device_name'])}")
    return status["state"] == "redeemed"
