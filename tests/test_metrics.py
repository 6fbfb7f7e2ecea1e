"""What Prometheus reads, by its own parser."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.metrics import Histogram, Metrics, counter, gauge, histogram

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PARSERS: dict[str, Any] = {"text/plain": parse_text, OPENMETRICS: parse_openmetrics}


@pytest.mark.parametrize("accept", PARSERS)
def test_both_formats_say_the_same(accept: str) -> None:
    seen = Histogram(1, 2.5)
    for value in (0.5, 1, 2, 9):
        seen.observe(value)
    given = [
        counter("said", "Said.", 3), gauge("state", "State.", {"up": 1.0, "down": 0.0}, ["state"]),
        counter("asked", "Asked.", {("a", "200"): 2, ("b", "404"): 1}, ["route", "status"]),
        histogram("took", "Took.", seen),
    ]  # fmt: skip
    body, content_type = Metrics().page(given, accept)
    assert content_type.startswith(accept.partition(";")[0])
    families = {family.name: family for family in PARSERS[accept](body.decode())}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for name in ("said", "state", "asked", "took")
        for sample in families[name].samples
    }
    assert found == {
        ("said_total",): 3, ("state", "up"): 1, ("state", "down"): 0, ("asked_total", "a", "200"): 2,
        ("asked_total", "b", "404"): 1, ("took_bucket", "1.0"): 2, ("took_bucket", "2.5"): 3,
        ("took_bucket", "+Inf"): 4, ("took_count",): 4, ("took_sum",): 12.5,
    }  # fmt: skip
    assert families["process_resident_memory_bytes"].samples[0].value > 1_000_000
