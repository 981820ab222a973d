"""A model that is mapped from its folder, after the pages of its weights were given back."""

from pathlib import Path

import numpy as np
import torch
from published import PublishedModel

from elmokit.embed.embedder import Embedder

SENTENCES = [["The", "bank", "closed"], ["a"]]


def test_packed_weights_can_still_be_saved_and_changed(published_model: PublishedModel, tmp_path: Path) -> None:
    Embedder.from_pretrained(published_model.pair).save_pretrained(tmp_path / "first")
    embedder = Embedder.from_pretrained(tmp_path / "first", state="reset")
    before = embedder.embed_layers(SENTENCES)
    embedder.save_pretrained(tmp_path / "second")
    first, second = (tmp_path / name / "model.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    changed = embedder.bilm.get_parameter("forward_lstm.layers.0.recurrent_weight")
    with torch.no_grad():
        changed.mul_(2.0)
    after = embedder.embed_layers(SENTENCES)  # packs again
    assert not np.array_equal(after[0], before[0])
    expected = changed.clone()
    with torch.no_grad():
        changed.mul_(1.0)
    np.testing.assert_array_equal(embedder.embed_layers(SENTENCES)[0], after[0])
    assert torch.equal(changed, expected)
