"""Vectors of one version of the package, for `latency.py`: reads lists of tokenized sentences, one list per request.

    python benchmarks/embed_worker.py PRECISION

Imports what both the present version and commit 956d343 have. Answers with seconds and a checksum of the vectors.
"""

import json
import sys
import time

import numpy as np

from elmokit import Embedder


def main() -> None:
    embedder = Embedder.from_pretrained(precision=sys.argv[1])
    for request in sys.stdin:
        sentences = json.loads(request)
        wall, cpu = time.perf_counter(), time.process_time()
        vectors = embedder.embed_tokens(sentences)
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(took | {"norm": float(np.linalg.norm(np.concatenate(vectors)))}), flush=True)


if __name__ == "__main__":
    main()
