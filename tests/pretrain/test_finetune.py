"""Fine-tuning: training, resuming, and reading the result back."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from published import PublishedModel
from toy import TEXT, toy_model, toy_recipe, toy_state

from elmokit.embed.embedder import Embedder
from elmokit.errors import ConfigError, InputError, OutputError
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain import finetune as tuning
from elmokit.pretrain.finetune import FinetuneSettings, finetune
from elmokit.pretrain.loop import train
from elmokit.pretrain.progress import HeldOut, LogLine, RunPlan
from elmokit.pretrain.recipe import DataSettings, PretrainSettings, SoftmaxSettings, VocabSettings
from elmokit.runs import world as ranks
from elmokit.runs.checkpoint import Checkpoint, load_checkpoint
from elmokit.score.perplexity import measure
from elmokit.score.saved_lm import load_language_model, save_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab
from elmokit.weights.bilm_tf import write_bilm_tf
from elmokit.weights.source import load_saved

pytestmark = pytest.mark.long

LEARN = PretrainSettings(num_rows=4, unroll_steps=5, epochs=4, checkpoint_every=5, evaluate_every=10)
Entry = RunPlan | LogLine | HeldOut


@pytest.fixture
def data(tmp_path: Path) -> DataSettings:
    (tmp_path / "domain.txt").write_text(TEXT, "utf-8")
    return DataSettings(train=(str(tmp_path / "dom*.txt"),), tokenized=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a saved model whose vocabulary has half of the text's words."""
    words = list(dict.fromkeys(TEXT.split()))[::2]
    vocab = Vocab(["<S>", "</S>", "<UNK>", *words])
    torch.manual_seed(5)
    save_language_model(LanguageModel.untrained(toy_model(), len(vocab)), vocab, tmp_path / "ours")
    return tmp_path / "ours"


def perplexity_of(folder: Path, text: Path) -> float:
    loaded = load_language_model(folder)
    max_chars = loaded.model.bilm.config.char_encoder.max_chars
    corpus = prepare_corpus(
        [text], text.parent / f"prepared-{max_chars}", rules=TextRules(tokenized=True), max_chars=max_chars
    )
    return measure(loaded.model, corpus, loaded.vocab).arithmetic_mean


def stop_after(step: int, stop: threading.Event, *, run: int = 0) -> Callable[[Entry], None]:
    """Report that asks to stop at a step of the first or the second run."""
    runs = 0

    def report(entry: Entry) -> None:
        nonlocal runs
        runs += isinstance(entry, RunPlan)
        if runs == run + 1 and entry.step >= step:
            stop.set()

    return report


