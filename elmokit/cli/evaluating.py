"""The verb evaluate: public test sets of grammar, word senses, substitutes, sentence vectors and tags."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.app import app
from elmokit.cli.commands import sub_app, verb
from elmokit.cli.evaluation_display import (
    print_blimp,
    print_probe_heading,
    print_probe_row,
    print_senses,
    print_sts,
    print_substitutes,
)
from elmokit.cli.options import Language, LanguageModel, Model, State, check_model_folder, model_source
from elmokit.errors import InputError
from elmokit.weights.bundled import EN_SMALL

if TYPE_CHECKING:
    from elmokit.analysis.pos_probe import ProbeProgress
    from elmokit.cli.progress import Progress
    from elmokit.encoders.layer_sources import LayerSource

CONTROL_SEED = 0
LEXSUB_FILES = ("lst_all.preprocessed", "lst_all.gold", "lst.gold.candidates")
PACKED = ("", ".xz", ".gz")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

evaluate = sub_app("Evaluate a model on public test sets.")
app.add_typer(evaluate, name="evaluate")


@app.command("probe", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def probe() -> None:
    """Name the verb that took the place of this one."""
    raise InputError("probe is now a part of evaluate; write elmokit evaluate pos instead of elmokit probe pos")


@verb(evaluate)
def blimp(
    path: Annotated[Path, typer.Argument(metavar="DATA", help="BLiMP: its archive, its folder, or one .jsonl file.")],
    *,
    model: LanguageModel = EN_SMALL,
    state: State = "warm",
    as_json: AsJson = False,
) -> None:
    """Judge minimal pairs by the likelier sentence.

    The pairs are BLiMP's (Warstadt et al. 2020). A tie counts as wrong. Accuracy is the mean over paradigms: of all
    pairs, and of those whose differing words are all in the vocabulary.
    """
    from elmokit.cli.progress import show_progress

    check_model_folder(model)
    with show_progress("loading the model") as shown:
        from elmokit.analysis.blimp import score_blimp
        from elmokit.readers.blimp import read_blimp
        from elmokit.score.scoring import Scorer

        pairs = read_blimp(path)
        scorer = Scorer.from_pretrained(model, state=state)
        shown.begin("scoring", unit="pairs", total=len(pairs))
        scores = score_blimp(scorer, pairs, progress=shown.update)
    if as_json:
        typer.echo(json.dumps(asdict(scores)))
    else:
        print_blimp(scores)


@verb(evaluate)
def lexsub(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help=f"SemEval-2007 task 10: {', '.join(LEXSUB_FILES)}; also .gz, .xz.")
    ],
    *,
    model: LanguageModel = EN_SMALL,
    state: State = "warm",
    as_json: AsJson = False,
) -> None:
    """Rank substitutes of a word by their probability.

    The score is generalized average precision (GAP). The word itself has no influence, only its context. Phrases are
    left out. Out-of-vocabulary candidates are ranked last; the score without them stands beside.
    """
    from elmokit.cli.progress import show_progress

    check_model_folder(model)
    with show_progress("loading the model") as shown:
        from elmokit.analysis.lexsub import score_substitutes
        from elmokit.readers.lexsub import read_lexsub
        from elmokit.score.scoring import Scorer

        instances = read_lexsub(*(_find(folder, name) for name in LEXSUB_FILES))
        scorer = Scorer.from_pretrained(model, state=state)
        shown.begin("ranking", unit="words", total=len(instances))
        scores = score_substitutes(scorer, instances, progress=shown.update)
    if as_json:
        typer.echo(json.dumps(asdict(scores)))
    else:
        print_substitutes(scores)


@verb(evaluate)
def sts(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="The STS benchmark: sts-dev.csv, sts-test.csv.")],
    *,
    model: Model = None,
    fit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILES",
            help="Text, one sentence per line, to fit a pooling to: frequent words count less, common components are "
            "removed. It is scored beside the mean and the maximum.",
        ),
    ] = None,
    state: State = "warm",
    language: Language = "en",
    as_json: AsJson = False,
) -> None:
    """Compare cosines of sentences with human judgments.

    The score is the correlation of the cosine of two sentences' vectors with people's judgments of their similarity.
    """
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model") as shown:
        from elmokit.analysis.sts import fit_every_layer, score_layers
        from elmokit.readers.sts import read_sts
        from elmokit.text.lines import find_inputs, read_lines
        from elmokit.text.tokens import tokenize

        lines = read_lines(find_inputs(fit)) if fit else None
        sets = {path.name: list(read_sts(path)) for path in files}
        source = _open_source(model, state)
        as_tokens = partial(tokenize, language=language)
        shown.begin("fitting the pooling:", unit="sentences")
        sentences = () if lines is None else (as_tokens(line.text) for line in lines)
        fitted = fit_every_layer(source, sentences, progress=shown.update) if fit else []
        shown.begin("embedding", unit="texts")
        results = {
            name: score_layers(source, pairs, as_tokens, fitted=fitted, progress=shown.update)
            for name, pairs in sets.items()
        }
    for name, found in results.items():
        if as_json:
            for one in found:
                typer.echo(json.dumps({"file": name, **asdict(one)}))
    if not as_json:
        print_sts(results)


@verb(evaluate)
def wsd(
    tests: Annotated[
        list[Path], typer.Argument(metavar="TESTS", help="Test sets: NAME.data.xml, with NAME.gold.key.txt beside it.")
    ],
    *,
    train: Annotated[Path, typer.Option(metavar="FILE", help="SemCor in the same format: semcor.data.xml.")],
    index: Annotated[Path, typer.Option(metavar="FILE", help="WordNet 3.0's index.sense.")],
    model: Model = None,
    state: State = "warm",
    as_json: AsJson = False,
) -> None:
    """Disambiguate words by the nearest sense, per layer.

    A sense is the mean vector of its tokens in the training text (Peters et al. 2018, Table 5). A word that was not
    seen there gets WordNet's first sense. Files may be .gz and .xz.
    """
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model") as shown:
        from elmokit.analysis.wsd import learn_senses, score_senses, total_scores
        from elmokit.readers.wsd import find_keys, read_sense_index, read_wsd

        first_senses = read_sense_index(index)
        sets = {path.name.split(".")[0]: list(read_wsd(path, find_keys(path))) for path in tests}
        sentences = list(read_wsd(train, find_keys(train)))
        encoder = _open_source(model, state)
        num_tokens = sum(len(one.tokens) for one in sentences if one.instances)
        shown.begin("reading senses:", unit="words", total=num_tokens)
        senses = learn_senses(encoder, sentences, progress=shown.update)
        shown.begin("testing:", unit="words")
        results = {
            name: score_senses(encoder, senses, first_senses, some, progress=shown.update)
            for name, some in sets.items()
        }
    if len(results) > 1:
        results["all"] = total_scores(list(results.values()))
    if as_json:
        for name, scores in results.items():
            typer.echo(json.dumps({"set": name, **asdict(scores)}))
    else:
        print_senses(results)


@verb(evaluate)
def pos(
    *,
    train: Annotated[Path, typer.Option(metavar="FILE", help="CoNLL-U file to train on, also .gz and .xz.")],
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Dev set, to choose the regularization.  [default: the last tenth of the training sentences]",
        ),
    ] = None,
    test: Annotated[Path, typer.Option(metavar="FILE", help="Test set, evaluated once.")],
    column: Annotated[
        Literal["xpos", "upos", "feats", "deprel", "direction", "lemma"],
        typer.Option(help="Column of CoNLL-U to predict; direction: the side of a token's head."),
    ] = "xpos",
    model: Model = None,
    control: Annotated[bool, typer.Option("--control", help="Also probe an untrained biLM of the same shape.")] = False,
    state: State = "warm",
    as_json: AsJson = False,
) -> None:
    """Predict parts of speech from each layer.

    The layers and their mean are compared (Peters et al. 2018, Table 6). The probe is a multinomial logistic regression
    on frozen vectors. Its regularization is chosen on the dev set.
    """
    from elmokit.cli.progress import show_progress

    with show_progress("loading the model") as shown:
        from elmokit.analysis.pos_probe import PosData, hold_out_last, probe_pos, untrained_like
        from elmokit.embed.embedder import Embedder
        from elmokit.readers.conllu import read_conllu

        tagged, held_out = list(read_conllu(train)), [] if dev is None else list(read_conllu(dev))
        if dev is None:
            tagged, held_out = hold_out_last(tagged)
        data = PosData(tagged, held_out, list(read_conllu(test)), column)
        source = _open_source(model, state)
        encoders = {"given": source}
        if control:
            if not isinstance(source, Embedder):
                raise InputError("--control needs a biLM, whose shape an untrained one can have; leave it out")
            encoders["untrained"] = untrained_like(source, seed=CONTROL_SEED)
        if not as_json:
            with shown.paused():
                print_probe_heading(column)
        for name, encoder in encoders.items():
            for result in probe_pos(encoder, data, progress=_probe_progress(shown)):
                with shown.paused():
                    if as_json:
                        typer.echo(json.dumps({"bilm": name, "column": column, **asdict(result)}))
                    else:
                        print_probe_row(name, result)


def _open_source(model: list[str] | None, state: "Literal['reset', 'warm']") -> "LayerSource":
    """Return a biLM, or an encoder that it is compared with."""
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.sources import open_layer_source

    source = model_source(model or [])
    if isinstance(source, str | Path):
        return open_layer_source(source, state=state)
    return Embedder.from_pretrained(source, state=state)


def _find(folder: Path, name: str) -> Path:
    paths = [folder / f"{name}{end}" for end in PACKED]
    found = [path for path in paths if path.is_file()]
    if not found:
        raise InputError(f"{folder}: has no {name} (or {' or '.join(PACKED[1:])} of it); expected the published files")
    return found[0]


def _probe_progress(shown: "Progress") -> "Callable[[ProbeProgress], None]":
    doing = ""

    def show(now: "ProbeProgress") -> None:
        nonlocal doing
        if now.doing != doing:
            doing = now.doing
            is_training = doing != "embedding"
            shown.begin("training" if is_training else "embedding", unit="classifiers" if is_training else "words")
        shown.update(now.done, total=now.total)

    return show
