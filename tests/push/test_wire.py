"""Push as devices and the operator meet it: on the socket and over HTTP, with a real relay and a real push server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.clock import ManualClock
from app.delivery.drafts import Draft
from app.outbox import store as outbox
from app.push.service import TESTS
from tests.contracts.services import NtfyService, Reply, WebPushService
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for
from tests.servers import serving


@dataclass
class House:
    relay: RunningRelay
    clock: ManualClock
    ntfy: NtfyService
    browser: WebPushService
    push_url: str

    def http(self, phone: Phone | None = None) -> httpx.AsyncClient:
        headers = self.relay.operator() if phone is None else {"Authorization": f"Bearer {phone.token}"}
        return httpx.AsyncClient(base_url=self.relay.url, headers=headers)

    async def send(self, **fields: Any) -> None:
        await self.relay.relay.messages.send(Draft(text="secret", **fields), sender="operator")

    async def look(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.relay.relay.push.dispatcher.once()

    async def box(self, phone: Phone) -> outbox.Mailbox:
        box = await self.relay.relay.db.read(lambda tx: outbox.mailbox(tx, str(phone.auth["device_id"])))
        assert box is not None
        return box


@dataclass
class Window:
    """A link that shows who waits for its end."""

    link_id: int
    device_id: str
    watchers: list[Callable[[bool], None]] = field(default_factory=list)

    def when_closed(self, callback: Callable[[bool], None]) -> None:
        self.watchers.append(callback)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    ntfy, browser, clock = NtfyService(), WebPushService(), ManualClock(time.time())
    async with serving(ntfy) as ntfy_port, serving(browser) as push_port:
        settings = settings_for(
            tmp_path, NTFY_URL=f"http://127.0.0.1:{ntfy_port}", NTFY_TOKEN=ntfy.token, PUSH_ALLOW="127.0.0.0/8",
            VAPID_SUBJECT="mailto:owner@home.example",
        )  # fmt: skip
        async with running(settings, clock=clock) as relay:
            browser.origin = f"http://127.0.0.1:{push_port}"
            yield House(relay, clock, ntfy, browser, f"{browser.origin}/push/one")


async def test_a_sleeping_phone_is_woken_once_and_gets_everything(house: House) -> None:
    phone = await house.relay.connect()
    assert phone.auth["push"] | {"vapid_key": ""} == {
        "state": "none", "providers": ["ntfy", "unifiedpush", "webpush"], "vapid_key": "",
    }  # fmt: skip
    made = await phone.ask("system", "push.register", provider="ntfy")
    assert made.type == "push.registered"
    assert made.payload["url"] == f"{made.payload['server']}/{made.payload['topic']}"
    await phone.hang_up()
    for _ in range(3):
        await house.send()
    await house.look(5)
    (pushed,) = house.ntfy.taken
    assert (pushed["topic"], pushed["message"]) == (made.payload["topic"], "3 new messages")

    back = await house.relay.connect(session_token=phone.token)
    assert back.auth["push"]["state"] == "ok"
    for seq in (1, 2, 3):
        assert (await back.until("message")).seq == seq
    await back.ack(3)
    await back.ping()
    await house.relay.relay.acks.flush()
    await house.look(3600)
    assert len(house.ntfy.taken) == 1


async def test_a_phone_that_is_awake_is_not_woken(house: House) -> None:
    phone = await house.relay.connect()
    await phone.ask("system", "push.register", provider="ntfy")
    await house.send()
    await phone.ack((await phone.until("message")).seq or 0)
    await phone.ping()
    await house.relay.relay.acks.flush()
    await house.look(60)
    assert house.ntfy.requests == 0


async def test_registering_again_keeps_the_topic_and_another_after_unregistering(house: House) -> None:
    phone = await house.relay.connect()
    first = await phone.ask("system", "push.register", provider="ntfy")
    assert (await phone.ask("system", "push.register", provider="ntfy")).payload == first.payload
    other = await house.relay.connect()
    assert (await other.ask("system", "push.register", provider="ntfy")).payload["topic"] != first.payload["topic"]
    removed = await phone.ask("system", "push.unregister", target_id=first.payload["target_id"])
    assert (removed.type, removed.payload) == ("push.unregistered", {"removed": 1})
    again = await phone.ask("system", "push.register", provider="ntfy")
    assert again.payload["topic"] != first.payload["topic"]
    assert (await phone.ask("system", "push.unregister")).payload == {"removed": 1}
    gone = await phone.ask("system", "push.unregister", target_id=first.payload["target_id"])
    assert gone.payload["code"] == "push_target_unknown"


async def test_a_browser_is_pushed_with_the_key_it_subscribed_with(house: House) -> None:
    phone = await house.relay.connect()
    house.browser.application_key = phone.auth["push"]["vapid_key"]
    made = await phone.ask(
        "system", "push.register", provider="webpush", endpoint=house.push_url, keys=house.browser.keys()
    )
    assert made.payload.keys() == {"target_id", "provider"}
    tested = await phone.ask("system", "push.test")
    assert (tested.type, tested.payload["results"]) == (
        "push.tested",
        [{
            "target_id": made.payload["target_id"], "provider": "webpush", "verdict": "sent", "code": "accepted",
            "detail": "the push was taken",
        }],
    )  # fmt: skip
    assert (house.browser.taken[0]["kind"], house.browser.taken[0]["path"]) == ("test", "/push/one")
    for _ in range(TESTS[0] - 1):
        await phone.ask("system", "push.test")
    assert (await phone.ask("system", "push.test")).payload["code"] == "rate_limited"


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"provider": "fcm", "endpoint": "token"}, "push_provider_off"),
        ({"provider": "pigeon"}, "push_provider_off"),
        ({"provider": "ntfy", "endpoint": "mytopic"}, "push_target_invalid"),
        ({"provider": "webpush"}, "push_target_invalid"),
        ({"provider": "webpush", "endpoint": "https://push.example/x"}, "push_target_invalid"),
        ({"provider": "unifiedpush", "endpoint": "http://push.example/x"}, "address_refused"),
        ({"provider": "unifiedpush", "endpoint": "https://10.0.0.1/x"}, "address_refused"),
        ({"endpoint": "https://push.example/x"}, "payload_invalid"),
    ],
)  # fmt: skip
async def test_what_cannot_be_registered_is_refused_by_name(house: House, payload: dict[str, Any], code: str) -> None:
    phone = await house.relay.connect()
    assert (await phone.ask("system", "push.register", payload)).payload["code"] == code
    assert (await phone.ask("system", "push.test")).payload["code"] == "push_target_unknown"
    async with house.http(phone) as http:
        answer = await http.post("/push/targets", json=payload)
        assert answer.headers["x-talaria-error"] == code


async def test_a_target_that_is_known_does_not_stand_for_one_that_is_not_named(house: House) -> None:
    phone = await house.relay.connect()
    house.browser.application_key = phone.auth["push"]["vapid_key"]
    keys = house.browser.keys()
    for provider in ("webpush", "unifiedpush"):
        await phone.ask("system", "push.register", provider=provider, endpoint=house.push_url, keys=keys)
        answer = await phone.ask("system", "push.register", provider=provider)
        assert answer.payload["code"] == "push_target_invalid"
    assert {result["verdict"] for result in (await phone.ask("system", "push.test")).payload["results"]} == {"sent"}


async def test_what_a_provider_repeats_of_an_endpoint_is_not_shown(house: House) -> None:
    phone = await house.relay.connect()
    secret = "S3cr3t-part" * 30
    url = f"{house.push_url}/{secret}"
    await phone.ask("system", "push.register", provider="webpush", endpoint=url, keys=house.browser.keys())
    for said in (f"there is nothing at {url}", f"unknown: {secret}", url.replace("/", "\\/")):
        house.browser.replies = [Reply(400, said.encode())]
        (result,) = (await phone.ask("system", "push.test")).payload["results"]
        assert result["code"] == "rejected"
        assert "S3cr3t" not in result["detail"]


async def test_a_test_keeps_to_retry_after_too(house: House) -> None:
    phone = await house.relay.connect()
    await phone.ask("system", "push.register", provider="ntfy")
    house.ntfy.replies = [Reply(429, b"", {"retry-after": "600"})]
    await phone.ask("system", "push.test")
    await phone.hang_up()
    await house.send()
    await house.look(5)
    assert house.ntfy.requests == 1
    await house.look(600)
    assert len(house.ntfy.taken) == 1


async def test_presence_holds_back_the_wake_of_that_device_until_it_leaves(house: House) -> None:
    phone, other = await house.relay.connect(), await house.relay.connect()
    topics = {}
    for one in (phone, other):
        topics[one.token] = (await one.ask("system", "push.register", provider="ntfy")).payload["topic"]
    await phone.send("system", "presence", foreground=True)
    await phone.ping()
    assert (await house.box(phone)).foreground_until == house.clock.now() + 60
    assert (await house.box(other)).foreground_until is None
    second = await house.relay.connect(session_token=phone.token)
    await second.send("system", "presence", foreground=True)
    await second.ping()
    await house.send()
    await house.look(5)
    assert [t["topic"] for t in house.ntfy.taken] == [topics[other.token]]
    await phone.send("system", "presence", foreground=False)
    await phone.ping()
    assert (await house.box(phone)).foreground_until is not None  # its other window is still looked at
    await second.send("system", "presence", foreground=False)
    await second.ping()
    await house.look(0)
    assert [t["topic"] for t in house.ntfy.taken] == [topics[other.token], topics[phone.token]]


async def test_the_end_of_a_link_is_watched_once(house: House) -> None:
    """Each window that is looked at and left says so; a link may last for months."""
    phone = await house.relay.connect()
    window = Window(link_id=-1, device_id=phone.auth["device_id"])
    for _ in range(3):
        for foreground in (True, False):
            await house.relay.relay.push.presence.say(window, foreground=foreground)
    assert len(window.watchers) == 1


async def test_a_link_that_breaks_leaves_the_foreground_to_run_out(house: House) -> None:
    phone = await house.relay.connect()
    await phone.ask("system", "push.register", provider="ntfy")
    await phone.send("system", "presence", foreground=True)
    await phone.ping()
    await phone.hang_up()
    await house.send()
    await house.look(59)
    assert house.ntfy.taken == []
    await house.look(1)
    assert len(house.ntfy.taken) == 1


async def test_a_device_reads_and_changes_what_it_wants(house: House) -> None:
    phone = await house.relay.connect()
    async with house.http(phone) as http:
        made = (await http.post("/push/targets", json={"provider": "ntfy"})).json()
        await house.send()
        await phone.hang_up()
        house.ntfy.replies = [Reply(500)]
        await house.look(5)
        about = (await http.get("/push")).json()
        assert (about["state"], about["last_ok_at"]) == ("failing", None)
        assert about["last_error"] == {"at": house.clock.now(), "provider": "ntfy", "code": "service_failed"}
        (target,) = about["targets"]
        assert (target["target_id"], target["topic"], target["failure"]) == (
            made["target_id"], made["topic"], "service_failed",
        )  # fmt: skip
        assert [(o["verdict"], o["status"]) for o in about["outcomes"]] == [("later", 500)]

        quiet = {"from": "22:00", "to": "07:00", "zone": "Europe/Berlin", "except": ["approval"]}
        wishes = {"kinds": {"cron": False}, "quiet": quiet, "min_turn_s": 30}
        stored = (await http.put("/push/preferences", json=wishes)).json()
        assert (stored["quiet"], stored["kinds"]["cron"], stored["kinds"]["message"]) == (quiet, False, True)
        assert (await http.get("/push")).json()["preferences"] == stored
        refused = await http.put("/push/preferences", json={"quiet": quiet | {"zone": "Mars/Phobos"}})
        assert (refused.status_code, refused.headers["x-talaria-error"]) == (400, "payload_invalid")
        off = dict.fromkeys(stored["kinds"], False)
        await http.put("/push/preferences", json={"kinds": off})
        assert (await http.get("/push")).json()["state"] == "off"
        assert (await http.delete(f"/push/targets/{made['target_id']}")).json() == {"removed": 1}
        assert (await http.delete(f"/push/targets/{made['target_id']}")).status_code == 404
        assert (await http.get("/push")).json()["state"] == "none"
        assert (await http.post("/push/test", json={"device_id": "x"})).status_code == 401


async def test_no_target_and_no_token_is_ever_shown_to_others_or_logged(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    phone = await house.relay.connect()
    topic = (await phone.ask("system", "push.register", provider="ntfy")).payload["topic"]
    await phone.ask("system", "push.register", provider="webpush", endpoint=house.push_url, keys=house.browser.keys())
    await phone.hang_up()
    await house.send()
    caplog.set_level("DEBUG", "talaria")
    await house.look(5)
    async with house.http() as http:
        devices = (await http.get("/devices")).text
    # The services of this test log in the same process, as the real ones do on their own machines.
    logged = "\n".join(str(vars(record)) for record in caplog.records if record.name.startswith("talaria"))
    assert logged
    for said in (devices, logged):
        assert topic not in said
        assert "/push/one" not in said
        assert house.ntfy.token not in said


# the operator's test


def hops(trial: dict[str, Any]) -> list[tuple[str, bool | None]]:
    return [(hop["hop"], hop["ok"]) for hop in trial["hops"]]


async def test_the_whole_way_is_followed_to_the_acknowledgement(house: House) -> None:
    phone = await house.relay.connect()
    await phone.ask("system", "push.register", provider="ntfy")
    await phone.hang_up()
    async with house.http() as http:
        trial = (await http.post("/push/test", json={"device_id": phone.auth["device_id"]})).json()
        assert hops(trial) == [("target", True), ("reached", True), ("accepted", True)]
        path = f"/push/test/{trial['message_id']}"
        assert (await http.get(path)).json() == {"answered": False}
        back = await house.relay.connect(session_token=phone.token)
        message = await back.until("message")
        assert message.payload["message_id"] == trial["message_id"]
        await back.ack(message.seq or 0)
        assert (await http.get(path, params={"wait": 30})).json() == {"answered": True}
        assert (await http.get("/push/test/nothing")).status_code == 404
        assert (await http.post("/push/test", json={"device_id": "nobody"})).status_code == 404
    assert house.ntfy.taken[0]["message"].startswith("Push works")


async def test_each_hop_that_fails_is_named(house: House) -> None:
    phone = await house.relay.connect()
    device = {"device_id": phone.auth["device_id"]}
    async with house.http() as http:
        assert hops((await http.post("/push/test", json=device)).json()) == [("target", False)]
        await phone.ask("system", "push.register", provider="ntfy")
        house.ntfy.replies = [Reply(403, b'{"error":"forbidden"}')]
        trial = (await http.post("/push/test", json=device)).json()
        assert hops(trial) == [("target", True), ("reached", True), ("accepted", False)]
        assert trial["hops"][-1]["said"] == "HTTP 403, auth_refused: forbidden"
        await phone.ask("system", "push.unregister")
        await phone.ask(
            "system", "push.register", provider="webpush", endpoint="http://127.0.0.1:1/x", keys=house.browser.keys()
        )
        trial = (await http.post("/push/test", json=device)).json()
        assert hops(trial) == [("target", True), ("reached", False), ("accepted", None)]
        assert trial["hops"][1]["said"].startswith("connection_refused")
        await phone.ask(
            "system", "push.register", provider="webpush", endpoint=house.push_url, keys=house.browser.keys()
        )
        trial = (await http.post("/push/test", json=device)).json()
        mismatch = [hop for hop in trial["hops"] if hop["hop"] == "accepted" and hop["ok"] is False]
        assert "key_mismatch" in mismatch[0]["said"]


async def test_the_operator_sees_how_push_stands(house: House) -> None:
    phone = await house.relay.connect()
    async with house.http() as http:
        (device,) = (await http.get("/devices")).json()["devices"]
        assert device["push"] == {"state": "none", "last_ok_at": None, "last_error": None}
        await phone.ask("system", "push.register", provider="ntfy")
        await phone.ask("system", "push.test")
        (device,) = (await http.get("/devices")).json()["devices"]
        assert device["push"] == {"state": "ok", "last_ok_at": house.clock.now(), "last_error": None}
