"""GET /metrics of a relay at work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from app.api.metrics import UPSTREAM_STATES
from app.approvals.ask import Ask
from app.clock import ManualClock
from app.delivery.drafts import Draft
from app.delivery.messages import OPERATOR
from app.demo.stand_in import serve_stand_in
from app.errors import StorageFull
from tests.api.conftest import client_of
from tests.bridge.phone_simulator import simulated
from tests.channels.notes import note, post
from tests.contracts.services import NtfyService
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for
from tests.servers import serving

KEY = "stand-in-key-0123456789"


class Scrape(dict[tuple[str, ...], float]):
    """Values by name and the values of its labels, which come in the order of their names."""

    def of(self, name: str) -> dict[Any, float]:
        """By the values of its labels, where it has some."""
        found = {key[1:]: value for key, value in self.items() if key[0] == name}
        return {key[0] if len(key) == 1 else key: value for key, value in found.items()}


async def scrape(http: httpx.AsyncClient) -> Scrape:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return Scrape(
        ((sample.name, *sample.labels.values()), sample.value)
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    )


async def test_only_the_operator_reads_it(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    for headers in (
        {},
        {"Authorization": f"Bearer {phone.token}"},
        {"Authorization": f"Bearer {relay.relay.link.read()}"},
    ):
        answer = await http.get("/metrics", headers=headers)
        assert (answer.status_code, answer.headers["x-talaria-error"]) == (401, "operator_required")
        assert "talaria_" not in answer.text


async def test_links_and_their_frames(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    stranger = await relay.open()
    await phone.until("synced")
    before = await scrape(operator)
    assert (before["talaria_links_open",], before["talaria_links_unauthenticated",]) == (1, 1)
    for _ in range(5):
        await phone.ping()
    after = await scrape(operator)
    assert after["talaria_frames_received_total",] - before["talaria_frames_received_total",] == 5
    assert after["talaria_frames_sent_total",] - before["talaria_frames_sent_total",] == 5
    await stranger.socket.close()
    await phone.socket.close()
    after = await scrape(operator)
    assert (after["talaria_links_open",], after["talaria_links_unauthenticated",]) == (0, 0)


async def test_a_queue_behind_a_full_transport_counts_each_frame_once(
    relay: RunningRelay, operator: httpx.AsyncClient
) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    before = await scrape(operator)
    (link,) = relay.relay.hub.of_device(phone.auth["device_id"])
    for _ in range(200):
        link.send(b'{"channel":"x","type":"big","payload":{"text":"%s"}}' % (b"x" * 50_000))
    for _ in range(200):
        await phone.until("big")
    after = await scrape(operator)
    assert after["talaria_frames_sent_total",] - before["talaria_frames_sent_total",] == 200


async def test_mailboxes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running(settings_for(tmp_path), clock=clock) as relay,
        client_of(relay, headers=relay.operator()) as http,
    ):
        awake, asleep, gone = await relay.connect(), await relay.connect(), await relay.connect()
        await asleep.hang_up()
        for number in range(3):
            await relay.relay.messages.send(Draft(f"{number}"), sender=OPERATOR)
            clock.advance(10)
        await awake.until("message", lambda frame: frame.seq == 3)
        await awake.ack(3)
        await awake.ping()
        await relay.relay.acks.flush()
        found = await scrape(http)
        assert found["talaria_kept_frames_total",] == 9
        assert found["talaria_acknowledged_frames_total",] == 3
        assert (found["talaria_waiting_frames",], found["talaria_waiting_frames_max",]) == (6, 3)
        assert found["talaria_oldest_waiting_frame_seconds",] == 30
        await gone.hang_up()
        (prefix,) = [
            one["token_prefix"] for one in (await http.get("/sessions")).json()["sessions"]
            if one["device_id"] == gone.auth["device_id"]
        ]  # fmt: skip
        assert (await http.delete(f"/sessions/{prefix}")).status_code == 200
        assert (await scrape(http))["talaria_waiting_frames",] == 3
        back = await relay.connect(session_token=asleep.token)
        await back.until("synced")
        await back.ack(3)
        await back.ping()
        await relay.relay.acks.flush()
        found = await scrape(http)
        assert (found["talaria_waiting_frames",], found["talaria_oldest_waiting_frame_seconds",]) == (0, 0)


async def test_turns_and_the_ways_to_hermes(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as stand_in:
        settings = settings_for(tmp_path, HERMES_API_URL=stand_in.url, HERMES_API_KEY=KEY)
        async with running(settings) as relay, client_of(relay, headers=relay.operator()) as http:
            await relay.relay.hermes.probe()
            phone = await relay.connect()
            before = await scrape(http)
            assert set(before.of("talaria_turns_ended_total").values()) == {0}
            await phone.send("chat", "chat.send", message="hello")
            await phone.until("turn.completed")
            await phone.send("chat", "chat.send", message="hello again")
            await phone.until("turn.completed")
            found = await scrape(http)
            ended = found.of("talaria_turns_ended_total")
            assert ended == {"completed": 2, "stopped": 0, "interrupted": 0, "failed": 0, "uncertain": 0}
            assert found.of("talaria_turns_open") == {"accepted": 0, "submitting": 0, "running": 0}
            states = found.of("talaria_upstream_state")
            assert {key: value for key, value in states.items() if value} == {
                ("up", "api"): 1, ("off", "dashboard"): 1, ("off", "gateway"): 1,
            }  # fmt: skip
            assert len(states) == 3 * len(UPSTREAM_STATES)


async def test_a_turn_that_waits_and_one_that_failed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, HERMES_API_URL="http://127.0.0.1:9")  # nobody listens there
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as http:
        phone = await relay.connect()
        await phone.send("chat", "chat.send", message="hello")
        await phone.until("turn.failed")
        assert (await scrape(http)).of("talaria_turns_ended_total")["failed"] == 1


async def test_pushes_and_wakes(tmp_path: Path) -> None:
    ntfy, clock = NtfyService(), ManualClock()
    async with serving(ntfy) as port:
        settings = settings_for(tmp_path, NTFY_URL=f"http://127.0.0.1:{port}", NTFY_TOKEN=ntfy.token)
        async with running(settings, clock=clock) as relay, client_of(relay, headers=relay.operator()) as http:
            await asleep(relay, provider="ntfy")
            await asleep(relay)  # nowhere to push to
            assert set((await scrape(http)).of("talaria_pushes_total").values()) == {0}
            await relay.relay.messages.send(Draft("hello"), sender=OPERATOR)
            clock.advance(6)
            await relay.relay.push.dispatcher.once()
            found = await scrape(http)
            assert {key: n for key, n in found.of("talaria_pushes_total").items() if n} == {("sent", "ntfy"): 1}
            assert found.of("talaria_wakes_total") == {"pushed": 1, "failed": 0, "later": 0, "nothing": 1}


async def asleep(relay: RunningRelay, **target: str) -> Phone:
    phone = await relay.connect()
    if target:
        assert (await phone.ask("system", "push.register", **target)).type == "push.registered"
    await phone.hang_up()
    return phone


async def test_what_the_agent_waits_for(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    assert (await scrape(operator)).of("talaria_asks_open") == {"approval": 0, "question": 0}
    for _ in range(2):  # the second waits behind the first
        relay.relay.approvals.asked(Ask("s1", "approval", "rm -rf /tmp/x", 60.0, turn_id="t1"), Deaf())
        await phone.until("approval.request")
    relay.relay.approvals.asked(Ask("s1", "question", "Which one?", 60.0, turn_id="t1"), Deaf())
    await phone.until("question.ask")
    assert (await scrape(operator)).of("talaria_asks_open") == {"approval": 2, "question": 1}
    relay.relay.approvals.passed("t1")
    await phone.until("question.closed")
    assert (await scrape(operator)).of("talaria_asks_open") == {"approval": 0, "question": 0}


class Deaf:
    """Asks, and takes no answer."""

    async def waits_for(self, tool_id: str) -> bool:
        return True

    async def decide(self, choice: str) -> int:
        raise NotImplementedError

    async def answer(self, ref: str, text: str) -> bool:
        raise NotImplementedError


async def test_requests_by_route_and_status_whatever_was_asked_for(
    relay: RunningRelay, operator: httpx.AsyncClient
) -> None:
    phone = await relay.connect()
    for path in ("/health", "/health", "/", "/nothing/at/all", "/media/secret-token", "/sessions?x=1", "/static/x.js"):
        await operator.get(path)
    await operator.get("/health", headers={"Host": "elsewhere.example"})
    await operator.post("/messages", json={"text": "hello"})
    with pytest.raises(InvalidStatus):
        await relay.open("/elsewhere")
    assert (await scrape(operator)).of("talaria_http_requests_total") == {
        ("health", "200"): 2, ("page", "200"): 1, ("other", "404"): 1, ("media", "404"): 1, ("sessions", "200"): 1,
        ("static", "404"): 1, ("other", "421"): 1, ("messages", "202"): 1, ("socket", "404"): 1, ("socket", "101"): 1,
    }  # fmt: skip
    assert phone.token


async def test_the_database(relay: RunningRelay, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await scrape(operator)
    for _ in range(3):
        await relay.relay.db.write(lambda tx: None)
    after = await scrape(operator)
    for name in ("talaria_database_commit_seconds", "talaria_database_batch_works"):
        assert after[f"{name}_count",] - before[f"{name}_count",] == 3
        buckets = list(after.of(f"{name}_bucket").values())
        assert buckets == sorted(buckets)
        assert buckets[-1] == after[f"{name}_count",]
    assert after["talaria_database_batch_works_sum",] - before["talaria_database_batch_works_sum",] == 3
    assert (after["talaria_database_queued_works",], after["talaria_database_failed_commits_total",]) == (0, 0)

    def full(tx: Any) -> None:
        raise StorageFull()

    with pytest.raises(StorageFull):
        await relay.relay.db.write(full)
    assert (await scrape(operator))["talaria_database_failed_commits_total",] == 1


async def test_commands_to_phones_and_terminals(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    async with simulated(relay) as phone:
        phone.refused.add("/tap")
        for _ in range(2):
            assert (await operator.get("/screen")).status_code == 200
        assert (await operator.post("/tap", json={"x": 1, "y": 1})).status_code == 403
        await phone.phone.hang_up()
    late = await operator.get("/screen", headers={"X-Talaria-Timeout": "1"})
    assert late.status_code in (503, 504)
    seen = await scrape(operator)
    commands = seen.of("talaria_bridge_commands_total")
    assert (commands["executed"], commands["refused"]) == (2, 1)
    assert commands["device_offline"] + commands["timeout"] == 1
    assert seen.of("talaria_terminals_attached") == {(): 0}


async def test_what_the_guide_asks_for_is_there(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    guide = (Path(__file__).parents[2] / "deploy/guide.md").read_text()
    named = set(re.findall(r"\btalaria_\w+", guide))
    assert len(named) > 4
    assert named <= {name for name, *_ in await scrape(operator)}


async def test_nothing_names_a_device(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect(device_id="device-of-kim", device_name="Kim's phone")
    await post(phone, note())
    await relay.relay.messages.send(Draft("hello"), sender=OPERATOR)
    page = (await operator.get("/metrics")).text.lower()
    assert not [word for word in ("kim", "com.example", phone.token.lower()) if word in page]
