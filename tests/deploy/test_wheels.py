"""A home server is often an arm64 machine without a compiler."""

from __future__ import annotations

import pytest

from deploy.wheels import MACHINES, main


@pytest.mark.nightly
def test_every_dependency_has_a_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("every dependency has a wheel") == len(MACHINES)