def test_tuning_lowers_the_perplexity_of_its_text(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    text = tmp_path / "domain.txt"
    before = perplexity_of(folder, text)
    found = finetune(folder, data, tmp_path / "tuned", settings=FinetuneSettings(training=LEARN))
    after = perplexity_of(tmp_path / "tuned", text)
    assert found.is_finished
    assert found.before is None
    assert after < 0.8 * before
    assert load_language_model(tmp_path / "tuned").vocab.words == load_language_model(folder).vocab.words
    assert "Fine-tuned from ours on 125 tokens" in (tmp_path / "tuned" / "README.md").read_text("utf-8")


def test_the_default_is_one_epoch_of_the_paper_s_training(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    assert finetune(folder, data, tmp_path / "tuned").num_steps == 1  # 140 targets in batches of 2,560


def test_held_out_text_is_evaluated_before_and_after(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    text = tmp_path / "domain.txt"
    data = data.model_copy(update={"heldout": (str(text),)})
    seen: list[Entry] = []
    settings = FinetuneSettings(training=LEARN)
    found = finetune(folder, data, tmp_path / "tuned", settings=settings, report=seen.append)
    assert found.before is not None
    assert found.after is not None
    assert found.before.perplexity == pytest.approx(perplexity_of(folder, text), rel=1e-5)
    assert found.after.perplexity == pytest.approx(perplexity_of(tmp_path / "tuned", text), rel=1e-5)
    assert [entry.step for entry in seen if isinstance(entry, HeldOut)] == [10, 20, found.num_steps]


def test_work_is_gone_when_it_is_done(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    finetune(folder, data, tmp_path / "tuned", settings=FinetuneSettings(training=LEARN))
    assert {path.name for path in tmp_path.iterdir()} - before == {"tuned"}


def test_published_weights_are_tuned_and_written_back(
    published_model: PublishedModel, data: DataSettings, tmp_path: Path
) -> None:
    settings = FinetuneSettings(training=LEARN, softmax_epochs=2)
    finetune(published_model.pair, data, tmp_path / "tuned", settings=settings)
    tuned = load_language_model(tmp_path / "tuned")
    assert set(tuned.vocab.words) == {"<S>", "</S>", "<UNK>", *TEXT.split()}
    assert perplexity_of(tmp_path / "tuned", tmp_path / "domain.txt") < 0.8 * len(tuned.vocab)
    assert tuned.options == published_model.options
    saved = load_saved(tmp_path / "tuned")
    write_bilm_tf(saved, tmp_path / "back.json", tmp_path / "back.hdf5")
    assert json.loads((tmp_path / "back.json").read_text("utf-8")) == published_model.options
    [first] = Embedder.from_pretrained(tmp_path / "tuned").embed_layers([["the", "fish"]])
    [second] = Embedder.from_pretrained((tmp_path / "back.json", tmp_path / "back.hdf5")).embed_layers(
        [["the", "fish"]]
    )
    assert (first == second).all()


def test_a_new_softmax_is_trained_with_the_bilm_frozen_then_everything_is(
    published_model: PublishedModel, data: DataSettings, tmp_path: Path
) -> None:
    published = load_saved(published_model.pair).tensors
    stop = threading.Event()
    settings = FinetuneSettings(training=LEARN.model_copy(update={"checkpoint_every": 1, "keep_checkpoints": 99}))
    report = stop_after(0, stop, run=1)
    found = finetune(published_model.pair, data, tmp_path / "tuned", settings=settings, report=report, stop=stop)
    assert not found.is_finished
    work = tmp_path / "tuned.work"
    alone = sorted((work / "softmax" / "checkpoints").iterdir())
    first, last = load_checkpoint(alone[0]).tensors, load_checkpoint(alone[-1]).tensors
    together = load_checkpoint(max((work / "model" / "checkpoints").iterdir())).tensors
    assert all(torch.equal(last[f"model/bilm.{name}"], tensor) for name, tensor in published.items())
    assert not torch.equal(last["model/softmax.weight"], first["model/softmax.weight"])
    assert not any(torch.equal(together[f"model/bilm.{name}"], tensor) for name, tensor in published.items())


def test_a_tuning_that_was_stopped_ends_with_the_same_bits(
    published_model: PublishedModel, data: DataSettings, tmp_path: Path
) -> None:
    settings = FinetuneSettings(training=LEARN.model_copy(update={"epochs": 2}))
    finetune(published_model.pair, data, tmp_path / "whole", settings=settings)
    for run in (0, 1):  # first while the softmax is learned, then while all is
        stop = threading.Event()
        report = stop_after(0, stop, run=run)
        broken = finetune(published_model.pair, data, tmp_path / "broken", settings=settings, report=report, stop=stop)
        assert not broken.is_finished
        assert broken.num_steps == 1
        assert not (tmp_path / "broken").exists()
    assert finetune(published_model.pair, data, tmp_path / "broken", settings=settings).is_finished
    for name in ("model.safetensors", "softmax.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_sums_of_a_pretraining_run_make_smaller_steps(data: DataSettings, tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(negatives=20))
    (tmp_path / "run").mkdir()
    train(
        state, tmp_path / "run", evaluate=None, save_best=lambda _: None, report=lambda _: None, stop=threading.Event()
    )
    save_language_model(state.model, state.vocab, tmp_path / "lm")
    one_step = LEARN.model_copy(update={"epochs": None, "steps": 1, "dropout": 0.0})
    moved = {}
    assert state.recipe.softmax.kind == "sampled"  # which nothing but the run says: the words are few
    fresh = FinetuneSettings(training=one_step, softmax=state.recipe.softmax)
    kept = FinetuneSettings(training=one_step, run_dir=tmp_path / "run")
    for name, settings in (("fresh", fresh), ("kept", kept)):
        finetune(tmp_path / "lm", data, tmp_path / name, settings=settings)
        after = load_language_model(tmp_path / name).model.softmax.weight
        moved[name] = float((after - state.model.softmax.weight).norm().detach())
    assert 0 < moved["kept"] < 0.97 * moved["fresh"]
    adam = FinetuneSettings(training=one_step.model_copy(update={"optimizer": "adam"}), run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match="its optimizer was adagrad, now it is adam; only Adagrad"):
        finetune(tmp_path / "lm", data, tmp_path / "other", settings=adam)
    full = kept.model_copy(update={"softmax": SoftmaxSettings(kind="full")})
    with pytest.raises(ConfigError, match="another kind of softmax"):
        finetune(tmp_path / "lm", data, tmp_path / "other", settings=full)
    assert finetune(tmp_path / "lm", data, tmp_path / "other", settings=kept).is_finished


def test_work_is_not_resumed_with_another_model(
    published_model: PublishedModel, folder: Path, data: DataSettings, tmp_path: Path
) -> None:
    stop = threading.Event()
    report = stop_after(0, stop)
    finetune(
        published_model.pair,
        data,
        tmp_path / "out",
        settings=FinetuneSettings(training=LEARN),
        report=report,
        stop=stop,
    )
    with pytest.raises(ConfigError, match="unfinished tuning of another model"):
        finetune(folder, data, tmp_path / "out", settings=FinetuneSettings(training=LEARN))


def test_a_call_that_failed_before_its_first_step_blocks_nothing(
    published_model: PublishedModel, folder: Path, data: DataSettings, tmp_path: Path
) -> None:
    missing = DataSettings(train=(str(tmp_path / "typo.txt"),))
    with pytest.raises(InputError, match=r"typo\.txt"):
        finetune(published_model.pair, missing, tmp_path / "out", settings=FinetuneSettings(training=LEARN))
    assert finetune(folder, data, tmp_path / "out", settings=FinetuneSettings(training=LEARN)).is_finished


def test_other_epochs_of_the_output_layer_are_rejected_and_the_default_may_be_explicit(
    published_model: PublishedModel, data: DataSettings, tmp_path: Path
) -> None:
    stop = threading.Event()
    settings = FinetuneSettings(training=LEARN)
    source, output = published_model.pair, tmp_path / "out"
    finetune(source, data, output, settings=settings, report=stop_after(0, stop), stop=stop)
    with pytest.raises(ConfigError, match=r"started with 1\.0 epochs of the new output layer alone, not 2\.0"):
        finetune(source, data, output, settings=settings.model_copy(update={"softmax_epochs": 2.0}))
    assert finetune(source, data, output, settings=settings.model_copy(update={"softmax_epochs": 1.0})).is_finished


def test_a_foreign_file_in_the_output_is_reported_before_training(
    folder: Path, data: DataSettings, tmp_path: Path
) -> None:
    finetune(folder, data, tmp_path / "out", settings=FinetuneSettings(training=LEARN))
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(OutputError, match=r"also holds notes\.txt"):
        finetune(folder, data, tmp_path / "out", settings=FinetuneSettings(training=LEARN))
    assert not (tmp_path / "out.work").exists()


def test_another_text_is_rejected_and_the_work_can_be_resumed(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    stop = threading.Event()
    settings = FinetuneSettings(training=LEARN)
    finetune(folder, data, tmp_path / "out", settings=settings, report=stop_after(0, stop), stop=stop)
    (tmp_path / "other.txt").write_text("another text\n")
    other = DataSettings(train=(str(tmp_path / "other.txt"),), tokenized=True)
    with pytest.raises(ConfigError, match="different text"):
        finetune(folder, other, tmp_path / "out", settings=settings)
    assert Corpus.open(tmp_path / "out.work" / "corpus").num_tokens == 125
    assert finetune(folder, data, tmp_path / "out", settings=settings).is_finished


def test_another_rate_is_rejected_with_the_folder_to_delete(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    stop = threading.Event()
    settings = FinetuneSettings(training=LEARN)
    finetune(folder, data, tmp_path / "out", settings=settings, report=stop_after(0, stop), stop=stop)
    faster = FinetuneSettings(training=LEARN.model_copy(update={"learning_rate": 9.0}))
    with pytest.raises(ConfigError, match=r"out\.work: .* now 9\.0\); delete it to start anew"):
        finetune(folder, data, tmp_path / "out", settings=faster)
    assert finetune(folder, data, tmp_path / "out", settings=settings).is_finished


def test_two_tunings_into_one_folder_are_rejected(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    def second(_entry: object) -> None:
        with pytest.raises(OutputError, match="another process is training in it"):
            finetune(folder, data, tmp_path / "out")

    assert finetune(folder, data, tmp_path / "out", report=second).is_finished


def tune_in_process(rank: int, folder: Path, data: DataSettings, output: Path, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    ranks.PATIENCE, ranks.BEAT = timedelta(seconds=2), 0.5
    load = tuning.load_newest

    def load_slowly(checkpoints: Path) -> Checkpoint | None:
        time.sleep(4 * rank)
        return load(checkpoints)

    tuning.load_newest = load_slowly
    settings = FinetuneSettings(training=LEARN, run_dir=folder.parent / "run")
    assert finetune(folder, data, output, settings=settings).is_finished


@pytest.mark.slow
def test_processes_wait_for_one_that_loads_slowly(data: DataSettings, tmp_path: Path) -> None:
    state = toy_state(tmp_path, toy_recipe(steps=3))
    (tmp_path / "run").mkdir()
    train(
        state, tmp_path / "run", evaluate=None, save_best=lambda _: None, report=lambda _: None, stop=threading.Event()
    )
    save_language_model(state.model, state.vocab, tmp_path / "lm")
    data = data.model_copy(update={"heldout": data.train})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(tune_in_process, args=(tmp_path / "lm", data, tmp_path / "tuned", port), nprocs=2)
    assert load_language_model(tmp_path / "tuned").vocab.words == state.vocab.words


def test_settings_without_effect_are_rejected(
    published_model: PublishedModel, folder: Path, data: DataSettings, tmp_path: Path
) -> None:
    for settings in (FinetuneSettings(softmax_epochs=1), FinetuneSettings(new_vocab=VocabSettings(min_count=2))):
        with pytest.raises(InputError, match="keeps its words"):
            finetune(folder, data, tmp_path / "out", settings=settings)
    with pytest.raises(InputError, match="leave out run_dir"):
        finetune(published_model.pair, data, tmp_path / "out", settings=FinetuneSettings(run_dir=tmp_path))
    assert not (tmp_path / "out.work").exists()


def test_a_folder_that_is_no_model_is_not_touched(folder: Path, data: DataSettings, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(OutputError, match="not an elmokit model"):
        finetune(folder, data, tmp_path / "mine")
    with pytest.raises(InputError, match="no inputs"):
        finetune(folder, DataSettings(), tmp_path / "out")
