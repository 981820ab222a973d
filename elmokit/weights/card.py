"""The model card: what a saved model is, for whoever opens its folder."""

import json
import re
from pathlib import Path

from elmokit.text.spelling import Dictionary
from elmokit.weights.saved import SavedBiLM
from elmokit.weights.sums import CARD

PURPOSE = "An ELMo biLM (Peters et al. 2018): a vector from every layer for every token in its sentence."
_DESCRIPTION = re.compile(rf"---\nlibrary_name: elmokit\n.*?\n---\n\n# [^\n]*\n\n(.*?){re.escape(PURPOSE)}", re.DOTALL)


def model_card(saved: SavedBiLM, *, name: str, description: str | None, stored_as: str) -> str:
    """Return the README.md of a folder called ``name``; ``description`` is the author's text, in Markdown."""
    config, encoder, lstm = saved.config, saved.config.char_encoder, saved.config.lstm
    num_parameters = sum(tensor.numel() for tensor in saved.tensors.values())
    filters = ", ".join(f"{count} of width {width}" for width, count in encoder.filters)
    origin = "trained with elmokit" if saved.options is None else "read from published ELMo weights (bilm-tf format)"
    rows = {
        "Parameters": f"{num_parameters:,}, stored as {stored_as}",
        "Layers": f"{config.num_layers}: the token layer and {lstm.num_layers} of LSTM; each {config.width} wide",
        "Character encoder": f"{encoder.char_dim}-wide characters, {filters}, {encoder.activation}; "
        f"highway layers: {encoder.num_highway}; at most {encoder.max_chars} ids a word"
        if encoder.filters
        else "none: the model reads word ids",
        "LSTM, each direction": f"{lstm.cell_dim} cells, {lstm.proj_dim} outputs; "
        f"clips: cell {_or_none(lstm.cell_clip)}, output {_or_none(lstm.proj_clip)}; "
        f"skip connections: {'yes' if lstm.skip_connections else 'no'}",
        **({"Dictionary": _describe_dictionary(saved.dictionary)} if saved.dictionary else {}),
        "Start state": "stored" if saved.start_state else "not stored",
        "Origin": origin,
        **saved.about,
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    about = f"{description.strip()}\n\n" if description else ""
    return f"""---
library_name: elmokit
tags: [elmo, feature-extraction]
---

# {name}

{about}{PURPOSE}

```python
from elmokit import Embedder
embedder = Embedder.from_pretrained({json.dumps(name)})  # the path of this folder
```

| | |
|---|---|
{table}

`sha256sum -c SHA256SUMS` checks the files; loading does too, and warns if this card was changed.
"""


def read_description(folder: Path) -> str | None:
    """Return the author's text in a folder's card that `model_card` made; None for a card of another form, or none."""
    path = folder / CARD
    found = _DESCRIPTION.match(path.read_text("utf-8", errors="replace")) if path.is_file() else None
    return None if found is None else found[1].strip()


def _describe_dictionary(dictionary: Dictionary) -> str:
    return f"{len(dictionary.chars):,} characters, {len(dictionary.words):,} words"


def _or_none(clip: float | None) -> str:
    return "none" if clip is None else f"{clip:g}"
