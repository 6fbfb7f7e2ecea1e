"""Whatever dies, and whenever: each turn ends as its upstream's rule says, none runs twice, none hangs.

The table is in the summary of the run.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.matrix import CELLS, FAULTS, STATES, WAYS, expected
from tests.hermes.rounds import played

pytestmark = pytest.mark.hermes


@pytest.fixture(scope="module", params=FAULTS)
def fault(request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The round of one fault: four turns of each way meet it at once, for a restart of Hermes takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(played(request.param, lab, tmp_path_factory.mktemp("round"), patch))
    return str(request.param)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("way", WAYS)
def test_each_turn_has_its_end(fault: str, way: str, state: str) -> None:
    assert CELLS[(fault, way, state)] == expected(fault, way, state)
