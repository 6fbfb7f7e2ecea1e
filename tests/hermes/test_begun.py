"""What Hermes begins by itself: the work it delegated comes back when its turn is long over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import end_frame, ended, find, send
from tests.hermes.ways import running_over

pytestmark = pytest.mark.hermes


async def test_delegated_work_comes_back_as_a_turn_of_its_own(lab: Lab, tmp_path: Path) -> None:
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        goal = json.dumps({"goal": "SAY:the child is done"})
        first = await send(phone, f"TOOL:delegate_task:{goal}")
        session = (await ended(phone, first["turn_id"]))["session_id"]
        begun = await find(
            phone, "turn.snapshot", match=lambda frame: frame.payload["turn_id"] != first["turn_id"]
        )  # fmt: skip
        assert begun.payload["session_id"] == session
        end = (await end_frame(phone, begun.payload["turn_id"])).payload
        assert end["finish"] == "completed"
        assert end["text"]
