"""SeqVec's call on a small model, and the check against published outputs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from oracle import Oracle
from published import PublishedModel

from elmokit.cli import run
from elmokit.errors import InputError, WeightsError
from elmokit.integrations.seqvec import REFERENCE_BATCH, SeqVecEmbedder

PROTEINS = ["SEQWENCE", "PROTEIN", "MK"]


@pytest.fixture
def folder(published_model: PublishedModel, tmp_path: Path) -> Path:
    folder = tmp_path / "seqvec"
    folder.mkdir()
    shutil.copy(published_model.options_path, folder / "options_file")
    shutil.copy(published_model.weights_path, folder / "weights_file")
    return folder


def oracle_layers(model: PublishedModel, protein: str) -> np.ndarray:
    return Oracle(model.arrays, model.options).run_bilm([list(protein)]).layers[0]


def test_a_protein_is_a_sentence_of_residues(published_model: PublishedModel, folder: Path) -> None:
    embedder = SeqVecEmbedder(warmup_rounds=0, model_directory=folder)
    for protein in PROTEINS:
        np.testing.assert_allclose(embedder.embed(protein), oracle_layers(published_model, protein), atol=5e-6)
    assert (embedder.name, embedder.embedding_dimension, embedder.number_of_layers) == ("seqvec", 16, 3)
    reduced = embedder.reduce_per_protein(embedder.embed("MK"))
    np.testing.assert_allclose(reduced, oracle_layers(published_model, "MK").sum(axis=0).mean(axis=0), atol=1e-5)


def test_a_warm_start_is_the_same_for_every_protein(published_model: PublishedModel, folder: Path) -> None:
    pair = {"options_file": published_model.options_path, "weights_file": published_model.weights_path}
    embedder = SeqVecEmbedder(**pair)  # type: ignore[arg-type]
    first = [embedder.embed(protein) for protein in PROTEINS]
    for size in (None, 1, 9, 100):
        found = list(embedder.embed_many(iter(PROTEINS), batch_size=size))
        for one, other in zip(found, first, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    cold = SeqVecEmbedder(0, model_directory=folder).embed(PROTEINS[0])
    assert np.abs(cold - first[0]).max() > 1e-3
    assert len(list(embedder.embed_batch(PROTEINS))) == 3


def test_the_check_agrees_with_its_own_outputs_and_notices_others(
    published_model: PublishedModel, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = {name: oracle_layers(published_model, name).astype(np.float32) for name in REFERENCE_BATCH[:2]}
    path = tmp_path / "seqvec.npz"
    np.savez(path, **reference)
    arguments = ["check", "seqvec", str(folder), "--reference", str(path)]
    assert run(arguments) == 0
    assert "PROTEIN: agrees" in capsys.readouterr().out
    reference["PROTEIN"][0, 0, 0] += 0.01
    np.savez(path, **reference)
    assert run(arguments) == 1
    captured = capsys.readouterr()
    assert "PROTEIN: differs, largest difference 1.0e-02" in captured.out
    assert "the vectors differ from the published ones" in captured.err
    np.savez(path, other=np.zeros(3))
    assert run(arguments) == 1
    assert "expected arrays named PROTEIN" in capsys.readouterr().err
    path.write_bytes(b"no archive")
    assert run(arguments) == 1
    assert "not an .npz file of plain arrays" in capsys.readouterr().err


def test_bad_arguments_and_a_cut_download_are_named(folder: Path) -> None:
    with pytest.raises(InputError, match="pass weights_file and options_file, or model_directory alone"):
        SeqVecEmbedder()
    with pytest.raises(InputError, match="warmup_rounds is -1"):
        SeqVecEmbedder(-1, model_directory=folder)
    with pytest.raises(InputError, match="a protein is a list"):
        SeqVecEmbedder(0, model_directory=folder).embed(["M"])  # type: ignore[arg-type]
    weights = folder / "weights_file"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="have 374,434,776 bytes, this file has 1,000: the download was cut short"):
        SeqVecEmbedder(model_directory=folder)
