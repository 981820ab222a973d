"""``python -m elmokit.integrations.allennlp``: run an old script as it is, or AllenNLP's ``elmo`` command."""

import argparse
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from elmokit.errors import ElmokitError, ElmokitWarning
from elmokit.integrations.allennlp_embedder import ElmoEmbedder
from elmokit.integrations.allennlp_files import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE
from elmokit.integrations.allennlp_install import install

PROGRAM = "python -m elmokit.integrations.allennlp"
USAGE = f"usage: {PROGRAM} SCRIPT [ARGUMENTS...]\n       {PROGRAM} elmo INPUT OUTPUT (--all | --top | --average)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script or the ``elmo`` command; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    try:
        if given[0] == "elmo":
            _run_elmo(given[1:])
        else:
            _run_script(given)
    except ElmokitError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _run_script(given: list[str]) -> None:
    script = Path(given[0])
    if not script.is_file():
        raise ElmokitError(f"{script}: no such script; {USAGE.replace(chr(10), ' or ')}")
    install()
    sys.argv = given
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")


def _run_elmo(given: list[str]) -> None:
    options = _parser().parse_args(given)
    if options.vocab_path is not None:
        warnings.warn("--vocab-path has no effect, as in AllenNLP; leave it out", ElmokitWarning, stacklevel=2)
    embedder = ElmoEmbedder(options.options_file, options.weight_file, options.cuda_device)
    try:
        with options.input_file.open(encoding="utf-8") as lines:
            embedder.embed_file(
                lines,
                options.output_file,
                options.output_format,
                options.batch_size,
                options.forget_sentences,
                options.use_sentence_keys,
            )
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ElmokitError(f"{options.input_file}: {error.strerror}; expected a file of tokenized lines") from error
    except UnicodeDecodeError as error:
        raise ElmokitError(f"{options.input_file}: is not UTF-8 ({error.reason}); re-encode it") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} elmo", description="Embed a file of tokenized lines as HDF5.")
    parser.add_argument("input_file", type=Path, help="one tokenized sentence per line")
    parser.add_argument("output_file", type=Path, help="the HDF5 file to write")
    output = parser.add_mutually_exclusive_group(required=True)
    for name in ("all", "top", "average"):
        output.add_argument(f"--{name}", dest="output_format", action="store_const", const=name)
    parser.add_argument("--vocab-path", help="without effect, as in AllenNLP")
    parser.add_argument("--options-file", default=DEFAULT_OPTIONS_FILE)
    parser.add_argument("--weight-file", default=DEFAULT_WEIGHT_FILE)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--file-friendly-logging", action="store_true", help="without effect: nothing is logged")
    parser.add_argument("--cuda-device", type=int, default=-1)
    parser.add_argument("--forget-sentences", action="store_true", help="leave out sentence_to_index")
    parser.add_argument("--use-sentence-keys", action="store_true", help="use the lines as keys")
    return parser
