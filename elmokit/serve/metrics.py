"""Counters and histograms for Prometheus, with text-embeddings-inference's names and our prefix."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = tuple(float(2**power) for power in range(13))


class Metrics:
    """Metrics of one worker process; with several workers, `render` returns the sum of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.request_count = Counter("elmokit_request_count", "Requests.", ["path"], registry=self._registry)
        self.request_success = Counter("elmokit_request_success", "Answers 200.", ["path"], registry=self._registry)
        self.request_failure = Counter("elmokit_request_failure", "Other answers.", ["err"], registry=self._registry)
        self.request_duration = self._histogram("elmokit_request_duration", "Seconds per request.", SECONDS)
        self.tokenization_duration = self._histogram(
            "elmokit_request_tokenization_duration", "Seconds of tokenizing per request.", SECONDS
        )
        self.queue_duration = self._histogram(
            "elmokit_request_queue_duration", "Seconds that a request waits for the model.", SECONDS
        )
        self.inference_duration = self._histogram(
            "elmokit_batch_inference_duration", "Seconds that a batch takes.", SECONDS
        )
        self.input_length = self._histogram("elmokit_request_input_length", "Tokens per text.", SIZES)
        self.batch_size = self._histogram("elmokit_batch_next_size", "Items per batch.", SIZES)
        self.queue_size = Gauge(
            "elmokit_queue_size", "Requests that wait.", registry=self._registry, multiprocess_mode="livesum"
        )

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self._registry)
        joined = CollectorRegistry()
        MultiProcessCollector(joined)  # type: ignore[no-untyped-call]
        return generate_latest(joined)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, help, registry=self._registry, buckets=buckets)
