"""A relay that is asked to stop where its container would end with it, and with that the restore that asks."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.relay import RunningRelay


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".dockerenv").touch()
    monkeypatch.setattr("app.container.MARKS", (str(tmp_path / ".dockerenv"),))
    monkeypatch.setattr("app.api.stopping.signal.raise_signal", lambda _: None)  # it would end the tests


@pytest.mark.parametrize(
    ("pid", "parent", "status"), [(1, 0, 409), (7, 1, 409), (8, 7, 202)], ids=["main", "below init", "by exec"]
)
@pytest.mark.usefixtures("container")
async def test_in_a_container(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch, pid: int, parent: int, status: int
) -> None:
    monkeypatch.setattr("app.container.os.getpid", lambda: pid)
    monkeypatch.setattr("app.container.os.getppid", lambda: parent)
    async with httpx.AsyncClient(base_url=relay.url) as http:
        answer = await http.post("/relay/stop", headers=relay.operator())
    assert answer.status_code == status
    if status == 409:
        said = answer.json()["error"]["message"]
        assert "`docker compose run --rm -T relay talaria restore --yes - < FILE`" in said


async def test_below_the_init_of_a_host_it_stops(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd starts it."""
    stopped: list[int] = []
    monkeypatch.setattr("app.api.stopping.signal.raise_signal", stopped.append)
    monkeypatch.setattr("app.container.os.getppid", lambda: 1)
    monkeypatch.setattr("app.container.MARKS", ())
    async with httpx.AsyncClient(base_url=relay.url) as http:
        assert (await http.post("/relay/stop", headers=relay.operator())).status_code == 202
    assert stopped
