"""Fuzz one format with coverage as the guide, by atheris (libFuzzer).

    python tests/fuzz/guided.py FORMAT [--seconds 60] [--seed 0]

Only formats of one file, read in Python. The file's bytes are mutated so that new branches of elmokit are reached; an
error that is none of elmokit's ends the run with exit code 77. Inputs that reach new branches are kept in
build/fuzz/FORMAT and are the seeds of the next run.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

with atheris.instrument_imports(include=["elmokit.readers", "elmokit.text", "elmokit.config", "elmokit.weights"]):
    from formats import FORMATS

    from elmokit.errors import ElmokitError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=list(FORMATS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    form = FORMATS[options.format]
    corpus = ROOT / "build" / "fuzz" / options.format.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    form.write(folder)
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    (corpus / "good").write_bytes(path.read_bytes())
    warnings.simplefilter("ignore")

    def read(content: bytes) -> None:
        path.write_bytes(content)
        try:
            form.read(folder)
        except ElmokitError:
            return

    limits = [f"-max_total_time={options.seconds}", "-timeout=10", "-rss_limit_mb=3000", "-max_len=20000"]
    atheris.Setup([sys.argv[0], *limits, f"-seed={options.seed + 1}", "-verbosity=0", str(corpus)], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
