"""A client's figures for Prometheus: times of pulls and pushes a shard, bytes, reconnects, repeats, failures.

    import prometheus_client, embd.prometheus
    prometheus_client.REGISTRY.register(embd.prometheus.Collector(client))   # and prometheus_client.start_http_server(8000)

Each scrape reads the client's counters; nothing runs between scrapes, and no call of the client waits for one. The shard
that trainers wait for: histogram_quantile(0.99, sum by (le, shard) (rate(embd_client_push_seconds_bucket[5m])))."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError:
    raise ImportError("embd.prometheus needs prometheus_client: `apt install python3-prometheus-client`, or "
                      "`pip install prometheus_client`") from None

from .client import Client, Latency
from .errors import ClosedError

_COUNTERS = {
    "connections": "Connections made to the shard: one, and each reconnect.",
    "bytes_sent": "Bytes sent to the shard, before TLS.",
    "bytes_received": "Bytes received from the shard, after TLS.",
    "repeats": "Requests that were to be sent again after a lost connection.",
    "failures": "Requests that ended with an error.",
    "unnumbered": "Pushes without a number.",
    "restarts": "Restarts of the shard's server.",
    "rollbacks": "Restarts with less in journaled tables than the shard had acknowledged.",
}
_HELP = "Seconds from the start of a {} to the shard's answer, reconnects included."


class Collector:
    """To be registered with a registry of prometheus_client. `labels` are added to each metric: Collector(client, job="train").
    Without a client that is open it has no metrics."""

    def __init__(self, client: Client, **labels: str):
        self._client = client
        self._names, self._values = ["shard", "address", *labels], list(labels.values())

    def collect(self) -> Iterator[Any]:
        try:
            shards = self._client.figures()
        except ClosedError:
            return
        labels = [[str(i), shard.address, *self._values] for i, shard in enumerate(shards)]
        connected = GaugeMetricFamily("embd_client_connected", "Whether the shard is connected.", labels=self._names)
        for at, shard in zip(labels, shards):
            connected.add_metric(at, float(shard.is_connected))
        yield connected
        local = GaugeMetricFamily("embd_client_local", "Whether the connection is by the shard's data socket, not by TCP.",
                                  labels=self._names)
        for at, shard in zip(labels, shards):
            local.add_metric(at, float(shard.is_local))
        yield local
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"embd_client_{name}", text, labels=self._names)
            for at, shard in zip(labels, shards):
                counter.add_metric(at, float(getattr(shard, name)))
            yield counter
        yield self._times("embd_client_pull_seconds", "pull", labels, [shard.pulls for shard in shards])
        yield self._times("embd_client_push_seconds", "push", labels, [shard.pushes for shard in shards])

    def _times(self, name: str, kind: str, labels: list[list[str]], latencies: list[Latency]) -> Any:
        times = HistogramMetricFamily(name, _HELP.format(kind), labels=self._names)
        for at, latency in zip(labels, latencies):
            times.add_metric(at, _buckets(latency), latency.sum)
        return times


def _buckets(latency: Latency) -> list[tuple[str, float]]:
    return [("+Inf" if math.isinf(bound) else repr(bound), float(n)) for bound, n in latency.buckets.items()]
