"""A phone sleeps for ten minutes, and the relay is restarted meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from app.clock import ManualClock
from app.delivery.keep import keep
from tests.contracts.services import NtfyService
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for
from tests.servers import serving

TURN = (
    "chat",
    "turn.completed",
    "turn",
    {"turn_id": "t1", "text": "secret", "finish": "completed", "duration_s": 42.0},
)
APPROVAL = ("chat", "approval.request", "approval", {"approval_id": "a1", "summary": "secret"})
CRON = ("messages", "message", "cron", {"message_id": "c1", "text": "secret", "source": "cron"})


async def put(relay: RunningRelay, id: str, frame: tuple[str, str, str, dict[str, Any]]) -> None:
    channel, type_, kind, payload = frame
    room = relay.relay
    await room.db.write(
        lambda tx: keep(
            tx, room.hub.ring, None, id=id, channel=channel, type=type_, kind=kind, payload=payload,
            now=room.clock.now(),
        )
    )  # fmt: skip


async def kept(phone: Phone) -> list[tuple[int, str | None]]:
    """Everything up to `synced`, acknowledged."""
    await phone.until("synced")
    found = [(frame.seq, frame.id) for frame in phone.frames if frame.seq is not None]
    if found:
        await phone.ack(found[-1][0])
        await phone.ping()
    return found


async def test_nothing_is_lost_or_doubled_and_each_burst_is_pushed_about_once(tmp_path: Path) -> None:
    ntfy, clock = NtfyService(), ManualClock(time.time())
    async with serving(ntfy) as port:
        settings = settings_for(tmp_path, NTFY_URL=f"http://127.0.0.1:{port}", NTFY_TOKEN=ntfy.token)

        async def pass_by(relay: RunningRelay, seconds: int) -> None:
            for _ in range(seconds):
                clock.advance(1)
                await relay.relay.push.dispatcher.once()

        async with running(settings, clock=clock) as relay:
            phone, desk = await relay.connect(), await relay.connect()  # the second stays awake
            for one in (phone, desk):
                await one.ask("system", "push.register", provider="ntfy")
            await phone.hang_up()
            await put(relay, "t1", TURN)
            await desk.ack((await desk.until("turn.completed")).seq or 0)
            await desk.ping()
            await relay.relay.acks.flush()
            await pass_by(relay, 2)
            await put(relay, "a1", APPROVAL)
            await desk.ack((await desk.until("approval.request")).seq or 0)
            await desk.ping()
            await relay.relay.acks.flush()
            await pass_by(relay, 1)
            assert ntfy.taken == []
        async with running(settings, clock=clock) as relay:  # the burst is half over
            await pass_by(relay, 60)
            assert [t["message"] for t in ntfy.taken] == ["Your approval is needed, and 1 more"]
            await pass_by(relay, 240)
            await put(relay, "c1", CRON)
            await pass_by(relay, 3)
        async with running(settings, clock=clock) as relay:
            desk = await relay.connect(session_token=desk.token)
            assert await kept(desk) == [(3, "c1")]
            await relay.relay.acks.flush()
            await pass_by(relay, 297)
            assert [t["message"] for t in ntfy.taken[1:]] == ["A scheduled task has reported"]
            phone = await relay.connect(session_token=phone.token)
            assert await kept(phone) == [(1, "t1"), (2, "a1"), (3, "c1")]
            await relay.relay.acks.flush()
            await pass_by(relay, 600)
        assert len(ntfy.taken) == 2
        assert len({t["topic"] for t in ntfy.taken}) == 1
        assert "secret" not in str(ntfy.taken)
