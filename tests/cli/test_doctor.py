"""`talaria doctor`, with a relay and without."""

from __future__ import annotations

import json

from .conftest import Talaria


def test_it_says_what_is_wrong_first_and_what_to_do(relay: Talaria) -> None:
    said = relay.run("doctor").stdout
    lines = said.splitlines()
    assert lines[0].startswith("WARN")
    assert "→" in lines[1]
    assert lines[-1].startswith("Failed: 0.")
    found = json.loads(relay.run("doctor", "--json").stdout)
    assert found["ok"] is True
    assert {"relay", "data directory", "database", "public URL", "Hermes plugin"} <= {
        one["name"] for one in found["findings"]
    }


def test_without_a_relay_it_fails_and_still_looks(talaria: Talaria) -> None:
    said = talaria.run("doctor", status=1).stdout
    assert said.startswith("FAIL  relay")
    assert "data directory" in said
