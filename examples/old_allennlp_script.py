"""Run code that was written for AllenNLP 0.9 as it is.

    python examples/old_allennlp_script.py

`install` registers elmokit's drop-ins under AllenNLP's names. Everything below it is old code.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from elmokit.integrations.allennlp import install


def main() -> None:
    install()
    from allennlp.commands.elmo import ElmoEmbedder
    from allennlp.modules.elmo import Elmo, batch_to_ids

    with tempfile.TemporaryDirectory() as folder:
        options, weights = export_bundled_model(Path(folder))
        embedder = ElmoEmbedder(options, weights)
        print(embedder.embed_sentence(["The", "bank", "closed"]).shape)
        elmo = Elmo(options, weights, 1, dropout=0)
        elmo._elmo_lstm._elmo_lstm.stateful = False
        found = elmo(batch_to_ids([["The", "bank", "closed"], ["Play"]]))
        print(found["elmo_representations"][0].shape, (1 - found["mask"]).tolist())


def export_bundled_model(folder: Path) -> tuple[Path, Path]:
    """Write the bundled model as AllenNLP expects one: options and weights."""
    command = [sys.executable, "-m", "elmokit", "convert", "en-small", "-o", str(folder / "published"), "--to", "hdf5"]
    subprocess.run(command, check=True)
    return folder / "published" / "options.json", folder / "published" / "weights.hdf5"


if __name__ == "__main__":
    main()
