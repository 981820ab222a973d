"""Copy a trained CoVe to where the page of the paper keeps it: weights in float16, no static vectors, the run's result.

    python scripts/compact_cove.py RUN -o results/cove
    elmokit reproduce table2 --data DATA --cove cove:results/cove/model,DATA/glove/glove.6B.100d.top100k.f16.npz

The runs with CoVe need the same CoVe, on whichever machine they are made.
"""

import argparse
import json
import shutil
from pathlib import Path

from elmokit.encoders.saved import compact_cove
from elmokit.encoders.training import RESULT
from elmokit.runs.layout import MODEL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run of `elmokit encoder train cove`")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    result = json.loads((arguments.run / RESULT).read_bytes())
    description = (
        f"CoVe's encoder, trained on {result['num_examples']:,} pairs of sentences for {result['epochs']:.2f} epochs. "
        "Weights are in float16. The static vectors that it reads, GloVe's, are not in this folder."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    compact_cove(arguments.run / MODEL, arguments.output / MODEL, description=description)
    shutil.copyfile(arguments.run / RESULT, arguments.output / RESULT)


if __name__ == "__main__":
    main()
