"""Models under the names and in the archives that people publish; hostile archives are rejected."""

import gzip
import io
import json
import shutil
import tarfile
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from published import PublishedModel

from elmokit.embed.embedder import Embedder
from elmokit.errors import ElmokitWarning, WeightsError
from elmokit.weights.folder import save_folder
from elmokit.weights.known_files import PUBLISHED_FILES, PublishedFile
from elmokit.weights.meta import read_meta
from elmokit.weights.source import file_hashes, has_softmax, load_saved, load_softmax
from elmokit.weights.sums import sha256

META = {
    "corpus": [{"language": "nor", "lemmatized": True, "description": "Norwegian | Wikipedia"}],
    "creators": [{"name": "A. Name", "email": "a@example.org"}],
}


def place(model: PublishedModel, folder: Path, options: str, weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(model.options_path, folder / options)
    shutil.copy(model.weights_path, folder / weights)
    return folder


def assert_loads(source: Path, model: PublishedModel) -> None:
    found, expected = load_saved(source), load_saved(model.pair)
    assert found.config == expected.config
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ("options_file", "weights_file"),
        ("options.json", "mimic_wiki.hdf5"),
        ("elmo_pt_options.json", "elmo_pt_weights_dgx1.hdf5"),
        ("biomed_elmo_options.json", "biomed_elmo_weights_PubMed_only.h5"),
    ],
)
def test_names_in_the_wild_are_found(
    published_model: PublishedModel, tmp_path: Path, options: str, weights: str
) -> None:
    assert_loads(place(published_model, tmp_path / "model", options, weights), published_model)


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz"])
@pytest.mark.parametrize("inside", ["", "elmo/en"])
def test_an_archive_is_loaded_as_its_folder(
    published_model: PublishedModel, tmp_path: Path, suffix: str, inside: str
) -> None:
    place(published_model, tmp_path / "folder" / inside, "options.json", "model.hdf5")
    archive = tmp_path / f"archive{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in (tmp_path / "folder").rglob("*.*"):
                packed.write(path, path.relative_to(tmp_path / "folder"))
    else:
        with tarfile.open(archive, {".tar": "w", ".tar.xz": "w:xz"}.get(suffix, "w:gz")) as packed:  # type: ignore[call-overload]
            packed.add(tmp_path / "folder", ".")
    assert_loads(archive, published_model)
    assert not has_softmax(archive)
    assert set(file_hashes(archive)) == {archive.name}


def test_an_embedder_from_an_archive_is_pickled_by_its_path(published_model: PublishedModel, tmp_path: Path) -> None:
    import pickle

    place(published_model, tmp_path / "folder", "options.json", "model.hdf5")
    archive = Path(shutil.make_archive(str(tmp_path / "model"), "zip", tmp_path / "folder"))
    embedder = Embedder.from_pretrained(archive, state="reset")
    again = pickle.loads(pickle.dumps(embedder))
    sentences = [["The", "bank"]]
    assert (again.embed_layers(sentences)[0] == embedder.embed_layers(sentences)[0]).all()


def test_meta_json_is_used_and_lemmas_are_warned_of(published_model: PublishedModel, tmp_path: Path) -> None:
    folder = place(published_model, tmp_path / "210", "options.json", "model.hdf5")
    (folder / "meta.json").write_text(json.dumps(META), "utf-8")
    with gzip.open(folder / "vocab.txt.gz", "wt", encoding="utf-8") as file:
        file.write("<S>\n</S>\n<UNK>\nord\n")
    with pytest.warns(ElmokitWarning, match="210: the model was trained on lemmas"):
        saved = load_saved(folder)
    assert saved.about["Language"] == "nor"
    assert saved.about["Creators"] == "A. Name"
    save_folder(saved, tmp_path / "ours")
    card = (tmp_path / "ours" / "README.md").read_text("utf-8")
    assert "| Input | lemmas, not word forms |" in card
    assert "| Corpus | Norwegian Wikipedia |" in card
    (folder / "meta.json").write_text("{", "utf-8")
    with pytest.warns(ElmokitWarning, match="not valid JSON: .*the model is loaded without it"):
        load_saved(folder)


