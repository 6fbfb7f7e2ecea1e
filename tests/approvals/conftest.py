from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.approvals.rooms import Rooms, open_rooms


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with open_rooms(tmp_path / "t.db") as rooms:
        yield rooms
