"""Large pages for the verbs that learn. Every step asks for new memory; in large pages that takes a tenth less time."""

import os


def ask_for_large_pages() -> None:
    """Let torch ask the system for large pages, unless the user has decided. Call it before torch is imported."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
