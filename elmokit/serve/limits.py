"""Limits of a server: the size of a request, and the work that may wait."""

from dataclasses import dataclass

CHARS_PER_TOKEN = 16
"""Characters that an input may have per token that it may have; a longer input is rejected before it is tokenized."""


@dataclass(frozen=True)
class Limits:
    """Limits that each worker process applies.

    Args:
        max_body: bytes of a request body.
        max_inputs: texts per request.
        max_openai_inputs: texts per request to ``/v1/embeddings``.
        max_tokens: tokens per text.
        max_values: numbers per answer of the routes that return vectors of tokens.
        batch_tokens: tokens per batch of the model.
        max_requests: requests that are accepted and not answered yet; more are rejected with 429.
        timeout: seconds from the first byte of a request body to the answer.
    """

    max_body: int = 1_000_000
    max_inputs: int = 32
    max_openai_inputs: int = 2048
    max_tokens: int = 1024
    max_values: int = 4_000_000
    batch_tokens: int = 4096
    max_requests: int = 64
    timeout: float = 30.0
