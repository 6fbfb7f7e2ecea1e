"""`talaria pair`: make an offer and show it as a QR code, a link and a code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
import typer

from app.cli.client import RelayClient, RelayRefused
from app.cli.show import can_show, clock_time, complain, duration, listed, note, printable, say, say_json, wrapped
from app.sessions.grants import KNOWN
from app.settings import parse_duration

POLL_S = 25  # the relay holds the question open for at most 30


def pair(
    name: Annotated[str | None, typer.Option(help="What the phone will be called; default: what it says.")] = None,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="What it may do: chat, terminal, bridge … Default: all but desktop, tui and dashboard.",
        ),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it stays paired: 12h, 30d, never. Default: 30d.")
    ] = None,
    purpose: Annotated[
        Literal["web", "hermes-relay"],
        typer.Option("--for", help="web: any browser. hermes-relay: the Hermes-Relay app and its command."),
    ] = "web",
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Another way to this relay, tried first; as often as there are. hermes-relay."
        ),
    ] = None,
    api_token: Annotated[
        bool, typer.Option("--api-token/--no-api-token", help="Let the app chat over the Hermes API. hermes-relay.")
    ] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the code is shown.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the phone arrives or the offer ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Make an offer that pairs one phone: a QR code, a link and a code, for ten minutes."""
    if purpose == "web" and (endpoint or not api_token):
        raise typer.BadParameter("--endpoint and --no-api-token are for --for hermes-relay")
    more: dict[str, Any] = {"endpoints": endpoint} if endpoint else {}
    more |= {} if api_token else {"api_token": False}
    with RelayClient.of_settings() as relay:
        offer = mint(relay, name=name, grants=grant, ttl=ttl, purpose=purpose, **more)
        if offer.get("needs_approval"):
            approve(relay, offer, yes=yes)
        if as_json:
            say_json(offer)
        else:
            show_offer(offer)
        if wait and not wait_for_phone(relay, offer["offer_id"], as_json):
            complain("the offer ended before a phone came; `talaria pair` makes a new one")
            raise typer.Exit(1)


def known_grant(name: str) -> str:
    """Raises typer.BadParameter."""
    if name not in KNOWN:
        raise typer.BadParameter(f"unknown grant {name!r}: there are {listed(KNOWN)}")
    return name


def mint(
    relay: RelayClient, *, name: str | None = None, grants: Sequence[str] | None = None, ttl: str | None = None,
    purpose: str = "web", **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """The relay's answer. `more` goes into the body. Raises typer.BadParameter for what it does not know."""
    body: dict[str, Any] = {"for": purpose, **more}
    if name is not None:
        body["name"] = name
    if grants:
        body["grants"] = [known_grant(part.strip()) for item in grants for part in item.split(",") if part.strip()]
    if ttl is not None:
        body["ttl_seconds"] = parse_ttl(ttl)
    try:
        offer: dict[str, Any] = relay.post("/pairing/mint", body)
    except RelayRefused as exc:
        if exc.status == 400:
            raise typer.BadParameter(exc.message) from None
        raise
    return offer


def approve(relay: RelayClient, offer: Mapping[str, Any], *, yes: bool) -> None:
    """The app cannot wait for a confirmation, so its code opens nothing before this. Raises typer.Exit for a no."""
    if not yes:
        note(wrapped(promise(offer)))
        if not sys.stdin.isatty():
            complain("TALARIA_PAIRING_CONFIRM is on: run this in a terminal, or say `talaria pair --for … --yes`")
            raise typer.Exit(1)
        if not typer.confirm("Show the code?", err=True):
            raise typer.Exit(1)
    relay.post("/pairing/approve", {"code": offer["code"]})


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

    scanned = offer.get("qr_payload")
    link = offer["pairing_url"] if scanned else offer["web_url"]
    try:
        code = render_text(scanned or link)
        if can_show(code):
            say(code)
        else:
            note(wrapped("This terminal has no characters for a QR code (its locale is not UTF-8).") + "\n")
    except ValueError:
        note(wrapped("Too much for a QR code: name fewer --endpoint, or open the link on the phone.") + "\n")
    say(f"Link  {link}")
    say(f"Code  {offer['code']}, once, until {clock_time(offer['expires_at'])}")
    say(f"Relay {offer['fingerprint']}, its fingerprint, which the link holds")
    say()
    say(wrapped(promise(offer)))
    if scanned and orjson.loads(scanned)["key"]:
        say(wrapped("Whoever photographs this QR code can chat in the phone's name once it is paired, until it ends."))
    if offer.get("confirms") and not scanned:
        say(wrapped("It shows six digits then; `talaria confirm` lets it in."))
    if not offer["public"]:
        port = urlsplit(offer["web_url"]).port
        what = (
            f"code from afar yet: it leads to {offer['relay_url']}" if scanned else "link yet: it leads to this machine"
        )
        do = (
            f"Give the relay an HTTPS name: `tailscale serve --bg {port}`, set TALARIA_PUBLIC_URL to what that prints"
            " (https://<host>.<tailnet>.ts.net), and start the relay again."
        )
        note("\n" + wrapped(f"No phone can reach this {what}. {do}"))


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
    again = "" if ends is None else ", and as long again whenever it renews"
    return f"{named} gets {what}{again}; take it back with `talaria devices revoke`."


def _for(seconds: int | None) -> str:
    return "for good" if seconds is None else f"for {duration(seconds)}"


def wait_for_phone(relay: RelayClient, offer_id: str, as_json: bool = False) -> bool:
    """Whether one came, and was let in where that is asked, before the offer ended."""
    if not as_json:
        note("\nWaiting for the phone …")
    status = {"state": "waiting"}
    while status["state"] in ("waiting", "confirming"):
        before = status["state"]
        status = relay.get(f"/pairing/offers/{offer_id}", wait=POLL_S, seen=before, timeout=POLL_S + 10)
        if status["state"] == "confirming" and before == "waiting":
            ask_operator(relay, status, as_json)
    if as_json:
        say_json(status)
    elif status["state"] == "redeemed":
        say(f"Paired: {printable(status['device_name'])}")
    return status["state"] == "redeemed"


def ask_operator(relay: RelayClient, status: Mapping[str, Any], as_json: bool) -> None:
    """Whether the phone with these digits is let in; without a terminal, how to say so."""
    digits, device = status["confirm"], printable(status["device_name"] or "A device")
    if as_json:
        say_json(status)
    elif not sys.stdin.isatty():
        say(f"{device} wants to pair and shows {digits}. If yours does: talaria confirm {digits}")
    else:
        allow = typer.confirm(f"{device} wants to pair. Does yours show {digits}?", err=True)
        try:
            relay.post("/pairing/confirm", {"confirm": digits, "allow": allow})
        except RelayRefused as exc:
            complain(exc.message)
