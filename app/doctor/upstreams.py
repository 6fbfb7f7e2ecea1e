"""Hermes behind the relay, and what else the relay leans on: each as its own room knows it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.doctor.finding import Finding
from app.hermes.hermes import Hermes
from app.hermes.link.line import AgentLink
from app.push.service import Push
from app.settings import HermesSettings

KEY_CHARACTERS = 16  # Hermes's API server does not start with a shorter key
TAILSCALE_S = 10.0
UPSTREAM_S = 20.0  # for all that Hermes is asked; a turn may wait longer, a doctor not
_LATE = "Hermes does not answer in time: it hangs, or its host is away"
_TAILSCALED = "`systemctl restart tailscaled`, then `tailscale status`"
WAITS_S = 60  # for an answer to an approval: less is hard to do from a pocket
_TITLES = {"api": "Hermes API", "dashboard": "Hermes dashboard"}
_DO = {
    "upstream_unreachable": "{start}, or set {url} to where it listens",
    "upstream_auth_required": "set {secret} to what Hermes has, and restart the relay",
    "upstream_insecure": "make {url} and {remote} https, or list the host in TALARIA_HERMES_ALLOW_PLAIN",
    "upstream_untrusted": "renew the certificate, or set SSL_CERT_FILE to a file with the authority that signed it",
    "upstream_differs": "set {url} and {remote} to the same Hermes, or one of them to nothing",
    "upstream_key_short": "`openssl rand -hex 24`: API_SERVER_KEY in Hermes's .env, TALARIA_HERMES_API_KEY here",
}
_SETTINGS = {
    "api": {
        "url": "TALARIA_HERMES_API_URL", "remote": "TALARIA_HERMES_API_REMOTE_URL", "secret": "TALARIA_HERMES_API_KEY",
        "start": "`hermes gateway run` with API_SERVER_ENABLED=true",
    },
    "dashboard": {
        "url": "TALARIA_HERMES_DASHBOARD_URL", "remote": "TALARIA_HERMES_DASHBOARD_REMOTE_URL",
        "secret": "TALARIA_HERMES_DASHBOARD_USERNAME and _PASSWORD (or _TOKEN)",
        "start": "`hermes dashboard --no-open`",
    },
}  # fmt: skip
_GUIDE = "deploy/guide.md, “When something does not work”"


async def look(settings: HermesSettings, hermes: Hermes, link: AgentLink) -> list[Finding]:
    try:
        async with asyncio.timeout(UPSTREAM_S):
            return await _look(settings, hermes, link)
    except TimeoutError:
        late = {"state": "down", "code": "upstream_unreachable", "message": _LATE}
        return [_upstream("api", late), _approvals(settings, hermes.approvals()), _plugin(link.state())]


async def _look(settings: HermesSettings, hermes: Hermes, link: AgentLink) -> list[Finding]:
    if not hermes.api.is_off:
        await hermes.probe()
    states = hermes.states()
    findings = [_upstream(name, state) for name, state in states.items()]
    if states["api"]["state"] == "up":
        key = settings.hermes_api_key
        if key is not None and len(key.get_secret_value()) < KEY_CHARACTERS:
            findings.append(
                Finding("Hermes key", "warn", "the API key is short", _DO["upstream_key_short"], "upstream")
            )
        findings.append(await _capabilities(hermes))
        findings.append(await _user(hermes))
    findings.append(_approvals(settings, hermes.approvals()))
    findings.append(_plugin(link.state()))
    return findings


def _upstream(name: str, state: Mapping[str, Any]) -> Finding:
    title = _TITLES.get(name, name)
    if state["state"] == "up" and "code" not in state:
        version, route = state.get("version"), state.get("route")
        says = f"it answers{f' by its {route} route' if route else ''}{f', version {version}' if version else ''}"
        return Finding(title, "ok", says, layer="upstream")
    if state["state"] == "off":
        return Finding(title, "skip", str(state.get("message", "it is switched off")), layer="upstream")
    code, says = str(state.get("code")), str(state.get("message", "it does not answer"))
    do = _DO.get(code, _GUIDE).format(**_SETTINGS.get(name, {}))
    if code == "upstream_auth_required" and (told := re.fullmatch("(.+?)[:;] (.+)", says)):
        says, do = told[1], told[2] + (", and restart the relay" if told[2].startswith("set ") else "")
    return Finding(
        title,
        "fail" if name == "api" and state["state"] != "up" else "warn",
        "it does not answer" if code == "upstream_unreachable" else says,  # those words say what to do, too
        do,
        "upstream",
    )


async def _capabilities(hermes: Hermes) -> Finding:
    found = await hermes.api.capabilities()
    missing = [name for name in ("sessions", "session_chat_stream", "runs") if name not in found.endpoints]
    if not found.known or missing:
        lacks = ", ".join(missing) if found.known else "a list of what it can do"
        return Finding("Hermes abilities", "warn", f"this Hermes lacks {lacks}", "update Hermes", "upstream")
    return Finding("Hermes abilities", "ok", "sessions, streams and runs are there", layer="upstream")


async def _user(hermes: Hermes) -> Finding:
    """Who can read the relay's keys can approve in its owner's name."""
    name, mark = "user", await hermes.api.mark()
    owner = None if mark is None or mark.pid is None else _owner_of(mark.pid)
    if owner is None:
        return Finding(name, "skip", "the process of Hermes cannot be seen from here: another host, or a container")
    if owner == os.getuid() or owner == 0:
        whom = "root" if owner == 0 else "the relay's own user"
        do = "run Hermes as another user than root" if owner == 0 else "give the relay a user of its own"
        return Finding(
            name, "warn", f"Hermes runs as {whom}: the agent can read the relay's keys, and grant itself what it asks",
            f"{do}: deploy/guide.md, “Under which user”",
        )  # fmt: skip
    return Finding(name, "ok", f"the relay runs as uid {os.getuid()}, Hermes as uid {owner}")


def _owner_of(pid: int) -> int | None:
    process = Path("/proc", str(pid))
    try:
        is_hermes = b"hermes" in (process / "cmdline").read_bytes()
        return process.stat().st_uid if is_hermes else None
    except OSError:
        return None


def _approvals(settings: HermesSettings, asked: tuple[str | None, float] | None) -> Finding:
    name, says = "approvals", "the agent's approvals reach the devices"
    if asked is None:
        if not (settings.hermes_api_url or settings.hermes_api_remote_url):
            return Finding(name, "skip", "Hermes is switched off", layer="upstream")
        if settings.hermes_ask_approvals:
            return Finding(name, "ok", says, layer="upstream")
        return Finding(
            name, "warn", "the agent cannot ask you: it has to do without what it would need your word for",
            "`hermes dashboard --no-open`, or set TALARIA_HERMES_ASK_APPROVALS=1", "upstream",
        )  # fmt: skip
    mode, seconds = asked
    if mode == "off":
        return Finding(
            name, "warn", "approvals.mode of Hermes is off: it asks nobody, and does what it likes",
            "`hermes config set approvals.mode manual`, then restart Hermes", "upstream",
        )  # fmt: skip
    if seconds < WAITS_S:
        return Finding(
            name, "warn", f"Hermes waits {seconds:g} s for an answer: too short for a phone in a pocket",
            "`hermes config set approvals.timeout 300`, then restart Hermes", "upstream",
        )  # fmt: skip
    return Finding(name, "ok", f"{says}; Hermes waits {seconds:g} s (mode {mode or 'unknown'})", layer="upstream")


def _plugin(state: Mapping[str, Any]) -> Finding:
    name = "Hermes plugin"
    if state["state"] == "up":
        return Finding(name, "ok", "Hermes's messaging gateway is connected", layer="agent")
    if state["state"] == "off":
        return Finding(
            name, "skip", "Hermes's messaging gateway has never connected: it cannot speak first",
            "`talaria hermes-plugin install` as the user of Hermes, then `hermes gateway restart`; for a Hermes in a"
            " container deploy/gateway.md has the commands", "agent",
        )  # fmt: skip
    return Finding(
        name, "warn", "Hermes's messaging gateway was connected and is away: what is said to it waits",
        "`hermes gateway run`; in its log look for talaria", "agent",
    )  # fmt: skip


async def phones(push: Push, devices: Mapping[str, str]) -> list[Finding]:
    """`devices`: id → name. One finding for all that are well, one for each that is not."""
    healths = await push.healths(devices)
    bad = [devices[one] for one, health in healths.items() if health["state"] == "failing"]
    findings = [
        Finding(
            f"push to {name}", "warn", "the last push to it failed", f"`talaria push test {name!r}` names the hop",
            "device",
        )
        for name in bad
    ]  # fmt: skip
    woken = sum(health["state"] == "ok" for health in healths.values())
    says = f"{woken} of {len(healths)} devices can be woken, by {', '.join(sorted(push.providers)) or 'nothing'}"
    return [*findings, Finding("push", "ok" if healths else "skip", says if healths else "no device is paired")]


async def tailscale(port: int) -> Finding:
    """Whether Serve, where it is on this host, leads here."""
    name, program = "Tailscale Serve", shutil.which("tailscale")
    if program is None:
        return Finding(name, "skip", "there is no tailscale on this host")
    process = await asyncio.create_subprocess_exec(
        program, "serve", "status", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(TAILSCALE_S):
            said = (await process.communicate())[0].decode("utf-8", "replace")
    except TimeoutError:
        return Finding(name, "warn", f"`tailscale serve status` says nothing within {TAILSCALE_S:.0f} s", _TAILSCALED)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        return Finding(name, "skip", f"`tailscale serve status` says: {said.strip()[:200]}")
    if f":{port}" not in said:
        return Finding(name, "warn", "it leads somewhere else, or nowhere", f"`tailscale serve --bg {port}`")
    if "Funnel on" in said:
        return Finding(
            name, "warn", "Funnel is on: the relay can be reached from the whole internet", "`tailscale funnel reset`"
        )  # fmt: skip
    return Finding(name, "ok", f"it leads to port {port}")
