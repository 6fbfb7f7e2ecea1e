"""Every provider against the service that it speaks to."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.guard import guarded_client
from app.outbox.wakes import Unseen
from app.push import notice as notices
from app.push.fcm import Fcm, ServiceAccount
from app.push.notice import Content, Notice
from app.push.ntfy import Ntfy
from app.push.provider import Outcome, PushProvider, Target
from app.push.webpush import Vapid, WebPush
from tests.contracts.services import FcmService, NtfyService, Service, WebPushService
from tests.servers import serving

ALLOW = ["127.0.0.1"]
TIMEOUT_S = 15.0
SUBJECT = "mailto:owner@home.example"


@dataclass
class Rig:
    provider: PushProvider
    service: Service
    target: Target
    seen: Callable[[dict[str, Any]], Mapping[str, Any]]  # what was taken, in the words of a Notice

    async def send(self, notice: Notice | None = None) -> Outcome:
        return await self.provider.send(self.target, notice or a_notice(), time.time())


def a_notice(content: Content = "none", *, kind: str = "message", text: str = "the text", count: int = 3) -> Notice:
    now = time.time()
    frames = [Unseen(40 + n, f"m{n}", kind, now, None, None) for n in range(count, 0, -1)]
    body = json.dumps({"title": "Grüße", "text": text}).encode()
    return notices.of_frames(frames, body, content, "relay-1", now)


@asynccontextmanager
async def webpush(home: Path, name: str) -> AsyncIterator[Rig]:
    service = WebPushService()
    async with serving(service) as port, guarded_client(ALLOW, timeout_s=TIMEOUT_S) as client:
        vapid = Vapid.load(home, SUBJECT)
        service.origin, service.application_key = f"http://127.0.0.1:{port}", vapid.public
        provider = WebPush(client, vapid, ALLOW)
        endpoint = provider.check(f"{service.origin}/wpush/v2/secret-part", service.keys())
        target = Target("t1", "d1", name, endpoint, service.keys())
        yield Rig(provider, service, target, lambda taken: taken | {"said": taken["body"]})


@asynccontextmanager
async def ntfy(home: Path, name: str) -> AsyncIterator[Rig]:
    service = NtfyService()
    async with serving(service) as port, guarded_client(ALLOW, timeout_s=TIMEOUT_S) as client:
        provider = Ntfy(client, f"http://127.0.0.1:{port}/", service.token, "https://home.example")
        target = Target("t1", "d1", name, provider.check(None, {}), {})
        yield Rig(provider, service, target, lambda taken: {"said": taken["message"], "title": taken["title"]})


@asynccontextmanager
async def fcm(home: Path, name: str) -> AsyncIterator[Rig]:
    service = FcmService()
    async with serving(service) as port, guarded_client(ALLOW, timeout_s=TIMEOUT_S) as client:
        service.origin = f"http://127.0.0.1:{port}"
        pem = service.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        path = home / "account.json"
        path.write_text(
            json.dumps(
                {
                    "project_id": service.project, "client_email": service.email, "private_key_id": "key-1",
                    "private_key": pem, "token_uri": f"{service.origin}/token",
                }
            )
        )  # fmt: skip
        provider = Fcm(client, ServiceAccount.load(path), service.origin)
        target = Target("t1", "d1", name, provider.check("registration-token-of-the-app", {}), {})
        yield Rig(provider, service, target, lambda taken: taken | {"said": taken["body"]})


RIGS = {"webpush": webpush, "unifiedpush": webpush, "ntfy": ntfy, "fcm": fcm}


@pytest.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with RIGS[request.param](tmp_path, request.param) as rig:
        yield rig


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack
