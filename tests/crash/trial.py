"""One trial: what was accepted is compared with what arrived. Prints its counts."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crash.parties import GONE, Device, Sender, pause
from tests.crash.relay_process import RelayProcess

# What happens to the relay meanwhile. It may ask how many messages were accepted; when it returns, the trial ends.
Trouble = Callable[[RelayProcess, Callable[[], int]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Counts:
    kills: int
    accepted: int
    retries: int
    links: int
    lost: int  # accepted, but some device never got it
    doubled_effects: int  # one message under two numbers
    doubled_numbers: int  # one number with two contents
    out_of_order: int  # a sender's later message before an earlier one
    gaps: int
    resets: int
    refused: dict[str, int]

    @property
    def faults(self) -> int:
        return self.lost + self.doubled_effects + self.doubled_numbers + self.out_of_order + self.gaps + self.resets


def pair(relay: RelayProcess, name: str) -> str:
    """Returns the session token."""

    def post(path: str, body: object, bearer: str | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        request = urllib.request.Request(relay.url + path, json.dumps(body).encode(), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)

    code = post("/pairing/mint", {}, relay.operator)["code"]
    auth = {"pairing_code": code, "device_id": name, "supports": {"delivery": 1}}
    return post("/pairing/redeem", auth, None)["session_token"]


async def trial(
    data_dir: Path, trouble: Trouble, *, senders: int = 10, devices: int = 3, sockets: int = 1, **environ: str
) -> Counts:
    relay = RelayProcess(data_dir, MAILBOX_MAX_COUNT="1000000", **environ)
    await relay.start()
    try:
        tokens = [await asyncio.to_thread(pair, relay, f"device-{i}") for i in range(devices)]
        phones = [Device(f"device-{i}", relay, token, random.Random(i), sockets) for i, token in enumerate(tokens)]
        posts = [Sender(f"s{i}", relay) for i in range(senders)]
        posted, seen = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(post.run(posted)) for post in posts]
            reading = [group.create_task(phone.run(seen)) for phone in phones]
            await trouble(relay, lambda: sum(post.accepted for post in posts))
            posted.set()
            await asyncio.wait(sending)
            seen.set()
            await asyncio.wait(reading)
        for phone in phones:
            await _catch_up(phone, sum(post.accepted for post in posts))
    finally:
        await relay.stop()
    return _count(relay, posts, phones)


async def _catch_up(phone: Device, expected: int) -> None:
    """Everything that is kept, over links that stay; gives up where nothing more comes."""
    phone.sockets = 1
    for _ in range(20):
        if phone.last >= expected:
            return
        try:
            await phone.connect_once(10**9, until=expected)
        except GONE:
            await pause()


def _count(relay: RelayProcess, posts: list[Sender], phones: list[Device]) -> Counts:
    expected = {f"{post.name}-{n}" for post in posts for n in range(post.accepted)}
    lost = doubled = disordered = 0
    for phone in phones:
        times = Counter(phone.got.values())
        lost += len(expected - times.keys())
        doubled += sum(count - 1 for count in times.values())
        latest: dict[str, int] = {}
        for seq in sorted(phone.got):
            name, _, n = phone.got[seq].rpartition("-")
            disordered += int(n) <= latest.get(name, -1)
            latest[name] = int(n)
    refused: Counter[str] = Counter()
    for post in posts:
        refused.update(post.refused)
    return Counts(
        kills=relay.kills, accepted=len(expected), retries=sum(post.retries for post in posts),
        links=sum(phone.links for phone in phones), lost=lost, doubled_effects=doubled,
        doubled_numbers=sum(phone.doubled for phone in phones), out_of_order=disordered,
        gaps=sum(phone.gaps for phone in phones), resets=sum(phone.resets for phone in phones), refused=dict(refused),
    )  # fmt: skip
