"""What every push provider does with what its service says."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from app.clock import Clock
from app.db import open_database
from app.guard import guarded_client
from app.push.dispatcher import Dispatcher
from app.push.provider import Verdict
from app.tasks import Supervisor
from tests.contracts.conftest import ALLOW, Rig, a_notice
from tests.contracts.services import NtfyService, Reply
from tests.servers import serving

STATUSES = [400, 401, 403, 404, 410, 413, 429, 500, 503]
WEB_PUSH = "dropped blocked gone gone gone shrink later later later"
EXPECTED = {
    "webpush": WEB_PUSH, "unifiedpush": WEB_PUSH,
    "ntfy": "dropped blocked blocked blocked blocked shrink later later later",
    "fcm": "dropped blocked blocked blocked gone shrink later later later",
}  # fmt: skip


async def test_a_push_is_taken_by_a_service_that_checks_everything(rig: Rig) -> None:
    outcome = await rig.send()
    assert (outcome.verdict, outcome.code) == (Verdict.SENT, "accepted"), outcome
    (taken,) = rig.service.taken
    assert rig.seen(taken)["said"] == "3 new messages"
    assert "the text" not in json.dumps(taken)
    assert "Grüße" not in json.dumps(taken, ensure_ascii=False)


async def test_only_what_the_owner_asked_for_is_said(rig: Rig) -> None:
    for content in ("title", "full"):
        await rig.send(a_notice(content))
    titled, full = map(rig.seen, rig.service.taken)
    assert (titled["title"], titled["said"]) == ("Grüße", "3 new messages")
    assert (full["title"], full["said"]) == ("Grüße", "the text")


@pytest.mark.parametrize("status", STATUSES)
async def test_every_refusal_has_its_consequence(rig: Rig, status: int) -> None:
    rig.service.replies = [Reply(status, b"no", {"retry-after": "120"}) for _ in range(2)]
    outcome = await rig.send()
    assert outcome.verdict == EXPECTED[rig.target.provider].split()[STATUSES.index(status)]
    assert outcome.status == status
    assert outcome.retry_after == (120 if outcome.verdict is Verdict.LATER else None)
    assert rig.service.taken == []


async def test_retry_after_may_be_a_date_and_is_bounded(rig: Rig) -> None:
    for said, low, high in [
        (formatdate(time.time() + 300, usegmt=True), 290, 301), ("99999999", 86400, 86400), ("-5", 0, 0),
    ]:  # fmt: skip
        rig.service.replies = [Reply(503, b"", {"retry-after": said})]
        outcome = await rig.send()
        assert low <= (outcome.retry_after or 0) <= high
    for said in ("soon", "nan", ""):
        rig.service.replies = [Reply(503, b"", {"retry-after": said})]
        assert (await rig.send()).retry_after is None


async def test_a_redirect_into_the_house_is_not_followed(rig: Rig) -> None:
    inside = NtfyService()
    async with serving(inside) as port:
        rig.service.replies = [
            Reply(status, b"", {"location": f"http://127.0.0.1:{port}/admin"}) for status in (301, 302, 307, 308)
        ]
        for _ in range(4):
            outcome = await rig.send()
            assert (outcome.verdict, outcome.code) == (Verdict.BLOCKED, "redirected")
    assert inside.requests == 0


async def test_a_service_that_says_nothing(rig: Rig, stack: AsyncExitStack) -> None:
    client = await stack.enter_async_context(guarded_client(ALLOW, timeout_s=0.3))
    rig.provider._client = client  # type: ignore[attr-defined]
    rig.service.hang = asyncio.Event()
    outcome = await rig.send()
    rig.service.hang.set()
    assert (outcome.verdict, outcome.code, outcome.status) == (Verdict.LATER, "timeout", None)


async def test_a_service_that_breaks_off(rig: Rig) -> None:
    rig.service.cut = True
    outcome = await rig.send()
    assert (outcome.verdict, outcome.code) == (Verdict.LATER, "connection_broken")


async def test_an_answer_without_end_is_not_read(rig: Rig) -> None:
    rig.service.replies = [Reply(201, b"x" * 100_000)]
    assert (await rig.send()).code == "answer_too_big"


async def test_nobody_listens_there(request: pytest.FixtureRequest, rig: Rig, stack: AsyncExitStack) -> None:
    """Nothing but the connection fails: the port was closed after the service had been set up."""
    client = await stack.enter_async_context(guarded_client(ALLOW))
    rig.provider._client = client  # type: ignore[attr-defined]
    for name in ("_url", "_endpoint"):
        if hasattr(rig.provider, name):
            setattr(rig.provider, name, "http://127.0.0.1:1/x")
    if hasattr(rig.provider, "_account"):
        rig.provider._account.token_url = "http://127.0.0.1:1/token"
    rig.target = replace(rig.target, endpoint="http://127.0.0.1:1/x")
    outcome = await rig.send()
    assert (outcome.verdict, outcome.code, outcome.stage) == (Verdict.LATER, "connection_refused", "connected")


async def test_an_address_that_is_not_allowed_is_not_called(rig: Rig, stack: AsyncExitStack) -> None:
    rig.provider._client = await stack.enter_async_context(guarded_client())  # type: ignore[attr-defined]
    outcome = await rig.send()
    assert (outcome.verdict, outcome.code, outcome.stage) == (Verdict.BLOCKED, "address_refused", "named")
    assert rig.service.requests == 0


async def test_what_is_too_long_is_shrunk_and_sent_again_at_once(rig: Rig, tmp_path: Path) -> None:
    async with open_database(f"sqlite:///{tmp_path}/d.db") as db, Supervisor() as tasks:
        dispatcher = Dispatcher(db, Clock(), tasks, {rig.target.provider: rig.provider}, "relay-1", "full")
        rig.service.replies = [Reply(413), Reply(413)]
        pushed = await dispatcher.push(rig.target, a_notice("full"))
        assert pushed.outcome.verdict is Verdict.SENT
        (taken,) = rig.service.taken
        assert (rig.seen(taken)["said"], rig.seen(taken).get("title")) in [
            ("3 new messages", None), ("3 new messages", "Talaria"),
        ]  # fmt: skip
        rig.service.replies = [Reply(413) for _ in range(3)]
        pushed = await dispatcher.push(rig.target, a_notice("full"))
        assert (pushed.outcome.verdict, pushed.outcome.code) == (Verdict.DROPPED, "too_big")


async def test_what_is_kept_about_a_refusal_names_no_target(rig: Rig, tmp_path: Path) -> None:
    async with open_database(f"sqlite:///{tmp_path}/d.db") as db, Supervisor() as tasks:
        dispatcher = Dispatcher(db, Clock(), tasks, {rig.target.provider: rig.provider}, "relay-1", "none")
        said = f"no such place: {rig.target.endpoint}, sent Bearer abcdefghijkl123456 " + "x" * 5000
        rig.service.replies = [Reply(400, said.encode())]
        detail = (await dispatcher.push(rig.target, a_notice())).outcome.detail
    assert rig.target.endpoint not in detail
    assert "abcdefghijkl" not in detail
    assert len(detail) < 300
