"""State of a running server that every route uses."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from elmokit.serve.batching import BatchingQueue
from elmokit.serve.limits import Limits
from elmokit.serve.loaded import Models
from elmokit.serve.metrics import Metrics
from elmokit.serve.texts import Text

Result = TypeVar("Result")
QUICK_CHARS = 4096  # of text that the event loop tokenizes itself; more goes to another thread


@dataclass(frozen=True, eq=False)
class Service:
    """Models, limits, queue and metrics of a server."""

    models: Models
    limits: Limits
    queue: BatchingQueue
    metrics: Metrics

    @property
    def language(self) -> str:
        """Language of raw text."""
        return self.models.embedder.language

    async def read_texts(self, read: Callable[..., Result], texts: Sequence[Text], **options: Any) -> Result:
        """Tokenize texts by a function of `elmokit.serve.texts`, without stopping other clients."""
        start = time.perf_counter()
        is_quick = sum(len(text) for text in texts if isinstance(text, str)) <= QUICK_CHARS
        call = (texts, self.limits)
        options = {"language": self.language, **options}
        found = read(*call, **options) if is_quick else await asyncio.to_thread(read, *call, **options)
        self.metrics.tokenization_duration.observe(time.perf_counter() - start)
        return found
