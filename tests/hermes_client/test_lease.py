"""Leases as they are stored with a turn."""

from __future__ import annotations

from dataclasses import replace

from app.hermes.lease import Lease, ProcessMark
from tests.hermes_client.dashboard_server import lease


def test_a_lease_comes_back_as_it_was_stored() -> None:
    kept = replace(lease(run_id="live1"), profile="work", mark=ProcessMark(1, "now"), since=("a", "b"))
    assert Lease.from_json(kept.as_json()) == kept


def test_a_lease_of_an_older_relay_is_read() -> None:
    stored = {name: value for name, value in lease().as_json().items() if name not in ("run_id", "profile")}
    assert Lease.from_json(stored) == lease()