def test_an_output_layer_published_beside_the_weights_is_read(published_model: PublishedModel, tmp_path: Path) -> None:
    # The names under which the output layer of the paper's model was published, and its vocabulary.
    name = "elmo_2x4096_512_2048cnn_2xhighway"
    folder = place(published_model, tmp_path / "model", f"{name}_options.json", f"{name}_weights.hdf5")
    words = ["</S>", "<S>", "<UNK>", "the", "bank"]
    (folder / "vocab-2016-09-10.txt").write_text("\n".join([*words, "!!!MAXTERMID"]) + "\n", "utf-8")
    weight_VP = np.random.default_rng(1).normal(size=(len(words), 8)).astype(np.float32)
    with h5py.File(folder / f"{name}_softmax_weights.hdf5", "w") as file:
        file["softmax/W"], file["softmax/b"] = weight_VP, np.arange(len(words), dtype=np.float32)
    assert has_softmax(folder)
    softmax = load_softmax(folder)
    np.testing.assert_array_equal(softmax.weight_VP, weight_VP)
    np.testing.assert_array_equal(softmax.bias_V, np.arange(len(words)))
    assert softmax.vocab.words == tuple(words)
    assert_loads(folder, published_model)
    (folder / "vocab-2016-09-10.txt").write_text("\n".join(words[:-1]), "utf-8")
    with pytest.raises(WeightsError, match=r"has shape \(5, 8\); the options and the vocabulary say \(4, 8\)"):
        load_softmax(folder)


@pytest.mark.parametrize(
    ("meta", "is_lemmas"),
    [
        ({"corpus": [{"lemmatized": True}]}, True),
        ({"corpus": {"Lemmatisation": "UDPipe"}}, True),
        ({"corpora": [{"lemmatization": "true"}]}, True),
        ({"handle": "ruwikiruscorpora_lemmas_elmo_1024_2019"}, True),
        ({"corpus": [{"lemmatized": False, "description": "no lemmas here"}]}, False),
        ({"corpus": [{"lemmatized": "False", "lemmatization": None}]}, False),
        ({"name": "dilemmas_elmo_2020"}, False),
        ({"handle": "ruwikiruscorpora_tokens_elmo_1024_2019"}, False),
    ],
)
def test_a_model_of_lemmas_is_recognized_by_many_keys(tmp_path: Path, meta: dict, is_lemmas: bool) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(meta), "utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        facts = read_meta(tmp_path / "meta.json")
    assert [one.category for one in caught] == [ElmokitWarning] * is_lemmas
    assert ("Input" in facts) == is_lemmas


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weights.th", "an AllenNLP model archive. If it is transformer ELMo, it has another architecture"),
        ("tfhub_module.pb", "a TF-Hub module, .* Use the same model as options.json and .hdf5"),
        ("saved_model.pb", "a TensorFlow SavedModel"),
    ],
)
def test_models_of_other_systems_are_named_with_what_to_do(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "config.json").write_text("{}") if name == "weights.th" else None
    with pytest.raises(WeightsError, match=message):
        load_saved(tmp_path)
    archive = Path(shutil.make_archive(str(tmp_path.parent / f"{tmp_path.name}-archive"), "gztar", tmp_path))
    with pytest.raises(WeightsError, match=message):
        load_saved(archive)


