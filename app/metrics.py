"""What can be measured: rooms count in plain numbers, and nothing of the library runs until somebody asks for them.

A room holds ints, a `Counter` or a `Histogram` and counts where things happen. No label names a device, a session or
anything else that a stranger can make more of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Metric
from prometheus_client.registry import Collector

Values = float | Mapping[str, float] | Mapping[tuple[str, str], float]  # alone, or by the value of its labels


class Histogram:
    """Counts of values up to each of `bounds`, which ascend, and above the last. One thread observes."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, *bounds: float) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def counter(name: str, help: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    return _filled(CounterMetricFamily(name, help, labels=labels), values)


def gauge(name: str, help: str, values: Values, labels: Sequence[str] = ()) -> Metric:
    return _filled(GaugeMetricFamily(name, help, labels=labels), values)


def histogram(name: str, help: str, seen: Histogram) -> Metric:
    bounds = [*(str(float(bound)) for bound in seen.bounds), "+Inf"]
    return HistogramMetricFamily(name, help, list(zip(bounds, accumulate(seen.counts), strict=True)), seen.total)


def _filled(metric: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    by_labels = values if isinstance(values, Mapping) else {(): values}
    for key, value in by_labels.items():
        metric.add_metric((key,) if isinstance(key, str) else key, value)
    return metric


class Metrics:
    """What belongs to no room: the process, and requests by class of route and status."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self._process = CollectorRegistry(auto_describe=False)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def page(self, metrics: Iterable[Metric], accept: str) -> tuple[bytes, str]:
        """(body, content type), in the newest format that the `Accept` header takes."""
        encode, content_type = choose_encoder(accept)
        return encode(_Page([*metrics, *self._process.collect()])), content_type


class _Page(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
