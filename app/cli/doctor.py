"""`talaria doctor`: what is wrong, what it means, and what to type next."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client import CommandFailed, RelayClient, RelayRefused
from app.cli.show import printable, say, say_json
from app.clock import Clock
from app.doctor.finding import Finding
from app.settings import load_settings

SECONDS = 90.0
_MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skip": "-"}
_ORDER = {"fail": 0, "warn": 1, "ok": 2, "skip": 3}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One document for programs.")] = False) -> None:
    """Look at everything the relay needs. Exit status 1 if something fails; warnings do not."""
    findings = _examined()
    if as_json:
        say_json({"ok": not _failed(findings), "findings": findings})
    else:
        _show(findings)
    raise typer.Exit(1 if _failed(findings) else 0)


def _examined() -> list[dict[str, Any]]:
    """By the relay, which sees more; what can be seen without it where none answers."""
    settings = load_settings()
    try:
        with RelayClient.of_settings() as relay:
            found: list[dict[str, Any]] = relay.get("/doctor", timeout=SECONDS)["findings"]
            return [Finding("relay", "ok", f"it answers at {relay.url}").as_json(), *found]
    except RelayRefused:
        raise
    except CommandFailed as exc:
        from app.doctor import host  # knows the database: 0.4 s, which is not spent where a relay answers

        away = Finding("relay", "fail", exc.message)  # it says what to do
        return [finding.as_json() for finding in (away, *host.look(settings.server, Clock()))]


def _failed(findings: list[dict[str, Any]]) -> bool:
    return any(finding["state"] == "fail" for finding in findings)


def _show(findings: list[dict[str, Any]]) -> None:
    width = max(len(finding["name"]) for finding in findings)
    for finding in sorted(findings, key=lambda one: _ORDER[one["state"]]):
        say(f"{_MARKS[finding['state']]:4}  {printable(finding['name']):{width}}  {printable(finding['says'])}")
        if "do" in finding:
            say(f"{'':4}  {'':{width}}  → {printable(finding['do'])}")
    counts = {state: sum(one["state"] == state for one in findings) for state in _ORDER}
    say()
    say("Failed: {fail}. Warnings: {warn}. Fine: {ok}. Not looked at: {skip}.".format(**counts))
