"""Turns over the dashboard of a real Hermes, on loopback and behind its login."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.errors import StreamBroken
from app.hermes.lease import Lease
from app.hermes.upstream import Followed, Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes.hermes_lab import Lab
from tests.hermes_client.dashboard_server import Heard, is_ready, lease, soon

pytestmark = pytest.mark.hermes


@pytest.fixture
def titles() -> list[str]:
    return []


@pytest.fixture(params=["dashboard", "gated"])
async def dashboard(request: pytest.FixtureRequest, lab: Lab, titles: list[str]) -> AsyncIterator[Dashboard]:
    settings = HermesSettings(
        hermes_dashboard_url=lab.dashboard if request.param == "dashboard" else lab.gated,
        hermes_dashboard_username=lab.username,
        hermes_dashboard_password=SecretStr(lab.password),
    )
    async with (
        Supervisor() as tasks,
        Dashboard(settings, tasks, titled=lambda _, title: titles.append(title)) as dashboard,
    ):
        await is_ready(dashboard)
        yield dashboard


async def new(dashboard: Dashboard) -> Lease:
    return await dashboard.bind(lease((await dashboard.create(Order("")))["id"]))


async def test_text_thoughts_a_tool_and_a_title(dashboard: Dashboard, titles: list[str]) -> None:
    bound, heard = await new(dashboard), Heard()
    await dashboard.run(bound, Order("THINK:first this\nPRE:let me\nTOOL:terminal:echo hi"), heard)
    thoughts = [body["delta"] for name, body in heard.all if name == "reasoning.delta" and body]
    assert "".join(thoughts) == "first this" * 2
    assert heard.body("tool.completed")["result"]["output"] == "hi"
    assert heard.text == "let me\n\n" + heard.body("assistant.completed")["content"]
    assert heard.body("run.completed")["usage"]["total_tokens"] > 0
    again = Heard()
    await dashboard.run(bound, Order("SAY:42"), again)
    assert again.text == "42"
    assert titles
    rows = await dashboard.messages(bound.session_id)
    assert [row["content"] for row in rows if row["role"] == "user"][-1] == "SAY:42"


async def test_an_approval_and_a_question(dashboard: Dashboard, tmp_path: Path) -> None:
    bound, heard = await new(dashboard), Heard()
    running = soon(dashboard.run(bound, Order(f"TOOL:terminal:rm -rf {tmp_path}/x"), heard))
    await heard.until(lambda: "approval.request" in heard.names)
    assert heard.body("approval.request")["tool_id"] == heard.body("tool.started")["tool_id"]
    assert [await dashboard.decide(bound, "once") for _ in range(2)] == [1, 0]
    await running
    asked = Heard()
    text = 'TOOL:clarify:{"question":"Which?","choices":["red","blue"]}'
    running = soon(dashboard.run(bound, Order(text), asked))
    await asked.until(lambda: "clarify.request" in asked.names)
    request_id = asked.body("clarify.request")["request_id"]
    assert [await dashboard.answer(bound, request_id, "blue") for _ in range(2)] == [True, False]
    await running
    assert asked.body("tool.completed")["result"]["user_response"] == "blue"


async def test_a_turn_is_stopped(dashboard: Dashboard) -> None:
    bound, heard = await new(dashboard), Heard()
    running = soon(dashboard.run(bound, Order("WORDS:400 DELAY:50"), heard))
    await heard.until(lambda: heard.text)
    assert await dashboard.stop(bound)
    await running
    assert heard.body("run.completed")["interrupted"] is True


async def test_a_failure_of_the_model(dashboard: Dashboard) -> None:
    bound, heard = await new(dashboard), Heard()
    await dashboard.run(bound, Order("ERROR:400"), heard)
    assert "400" in heard.body("run.failed")["error"]


async def test_a_turn_goes_on_after_the_socket_was_lost(dashboard: Dashboard, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    bound, heard, order = await new(dashboard), Heard(), Order(f"WORDS:60 DELAY:40 HALF:{rest}")
    running = soon(dashboard.run(bound, order, heard))
    await heard.until(lambda: heard.text)
    socket = dashboard._link.connection._socket
    assert socket is not None
    await socket.close()
    with pytest.raises(StreamBroken):
        await running
    await is_ready(dashboard)
    after = Heard()
    following = soon(dashboard.follow(bound, order, after))
    await after.until(lambda: after.texts)
    rest.touch()
    assert await following is Followed.ENDED
    said = after.texts[0] + after.text
    assert said == after.body("assistant.completed")["content"] == " ".join(f"w{n}" for n in range(1, 61))
    assert await dashboard.follow(bound, order, after) is Followed.GONE


async def test_a_copy_that_is_out_of_date_is_read_anew(dashboard: Dashboard) -> None:
    bound = await new(dashboard)
    await dashboard.run(bound, Order("one"), Heard())
    await dashboard.forget(bound.session_id)
    anew, heard = await dashboard.bind(bound), Heard()
    assert anew.run_id != bound.run_id
    await dashboard.run(anew, Order("two"), heard)
    assert heard.text == "echo: two"
