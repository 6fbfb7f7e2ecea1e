"""A real Hermes whose messaging gateway is linked to a relay of its own, installed as an owner does it. Both are
processes, so that they can be killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.cli.conftest import Running, Talaria
from tests.hermes.hermes_lab import Lab, run_lab
from tests.phone import Frame, Phone, authenticate, open_socket

LISTENS = "Talaria 0.1.0 listens on "
APPROVAL_S = 30
OPTIONS = [
    "--warm", "--llm-port", "0", "--api-port", "0", "--no-dashboard", "--no-gated", "--no-titles",
    "--set", f"approvals.timeout={APPROVAL_S}", "--set", 'onboarding.profile_build="off"',
]  # fmt: skip
CURSOR = "▉"


@dataclass
class GatewayLab:
    """`out` is the folder that files may be sent from."""

    lab: Lab
    command: Talaria
    out: Path
    entered: Callable[[Any], Any]  # what owns the relay's processes
    relay: Running | None = None

    @property
    def home(self) -> Path:
        return self.lab.root / "home"

    def begin_relay(self) -> None:
        """The port stays the same over restarts."""
        self.relay = self.entered(self.command.started("serve"))
        self.command.url = self.relay.until(LISTENS)
        self.command.settings["PORT"] = self.command.url.rpartition(":")[2]

    def kill_relay(self) -> None:
        assert self.relay is not None
        self.relay.process.kill()
        self.relay.process.wait()

    def hermes(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The owner's own `hermes`."""
        environ = {"HERMES_HOME": str(self.home), "HOME": str(self.lab.root / "user"), "PATH": os.environ["PATH"]}
        program = self.lab.root / "venv" / "bin" / "hermes"
        return subprocess.run(
            [program, *arguments], env=environ, capture_output=True, text=True, timeout=120, check=False
        )

    async def job(self, name: str, deliver: str, prompt: str) -> str:
        """A cron job that is due now. Returns its id."""
        async with self._api() as http:
            body = {"name": name, "schedule": "every 1h", "prompt": prompt, "deliver": deliver}
            made = await http.post("/api/jobs", json=body)
            assert made.status_code == 200, made.text
            job_id = str(made.json()["job"]["id"])
            run = await http.post(f"/api/jobs/{job_id}/run")
            assert run.status_code == 200, run.text
        return job_id

    async def ran(self, job_id: str, within: float) -> dict[str, Any]:
        """The job, once it has run."""
        async with self._api() as http, asyncio.timeout(within):
            while True:
                found: dict[str, Any] = (await http.get(f"/api/jobs/{job_id}")).json()["job"]
                if found["last_run_at"]:
                    return found
                await asyncio.sleep(0.5)  # Hermes tells nobody

    def _api(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.lab.key}"}
        return httpx.AsyncClient(base_url=self.lab.url, headers=headers, timeout=30, trust_env=False)

    @asynccontextmanager
    async def phone(self, **fields: Any) -> AsyncIterator[Owner]:
        """A device that is up to date: newly paired, unless the fields bring its token."""
        if "session_token" not in fields:
            fields["pairing_code"] = await asyncio.to_thread(self._code)
        async with open_socket(self.command.url) as phone:
            await authenticate(phone, **fields)
            await phone.until("synced")
            yield Owner(phone)

    def _code(self) -> str:
        headers = {"Authorization": f"Bearer {(self.command.data / 'operator-token').read_text().strip()}"}
        answer = httpx.post(f"{self.command.url}/pairing/mint", json={}, headers=headers, trust_env=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["code"])

    async def linked(self) -> None:
        """Until the relay has the gateway's hello."""
        async with asyncio.timeout(60):
            async with self.phone() as owner:
                token, auth = owner.phone.token, owner.phone.auth
            while auth["upstream"]["gateway"]["state"] != "up":
                await asyncio.sleep(0.2)  # the state is told at auth only
                async with self.phone(session_token=token) as owner:
                    auth = owner.phone.auth


@dataclass
class Owner:
    """Somebody with a phone who talks in the home chat. What `hears` and `until` find may have come at any time since
    the owner last said something: two frames that Hermes causes at once have no order."""

    phone: Phone
    mark: int = 0

    async def says(self, text: str, **fields: Any) -> str:
        """Returns the message's id."""
        self.mark = len(self.phone.frames)
        said = await self.phone.ask("messages", "message.send", text=text, **fields)
        assert said.type == "message.accepted", said
        return str(said.payload["message_id"])

    async def hears(self, match: Callable[[Frame], bool] | str = "", within: float = 40) -> Frame:
        """A kept message that matches, or contains this text."""
        fits = match if callable(match) else lambda frame: str(match) in frame.payload["text"]
        return await self.until("message", lambda frame: frame.seq is not None and fits(frame), within)

    async def until(self, type_: str, match: Callable[[Frame], bool] = lambda frame: True, within: float = 40) -> Frame:
        at = self.mark
        async with asyncio.timeout(within):
            while True:
                for frame in self.phone.frames[at:]:
                    if frame.type == type_ and match(frame):
                        return frame
                at = len(self.phone.frames)
                self.phone.read = at
                with suppress(TimeoutError):  # silence of one frame's wait: the limit is ours
                    await self.phone.next()

    def kept(self) -> list[str]:
        """The texts of the messages so far, each once."""
        frames = {f.seq: f for f in self.phone.frames if f.type == "message" and f.seq is not None}
        return [frame.payload["text"] for frame in frames.values()]


def start(root: Path, entered: Callable[[Any], Any], talaria: Talaria) -> GatewayLab:
    out = root / "out"
    out.mkdir()
    lab = Lab.start(root, [*OPTIONS, "--env", f"TALARIA_MEDIA_ROOTS={out}"])
    found = GatewayLab(lab, talaria, out, entered)
    found.begin_relay()
    talaria.run("hermes-plugin", "install", "--hermes-home", str(found.home))
    run_lab("restart", "gateway", root=root)
    return found