def test_two_models_are_rejected(published_model: PublishedModel, tmp_path: Path) -> None:
    folder = place(published_model, tmp_path / "both", "options.json", "a.hdf5")
    place(published_model, folder, "options.json", "b.hdf5")
    with pytest.raises(WeightsError, match=r"expected one \*\.hdf5, found a\.hdf5, b\.hdf5"):
        load_saved(folder)
    for name in ("en", "de"):
        place(published_model, tmp_path / "apart" / name, "options.json", "model.hdf5")
    archive = shutil.make_archive(str(tmp_path / "apart"), "zip", tmp_path / "apart")
    with pytest.raises(WeightsError, match=r"expected one model, found (en, de|de, en)"):
        load_saved(archive)


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for info in members:
            packed.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def tar_info(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, target
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([tar_info("../options.json")], r"has the path '\.\./options\.json', which leaves the archive"),
        ([tar_info("/etc/options.json")], "which leaves the archive"),
        (
            [tar_info("options.json", kind=tarfile.SYMTYPE, target="/etc/passwd")],
            "is a link, a device or a sparse file",
        ),
        ([tar_info("model.hdf5", kind=tarfile.LNKTYPE, target="options.json")], "is a link, a device or a sparse file"),
        ([tar_info("options.json"), tar_info("model.hdf5", 30_000_000)], r"claims 30,000,000 bytes in an archive of"),
        ([], "expected one model, found none"),
    ],
)
def test_a_hostile_tar_is_rejected_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[tarfile.TarInfo], message: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(WeightsError, match=message):
        load_saved(tar_with(tmp_path / "hostile.tar.gz", *members))
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("suffix", ["zip", "gztar"])
def test_a_truncated_archive_is_named(published_model: PublishedModel, tmp_path: Path, suffix: str) -> None:
    place(published_model, tmp_path / "folder", "options.json", "model.hdf5")
    archive = Path(shutil.make_archive(str(tmp_path / "model"), suffix, tmp_path / "folder"))
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(WeightsError, match=r"cannot be unpacked .*; download it again"):
        load_saved(archive)


def test_a_published_file_is_recognized_and_a_bad_download_is_named(
    published_model: PublishedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "elmo_2x24_8_weights.hdf5"
    folder = place(published_model, tmp_path / "model", "options.json", name)
    size = published_model.weights_path.stat().st_size
    known = PublishedFile(name, size, sha256(published_model.weights_path))
    monkeypatch.setattr("elmokit.weights.known_files.PUBLISHED_FILES", (*PUBLISHED_FILES, known))
    assert load_saved(folder).about == {"Published as": name}
    (folder / name).rename(folder / "renamed.hdf5")
    assert load_saved(folder).about == {"Published as": name}
    whole = (folder / "renamed.hdf5").read_bytes()
    (folder / "renamed.hdf5").unlink()
    (folder / name).write_bytes(whole[:-100])
    with pytest.raises(WeightsError, match=rf"has {size - 100:,} bytes, .* has {size:,}; the download was cut short"):
        load_saved(folder)
    (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(WeightsError, match="the file was changed"):
        load_saved(folder)


@pytest.mark.parametrize("size", [-512, 1 << 41])
def test_a_forged_size_in_a_tar_is_rejected(tmp_path: Path, size: int) -> None:
    """-512 in the second header: tarfile would read that header again and again (CVE-2025-8194)."""
    archive = tar_with(tmp_path / "a.tar.gz", tar_info("options.json", 1), tar_info("model.hdf5", 1))
    packed = bytearray(gzip.decompress(archive.read_bytes()))
    header = packed[1024:1536]
    header[124:136] = (b"\xff" * 4 if size < 0 else b"\x80\0\0\0") + size.to_bytes(8, "big", signed=True)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    packed[1024:1536] = header
    (tmp_path / "a.tar").write_bytes(packed)
    with pytest.raises(WeightsError, match=rf"'model\.hdf5' has a size of {size} bytes"):
        load_saved(tmp_path / "a.tar")


def test_a_sparse_file_in_a_tar_is_rejected(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "a.tar.gz", tar_info("model.hdf5", 0, tarfile.GNUTYPE_SPARSE))
    with pytest.raises(WeightsError, match=r"'model\.hdf5' is a sparse file"):
        load_saved(archive)
