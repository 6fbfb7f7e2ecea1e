"""Turns over the dashboard's socket: recorded events, and what Hermes does when things go wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.errors import OutcomeUncertain
from app.hermes.dashboard.dashboard import QUIET_S, QUIETS, Dashboard
from app.hermes.dashboard.lives import MAX_IDLE
from app.hermes.dashboard.turn import _unsaid
from app.hermes.errors import SessionNotFound, StreamBroken, UpstreamUnreachable, UpstreamUnsupported
from app.hermes.lease import Lease
from app.hermes.upstream import Followed, Order
from tests.hermes_client.dashboard_server import (
    FakeDashboard,
    Heard,
    Refusal,
    Silence,
    Waits,
    faked,
    is_ready,
    lease,
    opened,
    soon,
)

USED = {"input": 100, "output": 10, "total": 110, "compressions": 0}


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with faked() as fake:
        fake.answers["session.resume"] = resumed()
        fake.live = [row()]
        yield fake


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def titles() -> list[tuple[str, str]]:
    return []


@pytest.fixture
async def dashboard(fake: FakeDashboard, waits: Waits, titles: list[tuple[str, str]]) -> AsyncIterator[Dashboard]:
    async with opened(fake, sleep=waits, titled=lambda *said: titles.append(said)) as dashboard:
        yield dashboard


def row(status: str = "idle", key: str = "stored1", id: str = "live1") -> dict[str, Any]:
    return {"id": id, "session_key": key, "status": status}


def resumed(id: str = "live1", key: str | None = None, **said: Any) -> Any:
    def resume(params: dict[str, Any]) -> dict[str, Any]:
        return {"session_id": id, "session_key": key or params["session_id"], "running": False} | said

    return resume


class Running:
    """A turn in the background."""

    def __init__(self, dashboard: Dashboard, bound: Lease, text: str = "hi") -> None:
        self.heard = Heard()
        self.task = soon(dashboard.run(bound, Order(text), self.heard))

    async def accepted(self) -> None:
        await self.heard.until(lambda: self.heard.run_ids)


async def test_a_turn_from_its_binding_to_its_end(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await dashboard.bind(replace(lease(), profile="work"))
    assert bound.run_id == "live1"
    assert await fake.called("session.resume") == {"session_id": "stored1", "cols": 80, "profile": "work"}
    turn = Running(dashboard, bound, "hello over websocket")
    await turn.accepted()
    assert await fake.called("prompt.submit") == {"session_id": "live1", "text": "hello over websocket"}
    await fake.play("text")
    await turn.task
    assert turn.heard.run_ids == ["live1"]
    assert turn.heard.text == "echo: hello over websocket"
    assert turn.heard.names[-2:] == ["assistant.completed", "run.completed"]
    assert "session_id" not in turn.heard.body("run.completed")
    await dashboard.bind(lease())
    assert [name for name, _ in fake.calls].count("session.resume") == 1  # it is live on this very socket


async def test_a_new_conversation_is_live_already(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["session.create"] = lambda params: {
        "session_id": "live2", "stored_session_id": "stored2", "info": {"model": "m"}
    }  # fmt: skip
    assert await dashboard.create(Order("", model="m", profile="work")) == {"id": "stored2", "model": "m"}
    assert await fake.called("session.create") == {"cols": 80, "model": "m", "profile": "work"}
    assert (await dashboard.bind(lease("stored2"))).run_id == "live2"
    assert "session.resume" not in [name for name, _ in fake.calls]


async def test_one_without_a_message_is_found_after_a_loss(fake: FakeDashboard, dashboard: Dashboard) -> None:
    """Hermes stores a conversation with its first message: until then it knows it as a live one only."""
    fake.answers["session.resume"] = refuse(4007)
    assert (await dashboard.bind(lease())).run_id == "live1"
    with pytest.raises(SessionNotFound):
        await dashboard.bind(lease("stored9"))


def refuse(code: int) -> Any:
    def answer(params: dict[str, Any]) -> None:
        raise Refusal(code)

    return answer


def silence(params: dict[str, Any]) -> None:
    raise Silence


async def test_pictures_go_another_way(dashboard: Dashboard) -> None:
    with pytest.raises(UpstreamUnsupported):
        await dashboard.run(lease(run_id="live1"), Order([{"type": "image_url"}]), Heard())


# whose events they are


async def test_events_of_a_turn_that_still_runs_are_not_ours(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["prompt.submit"] = lambda params: {"status": "queued"}
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await fake.event("session.info", running=True)
    await fake.event("message.start")
    await fake.event("message.delta", text="theirs")
    await fake.event("message.complete", text="theirs", status="interrupted")
    await fake.event("session.info", running=False, usage=USED)
    await fake.event("message.start")
    await fake.event("message.delta", text="ours")
    await fake.event("message.complete", text="ours", status="complete", usage=USED | {"total": 115, "input": 105})
    await turn.task
    assert turn.heard.text == "ours"
    assert turn.heard.names.count("run.completed") == 1
    assert turn.heard.body("run.completed")["usage"] == {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}


@pytest.mark.parametrize(("status", "text"), [("streaming", "ab"), ("queued", "b")])
async def test_events_before_the_answer_wait_for_it(
    fake: FakeDashboard, dashboard: Dashboard, status: str, text: str
) -> None:
    fake.answers["prompt.submit"] = silence
    turn = Running(dashboard, await dashboard.bind(lease()))
    await fake.called("prompt.submit")
    await fake.event("message.start")
    await fake.event("message.delta", text="a")
    await fake.sockets[-1].send_json({"id": "2", "result": {"status": status}})
    await turn.accepted()
    if status == "queued":
        await fake.event("session.info", running=False)
        await fake.event("message.start")
    await fake.event("message.delta", text="b")
    await fake.event("message.complete", text=text, status="complete")
    await turn.task
    assert turn.heard.text == text


async def test_the_next_turn_waits_until_hermes_has_put_the_last_one_away(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    bound = await dashboard.bind(lease())
    first = Running(dashboard, bound)
    await first.accepted()
    await fake.play("text")
    await first.task
    second = Running(dashboard, bound)
    await asyncio.sleep(0)
    await dashboard._link.rows()
    assert [name for name, _ in fake.calls].count("prompt.submit") == 1
    await fake.event("session.info", running=False)
    await second.accepted()
    await fake.play("again")
    await second.task
    assert second.heard.text == "echo: who sees this?"


async def test_an_agent_that_cannot_be_built_ends_the_turn(fake: FakeDashboard, dashboard: Dashboard) -> None:
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await fake.event("error", message="agent init failed: no model")
    await turn.task
    assert turn.heard.all == [("error", {"message": "agent init failed: no model"})]


async def test_a_live_session_that_hermes_closed_is_taken_up_anew(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await dashboard.bind(lease())
    fake.answers["session.resume"] = resumed("live2")
    fake.answers["prompt.submit"] = lambda params: (
        {"status": "streaming"} if params["session_id"] == "live2" else refuse(4001)(params)
    )
    turn = Running(dashboard, bound)
    await turn.accepted()
    await fake.play("text", "live2")
    await turn.task
    assert turn.heard.run_ids == ["live2"]
    assert turn.heard.text == "echo: hello over websocket"


async def test_a_hearer_that_fails_ends_its_own_turn_only(fake: FakeDashboard, dashboard: Dashboard) -> None:
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    turn.heard.all = None  # type: ignore[assignment]
    await fake.event("message.start")
    with pytest.raises(TypeError):
        await turn.task
    again = Running(dashboard, await dashboard.bind(lease()))
    await again.accepted()
    await fake.play("text")
    await again.task


async def test_a_steered_message_is_part_of_the_turn_that_runs(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["prompt.submit"] = lambda params: {"status": "steered"}
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await fake.event("message.delta", text="of both")
    await fake.event("message.complete", text="of both", status="complete")
    await turn.task
    assert turn.heard.text == "of both"


async def test_it_is_not_submitted_a_third_time(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await dashboard.bind(lease())
    fake.answers["prompt.submit"] = refuse(4001)
    turn = Running(dashboard, bound)
    with pytest.raises(SessionNotFound):
        await turn.task
    assert [name for name, _ in fake.calls].count("prompt.submit") == 2
    assert turn.heard.run_ids == []


# a compression, a title


async def test_a_conversation_that_was_compressed_ends_under_its_new_id(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    bound = await dashboard.bind(lease())
    turn = Running(dashboard, bound)
    await turn.accepted()
    await fake.event("session.info", running=True, usage=USED)
    await fake.event("message.start")
    fake.live = [row(key="stored2")]
    await fake.event("message.complete", text="hi", status="complete", usage=USED | {"compressions": 1})
    await turn.task
    assert turn.heard.body("assistant.completed")["session_id"] == "stored2"
    assert turn.heard.body("run.completed")["session_id"] == "stored2"
    assert "session_id" not in turn.heard.body("message.started")
    assert (await dashboard.bind(lease("stored2"))).run_id == "live1"


async def test_a_conversation_that_had_moved_before_says_so(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["session.resume"] = resumed(key="stored2")
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await fake.play("text")
    await turn.task
    assert turn.heard.body("run.completed")["session_id"] == "stored2"


async def test_a_title_is_told_after_the_turn_too(
    fake: FakeDashboard, dashboard: Dashboard, titles: list[tuple[str, str]]
) -> None:
    await fake.event("session.title", "live9", session_id="stored9", title="About x")
    await fake.event("session.title", "live9", session_id=None, title=5)
    await fake.event("session.title", "live9", session_id="x" * 1_000_000, title="every phone would get it")
    await dashboard._link.rows()
    assert titles == [("stored9", "About x")]


# silence


async def quiet(waits: Waits) -> None:
    for _ in range(QUIETS):
        await waits.over(QUIET_S)


async def test_a_silent_turn_is_asked_after_and_goes_on(
    fake: FakeDashboard, dashboard: Dashboard, waits: Waits
) -> None:
    fake.live = [row("working")]
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await quiet(waits)
    for seconds in (2, 4, 8, 10, 10):
        await waits.over(seconds)
    await turn.heard.until(lambda: turn.heard.asked == 6)
    await fake.play("text")
    await turn.task
    assert turn.heard.text == "echo: hello over websocket"


@pytest.mark.parametrize("live", [[], [row("idle")]])
async def test_a_turn_whose_end_went_elsewhere_is_left(
    fake: FakeDashboard, dashboard: Dashboard, waits: Waits, live: list[dict[str, Any]]
) -> None:
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    fake.live = live
    await quiet(waits)
    await turn.task
    assert turn.heard.asked == 0


async def test_an_end_that_was_found_elsewhere_stops_the_listening(
    fake: FakeDashboard, dashboard: Dashboard, waits: Waits
) -> None:
    fake.live = [row("waiting")]
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    turn.heard.found = True
    await quiet(waits)
    await turn.task
    assert turn.heard.asked == 1


async def test_events_are_no_silence(fake: FakeDashboard, dashboard: Dashboard, waits: Waits) -> None:
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    await fake.event("thinking.delta", text="(°ロ°)")
    await dashboard._link.rows()
    fake.live = []
    await quiet(waits)
    await waits.over(5)
    await turn.task


# a loss, and after it


async def broken(fake: FakeDashboard, dashboard: Dashboard, text: str = "hi") -> Lease:
    """A turn whose socket was lost after it began; the next one is open."""
    bound = await dashboard.bind(lease())
    turn = Running(dashboard, bound, text)
    await turn.accepted()
    await fake.event("message.start")
    await fake.event("message.delta", text="w1")
    await turn.heard.until(lambda: turn.heard.text == "w1")
    before = len(fake.sockets)
    await fake.drop()
    with pytest.raises(StreamBroken):
        await turn.task
    await fake.until(lambda: len(fake.sockets) == before + 1)
    await is_ready(dashboard)
    return bound


async def test_a_turn_goes_on_where_hermes_is_after_a_loss(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await broken(fake, dashboard)
    fake.live = [row("working")]
    fake.answers["session.resume"] = resumed(running=True, inflight={"user": "hi", "assistant": "w1 w2"})
    heard = Heard()
    following = soon(dashboard.follow(bound, Order(" hi\n"), heard))
    await fake.called("session.resume", 2)
    await fake.event("message.delta", text=" w3")
    await fake.event("message.complete", text="w1 w2 w3", status="complete", reasoning="long ago", usage=USED)
    assert await following is Followed.ENDED
    assert heard.texts == ["w1 w2"]
    assert heard.names == ["assistant.delta", "assistant.completed", "run.completed"]
    assert "usage" not in heard.body("run.completed")  # what was counted before is not known


async def test_a_turn_that_was_compressed_meanwhile_is_found(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await broken(fake, dashboard)
    fake.live = [row("working", key="stored2")]
    fake.answers["session.resume"] = resumed(running=True, inflight={"user": "hi", "assistant": "w1"})
    heard = Heard()
    following = soon(dashboard.follow(bound, Order("hi"), heard))
    assert (await fake.called("session.resume", 2))["session_id"] == "stored2"
    await fake.event("message.complete", text="w1", status="complete", usage=USED)
    assert await following is Followed.ENDED
    assert heard.body("run.completed")["session_id"] == "stored2"


async def test_events_that_come_before_the_answer_are_neither_lost_nor_doubled(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    bound = await broken(fake, dashboard)
    fake.live = [row("working")]
    fake.answers["session.resume"] = silence
    heard = Heard()
    following = soon(dashboard.follow(bound, Order("hi"), heard))
    await fake.called("session.resume", 2)
    for text in (" w2", " w3"):
        await fake.event("message.delta", text=text)
    await fake.event("tool.start", tool_id="t", name="x", context="y")
    result = resumed(running=True, inflight={"user": "hi", "assistant": "w1 w2"})({"session_id": "stored1"})
    await fake.sockets[-1].send_json({"id": str(dashboard._link.connection._last), "result": result})
    await fake.event("message.complete", text="w1 w2 w3", status="complete")
    assert await following is Followed.ENDED
    assert heard.texts[0] + heard.text == "w1 w2 w3"
    assert heard.names[:2] == ["assistant.delta", "tool.started"]


async def test_a_message_without_the_marks_of_its_paste_is_ours(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await broken(fake, dashboard)
    fake.live = [row("working")]
    fake.answers["session.resume"] = resumed(running=True, inflight={"user": "pasted words", "assistant": "w1"})
    following = soon(dashboard.follow(bound, Order("[200~pasted[201~ words"), Heard()))
    await fake.called("session.resume", 2)
    await fake.event("message.complete", text="w1", status="complete")
    assert await following is Followed.ENDED


def test_much_that_comes_before_the_answer_takes_no_time() -> None:
    """Not even as long as it takes to put all of it together once for each event."""
    held = [("message.delta", {"text": "x" * 10_000}) for _ in range(4000)]
    began = time.process_time()
    assert len(_unsaid(held, "")) == 4000
    assert len(_unsaid(held, "x" * 15_000)) == 3999
    assert time.process_time() - began < 2


async def test_what_comes_before_the_answer_is_bounded(
    fake: FakeDashboard, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hermes.dashboard.turn.MAX_HELD_BYTES", 10_000)
    fake.answers["prompt.submit"] = silence
    turn = Running(dashboard, await dashboard.bind(lease()))
    await fake.called("prompt.submit")
    for _ in range(11):
        await fake.event("message.delta", text="x" * 1000)
    await fake.sockets[-1].send_json({"id": "2", "result": {"status": "streaming"}})
    with pytest.raises(StreamBroken):
        await turn.task


async def test_a_message_that_still_waits_in_hermes_is_waited_for(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = await broken(fake, dashboard)
    fake.live = [row("working")]
    fake.answers["session.resume"] = resumed(
        running=True, inflight={"user": "theirs", "assistant": "x"}, queued={"user": "more\n\nhi"}
    )
    heard = Heard()
    following = soon(dashboard.follow(bound, Order("hi"), heard))
    await fake.called("session.resume", 2)
    await fake.event("message.delta", text="theirs")
    await fake.event("session.info", running=False)
    await fake.play("again")
    assert await following is Followed.ENDED
    assert heard.text == "echo: who sees this?"


@pytest.mark.parametrize(
    ("live", "answer"),
    [
        ([], None), ([row("idle")], None), ([row("working", id="another")], None),
        ([row("working")], resumed(running=False, inflight={"user": "hi", "assistant": "x"})),
        ([row("working")], resumed(running=True, inflight={"user": "another", "assistant": "x"})),
        ([row("working")], resumed(running=True)),
        ([row("working")], resumed("another", running=True, inflight={"user": "hi"})),
    ],
)  # fmt: skip
async def test_a_turn_that_hermes_runs_no_more_is_gone(
    fake: FakeDashboard, dashboard: Dashboard, live: list[dict[str, Any]], answer: Any
) -> None:
    fake.live = live
    fake.answers["session.resume"] = answer or refuse(5000)
    heard = Heard()
    assert await dashboard.follow(lease(run_id="live1"), Order("hi"), heard) is Followed.GONE
    assert (heard.all, heard.texts) == ([], [])
    assert answer is not None or "session.resume" not in [name for name, _ in fake.calls]


async def test_nothing_is_followed_while_the_socket_is_not_open(fake: FakeDashboard, dashboard: Dashboard) -> None:
    await dashboard._link.rows()
    fake.socket_refused = True
    await fake.drop()
    await is_ready(dashboard, "auth_required")
    with pytest.raises(UpstreamUnreachable):
        await dashboard.follow(lease(run_id="live1"), Order("hi"), Heard())
    with pytest.raises(UpstreamUnreachable):
        await dashboard.run(lease(run_id="live1"), Order("hi"), Heard())


async def test_a_submit_without_an_answer_may_have_arrived(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["prompt.submit"] = silence
    turn = Running(dashboard, await dashboard.bind(lease()))
    await fake.called("prompt.submit")
    await fake.drop()
    with pytest.raises(StreamBroken):
        await turn.task
    assert turn.heard.run_ids == []
    assert [name for name, _ in fake.calls].count("prompt.submit") == 1


async def test_a_live_session_is_taken_up_again_on_the_next_socket(fake: FakeDashboard, dashboard: Dashboard) -> None:
    await broken(fake, dashboard)
    await dashboard.bind(lease())
    await fake.called("session.resume", 2)


# stop, decide, answer


async def test_a_turn_is_stopped_and_says_so_itself(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["session.interrupt"] = lambda params: {"status": "interrupted"}
    bound = await dashboard.bind(lease())
    turn = Running(dashboard, bound)
    await turn.accepted()
    await fake.event("message.start")
    await turn.heard.until(lambda: turn.heard.names)
    assert await dashboard.stop(bound)
    assert await fake.called("session.interrupt") == {"session_id": "live1"}
    await fake.event("message.complete", text="w1", status="interrupted")
    await turn.task
    assert turn.heard.body("run.completed") == {"completed": False, "interrupted": True}


async def test_a_turn_that_was_stopped_before_it_began_is_over(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers["session.interrupt"] = lambda params: {"status": "interrupted"}
    bound = await dashboard.bind(lease())
    turn = Running(dashboard, bound)
    await turn.accepted()
    fake.live = [row("starting")]
    assert await dashboard.stop(bound)
    assert not turn.task.done()
    fake.live = [row("idle")]
    assert await dashboard.stop(bound)
    await turn.task
    assert turn.heard.all == [("run.cancelled", {})]


async def test_a_decision_says_how_many_it_resolved(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = lease(run_id="live1")
    fake.answers["approval.respond"] = lambda params: {"resolved": 1}
    assert await dashboard.decide(bound, "once") == 1
    assert await fake.called("approval.respond") == {"session_id": "live1", "choice": "once"}
    fake.answers["approval.respond"] = refuse(4001)
    assert await dashboard.decide(bound, "once") == 0


async def test_an_answer_says_whether_it_was_waited_for(fake: FakeDashboard, dashboard: Dashboard) -> None:
    bound = lease(run_id="live1")
    fake.answers["clarify.respond"] = lambda params: {"status": "ok"}
    assert await dashboard.answer(bound, "q1", "blue")
    assert await fake.called("clarify.respond") == {"session_id": "live1", "request_id": "q1", "answer": "blue"}
    fake.answers["clarify.respond"] = refuse(4009)
    assert not await dashboard.answer(bound, "q1", "blue")


async def test_a_decision_that_was_cut_off_is_uncertain(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.answers |= {"approval.respond": silence, "clarify.respond": silence}
    bound = lease(run_id="live1")
    deciding = soon(dashboard.decide(bound, "once"))
    answering = soon(dashboard.answer(bound, "q1", "blue"))
    await fake.called("approval.respond")
    await fake.called("clarify.respond")
    await fake.drop()
    for uncertain in (deciding, answering):
        with pytest.raises(OutcomeUncertain):
            await uncertain


# copies in Hermes' memory


async def test_a_copy_that_is_out_of_date_is_closed_before_the_next_turn(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.answers["session.close"] = lambda params: {"closed": True}
    await dashboard.bind(lease())
    fake.live = [row("working"), row("idle", id="theirs"), row("idle", key="stored2", id="live2")]
    await dashboard.forget("stored1")
    assert [params["session_id"] for name, params in fake.calls if name == "session.close"] == ["theirs"]
    fake.live[0] = row("idle")
    await dashboard.bind(lease())
    assert (await fake.called("session.close", 2))["session_id"] == "live1"


async def test_a_copy_that_could_not_be_closed_is_closed_at_the_next_bind(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.answers["session.close"] = refuse(5000)
    await dashboard.bind(lease())
    await dashboard.forget("stored1")
    fake.answers["session.close"] = lambda params: {"closed": True}
    await dashboard.bind(lease())
    names = [name for name, _ in fake.calls]
    assert names.count("session.close") == 2
    assert names[-1] == "session.resume"
    await dashboard.bind(lease())
    assert len(fake.calls) == len(names)


async def test_the_longest_unused_live_session_is_closed_when_there_are_too_many(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.answers["session.close"] = lambda params: {"closed": True}
    fake.answers["session.resume"] = lambda params: resumed(params["session_id"] + "-live")(params)
    fake.live = [row(id=f"s{n}-live", key=f"s{n}") for n in range(MAX_IDLE + 2)]
    bound = await dashboard.bind(lease("s0"))
    turn = Running(dashboard, bound)
    await turn.accepted()
    for n in range(1, MAX_IDLE + 2):
        await dashboard.bind(lease(f"s{n}"))
    assert await fake.called("session.close") == {"session_id": "s1-live"}  # not s0: a turn runs in it
    await dashboard._link.rows()
    assert [name for name, _ in fake.calls].count("session.close") == 1
    await fake.play("text", "s0-live")
    await turn.task


async def test_what_no_frame_could_carry_is_left_out_of_an_event(fake: FakeDashboard, dashboard: Dashboard) -> None:
    turn = Running(dashboard, await dashboard.bind(lease()))
    await turn.accepted()
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    await fake.event("message.start")
    await fake.event("tool.complete", tool_id="t1", name="read", result=deep, duration_s=1)
    await fake.event("new.kind", said="x", detail=deep)
    await fake.event("approval.request", command="rm one", extra=deep)
    await fake.event("message.complete", text="done", status="complete")
    await turn.task
    tool, new = turn.heard.body("tool.completed"), turn.heard.body("new.kind")
    assert (tool["tool_id"], tool["result"], tool["duration_s"]) == ("t1", None, 1)
    assert new == {"said": "x"}
    assert turn.heard.body("approval.request")["command"] == "rm one"
