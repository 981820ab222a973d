"""Fuzz every route of the server with schemathesis: valid and invalid requests, made from its own OpenAPI document.

python scripts/api_fuzz.py --cases 10000    (make api-fuzz)

Fails on a 5xx, on an answer that the document does not describe, and on invalid data that is accepted. The server runs
in this process with an untrained toy model, a small corpus and the named-entity model of the package.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from live_server import SENTENCES, serving, toy_models  # noqa: E402  tests/support is no package

from elmokit.analysis.index_building import build_index  # noqa: E402
from elmokit.serve.app import ROUTES  # noqa: E402
from elmokit.serve.loaded import open_index  # noqa: E402
from elmokit.tasks.saved import load_task  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="number of requests, over all routes")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    per_route = -(-args.cases // len(ROUTES))  # those without a body have few cases
    models = toy_models(tasks={"ner": load_task("ner")})
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(SENTENCES), "utf-8")
        build_index([text], Path(folder) / "index", models.embedder)
        models = replace(models, index=open_index(Path(folder) / "index", models.embedder))
        with serving(models) as client:
            command = ["st", "run", f"{client.url}/openapi.json", "--max-examples", str(per_route)]
            command += ["--phases", "coverage,fuzzing", "--checks", "all", "--seed", str(args.seed)]
            # A schema cannot say that a text must have words and be within the limits of this server.
            command += ["--exclude-checks", "positive_data_acceptance"]
            command += ["--continue-on-failure", "--suppress-health-check", "all", "--no-shrink"]
            ended = subprocess.run([Path(sys.executable).parent / command[0], *command[1:]], cwd=folder, check=False)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
