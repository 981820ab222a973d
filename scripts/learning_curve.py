"""Plot a pretraining run: held-out perplexity and training loss against tokens seen.

    python scripts/learning_curve.py RUN -o curve.svg        # or .png, .pdf

RUN is the folder of an `elmokit pretrain` run, finished or not. Needs `pip install 'elmokit[plot]'`.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import ElmokitError, InputError, OutputError
from elmokit.extras import require

CURVES = {"forward": "tab:blue", "backward": "tab:orange", "mean": "black"}


@dataclass(frozen=True)
class RunCurves:
    """Log lines of a run, and the number of tokens per step and direction."""

    name: str
    losses: list[dict[str, Any]]
    heldout: list[dict[str, Any]]
    tokens_per_step: int

    def tokens(self, lines: list[dict[str, Any]]) -> list[int]:
        """Return the number of tokens seen at every line."""
        return [line["step"] * self.tokens_per_step for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("-o", "--output", type=Path, required=True, help="output file: .svg, .png or .pdf")
    args = parser.parse_args()
    try:
        draw(read_run(args.run), args.output)
    except ElmokitError as error:
        sys.exit(f"learning_curve: {error}")


def read_run(run: Path) -> RunCurves:
    lines = [json.loads(line) for line in _whole_lines(run / "log.jsonl")]
    training = json.loads(_read(run / "recipe.json"))["training"]
    losses, heldout = ([line for line in lines if line["kind"] == kind] for kind in ("LogLine", "HeldOut"))
    if not losses:
        raise InputError(f"{run / 'log.jsonl'}: has no training steps; wait for the first ones")
    # A run may change its held-out text. Perplexities on different texts are not comparable.
    heldout = [line for line in heldout if line["text"] == heldout[-1]["text"]]
    return RunCurves(run.resolve().name, losses, heldout, training["num_rows"] * training["unroll_steps"])


def draw(curves: RunCurves, output: Path) -> None:
    matplotlib = require("matplotlib", extra="plot")
    matplotlib.use("agg")  # write a file, with or without a screen
    from matplotlib import pyplot

    # Equal runs give equal bytes.
    with pyplot.rc_context({"svg.hashsalt": "elmokit", "axes.spines.top": False, "axes.spines.right": False}):
        figure, panels = pyplot.subplots(2, sharex=True, figsize=(7, 6), layout="constrained")
        _draw_perplexity(panels[0], curves)
        _draw_loss(panels[1], curves)
        panels[1].set_xlabel("tokens seen, in each direction")
        panels[1].set_xlim(left=0)
        panels[1].xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=" "))
        figure.suptitle(curves.name)
        metadata = {"Date": None} if output.suffix == ".svg" else None
        try:
            figure.savefig(output, dpi=150, metadata=metadata)
        except (OSError, ValueError) as error:
            raise OutputError(f"{output}: cannot be written: {error}") from error
        pyplot.close(figure)


def _draw_perplexity(panel: Any, curves: RunCurves) -> None:
    from matplotlib import ticker

    panel.set_ylabel("held-out perplexity")
    if not curves.heldout:
        panel.text(0.5, 0.5, "no held-out evaluation yet", transform=panel.transAxes, ha="center")
        return
    tokens = curves.tokens(curves.heldout)
    for name, color in CURVES.items():
        key = "perplexity" if name == "mean" else f"{name}_perplexity"
        values = [line[key] for line in curves.heldout]
        style = {"lw": 2, "zorder": 3} if name == "mean" else {"lw": 1}
        panel.plot(tokens, values, color=color, marker=".", label=f"{name}, {values[-1]:,.1f}", **style)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.6g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.grid(visible=True, alpha=0.3)
    panel.legend(frameon=False, title="at the end")


def _draw_loss(panel: Any, curves: RunCurves) -> None:
    # A sampled loss is lower than the full one, and not comparable with perplexity.
    panel.set_ylabel("training loss, sampled softmax" if curves.losses[-1]["sampled"] else "training loss")
    tokens = curves.tokens(curves.losses)
    for name in ("forward", "backward"):
        values = [line[f"{name}_loss"] for line in curves.losses]
        marker = "." if len(values) == 1 else ""  # a line through one point is invisible
        panel.plot(tokens, values, color=CURVES[name], marker=marker, lw=1, label=f"{name}, {values[-1]:.3f}")
    panel.grid(visible=True, alpha=0.3)
    panel.legend(frameon=False, title="at the end")


def _whole_lines(path: Path) -> list[str]:
    """Return the complete lines; a run in progress may be writing the next."""
    return [line for line in _read(path).splitlines(keepends=True) if line.endswith("\n")]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the folder of an `elmokit pretrain` run") from error


if __name__ == "__main__":
    main()
