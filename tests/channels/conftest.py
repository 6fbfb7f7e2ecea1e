from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.turns.rooms import Rooms, open_house


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with open_house(tmp_path) as (rooms, _):
        yield rooms
