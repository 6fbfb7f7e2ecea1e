from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hermes_client.gates import trusted
from tests.servers import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """One that this host trusts."""
    with trusted(tmp_path) as authority:
        yield authority
