"""GET /notifications/recent, as hermes-relay's own tools and the agent find it (recorded from the peer)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.clock import ManualClock
from app.wire.notifications import MAX_LIMIT
from tests import older
from tests.api.conftest import client_of
from tests.channels.notes import note, post, remove, with_grants
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

RECENT = "/notifications/recent"


def bearer(phone: Phone) -> dict[str, str]:
    return {"Authorization": f"Bearer {phone.token}"}


async def test_the_recorded_exchange(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await older.connect(relay)
    await post(phone, *map(note, range(3)))
    for query, numbers in (("?limit=2", [2, 1]), ("", [2, 1, 0]), ("?limit=1", [2]), ("?limit=99999", [2, 1, 0])):
        answer = await operator.get(RECENT + query)
        assert answer.status_code == 200
        assert answer.json() == {"ok": True, "notifications": [note(n) for n in numbers], "count": len(numbers)}
        assert list(answer.json()) == ["ok", "notifications", "count"]
        assert list(answer.json()["notifications"][0]) == list(note())


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("0", "limit must be >= 1"), ("-3", "limit must be >= 1"), ("abc", "limit must be an integer"),
        ("1.5", "limit must be an integer"), ("", "limit must be an integer"), ("9" * 5000, "limit must be an integer"),
        ("\u0663", "limit must be an integer"), ("1_0", "limit must be an integer"), (" 5", "limit must be an integer"),
    ],
)  # fmt: skip
async def test_limits_that_are_none(operator: httpx.AsyncClient, limit: str, error: str) -> None:
    answer = await operator.get(RECENT, params={"limit": limit})
    assert (answer.status_code, answer.json()) == (400, {"ok": False, "error": error})
    assert answer.headers["x-talaria-error"] == "payload_invalid"


async def test_at_most_a_hundred_are_given(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await older.connect(relay)
    await post(phone, *map(note, range(MAX_LIMIT + 5)))
    for query in ("", "?limit=1000"):
        found = (await operator.get(RECENT + query)).json()
        assert (found["count"], found["notifications"][0]) == (MAX_LIMIT, note(MAX_LIMIT + 4))


async def test_what_was_removed_is_marked(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    await post(phone, note(0), note(1))
    await remove(phone, note(1)["key"])
    newest, older_one = (await operator.get(RECENT)).json()["notifications"]
    assert newest == note(1) | {"removed_at": newest["removed_at"]}
    assert older_one == note(0)


async def test_who_may(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    reader, other = await with_grants(relay, "notifications"), await with_grants(relay, "chat")
    await post(other, note())
    link = {"Authorization": f"Bearer {relay.relay.link.read()}"}
    for headers in (bearer(reader), link, relay.operator()):
        assert (await http.get(RECENT, headers=headers)).json()["count"] == 1
    for headers, status, code, said in (
        ({}, 401, "session_required", "Authorization: Bearer <session_token> required"),
        ({"Authorization": "Bearer nonsense"}, 401, "session_unknown", "invalid or expired session token"),
        (bearer(other), 403, "grant_missing", "notifications is not granted to this device, or the grant has expired"),
    ):
        answer = await http.get(RECENT, headers=headers)
        assert (answer.status_code, answer.headers["x-talaria-error"], answer.text) == (status, code, said)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_grant_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay, client_of(relay) as http:
        code = (await relay.relay.pairing.mint(grants={"notifications": 60, "chat": None})).code
        phone = await relay.connect(pairing_code=code)
        assert (await http.get(RECENT, headers=bearer(phone))).status_code == 200
        clock.advance(60)
        answer = await http.get(RECENT, headers=bearer(phone))
        assert (answer.status_code, answer.headers["x-talaria-error"]) == (403, "grant_missing")


async def test_a_tool_on_the_host_needs_no_token_where_the_operator_says_so(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TRUST_LOOPBACK="1")) as relay, client_of(relay) as tool:
        await post(await relay.connect(), note())
        assert (await tool.get(RECENT)).json()["notifications"] == [note()]
        assert (await tool.get(RECENT, headers={"X-Forwarded-For": "203.0.113.9"})).status_code == 401
