"""Layers on disk equal computed ones, are computed once, and survive crashes."""

import errno
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import SERVER
from toy import TEXT, toy_model

from elmokit.embed import layer_store
from elmokit.embed.embedder import Embedder
from elmokit.embed.layer_store import INDEX, LAYERS, LayerStore
from elmokit.errors import ElmokitWarning, InputError, OutputError
from elmokit.model.bilm import BiLM

SENTENCES = [line.split() for line in TEXT.splitlines()]


def toy_bilm(seed: int = 0) -> BiLM:
    torch.manual_seed(seed)
    bilm = BiLM(toy_model())
    for parameter in bilm.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return bilm


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(toy_bilm())


@pytest.fixture
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_store, "MAX_SEQUENCES", 4)


class Recorder:
    """A progress callback that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))


def assert_holds(store: LayerStore, embedder: Embedder, sentences: list[list[str]]) -> None:
    joined_LND = store.join(sentences)
    assert joined_LND.dtype == torch.float32
    expected_LND = np.concatenate(embedder.embed_layers(sentences), axis=1)
    assert joined_LND.shape == expected_LND.shape
    np.testing.assert_allclose(joined_LND.numpy(), expected_LND, rtol=1e-3, atol=1e-5)


# Cached layers


def test_joined_layers_are_those_of_the_embedder(tmp_path: Path, embedder: Embedder):
    store = LayerStore.open(tmp_path, embedder)
    store.add(SENTENCES)
    assert_holds(store, embedder, SENTENCES)
    assert_holds(store, embedder, [SENTENCES[5], SENTENCES[2], SENTENCES[5]])


def test_cached_layers_are_rounded_to_float16_and_no_more(tmp_path: Path, embedder: Embedder):
    store = LayerStore.open(tmp_path, embedder)
    store.add(SENTENCES[:1])
    joined_LND = store.join(SENTENCES[:1])
    (expected_LTD,) = embedder.embed_layers(SENTENCES[:1])
    assert torch.equal(joined_LND, torch.from_numpy(expected_LTD).half().float())


def test_a_store_that_is_opened_again_has_everything(tmp_path: Path, embedder: Embedder):
    LayerStore.open(tmp_path, embedder).add(SENTENCES)
    store = LayerStore.open(tmp_path, embedder)
    assert len(store) == len(SENTENCES)
    assert_holds(store, embedder, SENTENCES)


def test_only_what_is_missing_is_computed_and_each_sequence_once(tmp_path: Path, embedder: Embedder):
    store = LayerStore.open(tmp_path, embedder)
    first, more, none = Recorder(), Recorder(), Recorder()
    store.add(SENTENCES[:3] * 2, progress=first)
    num_tokens = sum(map(len, SENTENCES[:3]))
    assert len(first.calls) == 3
    assert first.calls[-1] == (num_tokens, num_tokens)
    store.add((list(tokens) for tokens in SENTENCES[1:5]), progress=more)
    assert len(more.calls) == 2
    store.add([tuple(tokens) for tokens in SENTENCES[:5]], progress=none)
    assert none.calls == []
    assert len(store) == 5
    assert (store.folder / LAYERS).stat().st_size == sum(map(len, SENTENCES[:5])) * 3 * 12 * 2


def test_sequences_with_the_same_text_but_other_tokens_differ(tmp_path: Path, embedder: Embedder):
    alike = [["a b", "c"], ["a", "b c"], ["a", "b", "c"], ["a", "b", "c", ""], ['a", "b', "c"], ["a\nb", "c"]]
    store = LayerStore.open(tmp_path, embedder)
    store.add(alike)
    assert len(store) == len(alike)
    assert_holds(store, embedder, alike)


def test_another_model_never_mixes_in(tmp_path: Path, embedder: Embedder):
    LayerStore.open(tmp_path, embedder).add(SENTENCES)
    for other in (Embedder(toy_bilm(1)), Embedder(embedder.bilm, state="reset")):
        store = LayerStore.open(tmp_path, other)
        assert SENTENCES[0] not in store
        store.add(SENTENCES[:2])
        assert_holds(store, other, SENTENCES[:2])
    assert_holds(LayerStore.open(tmp_path, embedder), embedder, SENTENCES)


def test_a_missing_sequence_is_named(tmp_path: Path, embedder: Embedder):
    store = LayerStore.open(tmp_path, embedder)
    with pytest.raises(InputError, match="no layers of 'he took a small boat and a long net'; add"):
        store.join([SENTENCES[1]])


def test_vectors_that_depend_on_history_are_rejected(tmp_path: Path, embedder: Embedder):
    with pytest.raises(InputError, match="carry"):
        LayerStore.open(tmp_path, Embedder(embedder.bilm, state="carry"))


@pytest.mark.parametrize(("scale", "found"), [(1e6, r"contain \d"), (float("nan"), "contain nan")])
def test_a_value_beyond_float16_is_rejected(tmp_path: Path, scale: float, found: str):
    bilm = toy_bilm()
    with torch.no_grad():
        bilm.char_encoder.projection.weight.mul_(scale)  # only the token layer is not clipped
    embedder = Embedder(bilm)
    store = LayerStore.open(tmp_path, embedder)
    with pytest.raises(InputError, match=f"layers of 'the old man.*{found}.*at most 65504"):
        store.add(SENTENCES[:1])
    assert len(LayerStore.open(tmp_path, embedder)) == 0


# Crashes and failures


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> dict[str, bytes]:
    """The files of a store that was written in four blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_store, "MAX_SEQUENCES", 4)
        store = LayerStore.open(tmp_path_factory.mktemp("whole"), embedder)
        store.add(SENTENCES)
    return {name: (store.folder / name).read_bytes() for name in (LAYERS, INDEX)}


# Bytes of a file that reached the disk; the whole of it is 9,144 bytes of layers and 572 of index.
parts = st.one_of(st.just(10_000), st.integers(0, 10_000)), st.one_of(st.just(572), st.integers(0, 572))
torn_ends = st.sampled_from([b"", b"\0" * 40, b"\x01\0\0\0rubbish that is no block at all, but long enough for one"])


@pytest.mark.long
@settings(max_examples=40)
@given(*parts, torn_ends)
def test_files_truncated_anywhere_give_no_wrong_vectors_and_are_repaired(
    tmp_path_factory: pytest.TempPathFactory,
    embedder: Embedder,
    whole: dict[str, bytes],
    num_layer_bytes: int,
    num_index_bytes: int,
    torn_end: bytes,
):
    store = LayerStore.open(tmp_path_factory.mktemp("torn"), embedder)
    layers_end = torn_end if num_layer_bytes >= len(whole[LAYERS]) else b""
    (store.folder / LAYERS).write_bytes(whole[LAYERS][:num_layer_bytes] + layers_end)
    (store.folder / INDEX).write_bytes(whole[INDEX][:num_index_bytes] + torn_end)
    store = LayerStore.open(store.folder.parent, embedder)
    present = [tokens for tokens in SENTENCES if tokens in store]
    if present:
        assert_holds(store, embedder, present)
    store.add(SENTENCES)
    assert_holds(LayerStore.open(store.folder.parent, embedder), embedder, SENTENCES)


@pytest.mark.usefixtures("_small_windows")
def test_an_interrupted_add_keeps_the_windows_before(tmp_path: Path, embedder: Embedder):
    store = LayerStore.open(tmp_path, embedder)
    calls = iter(range(100))

    def interrupt(_done: int, _total: int) -> None:
        if next(calls) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(SENTENCES, progress=interrupt)
    assert len(store) == 8
    assert_holds(store, embedder, SENTENCES[:8])
    store.add(SENTENCES)
    assert_holds(store, embedder, SENTENCES)


def _add_and_die(root: Path, num_calls: int) -> None:
    torch.set_num_threads(1)
    layer_store.MAX_SEQUENCES = 4
    calls = iter(range(100))

    def die(_done: int, _total: int) -> None:
        if next(calls) == num_calls:
            os.kill(os.getpid(), signal.SIGKILL)

    LayerStore.open(root, Embedder(toy_bilm())).add(SENTENCES, progress=die)


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_process_leaves_a_sound_store_and_no_lock(tmp_path: Path, embedder: Embedder):
    process = SERVER.Process(target=_add_and_die, args=(tmp_path, 6))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    store = LayerStore.open(tmp_path, embedder)
    assert len(store) == 4
    store.add(SENTENCES)
    assert_holds(store, embedder, SENTENCES)


def test_one_process_adds_at_a_time_and_readers_are_not_disturbed(tmp_path: Path, embedder: Embedder):
    first, second = (LayerStore.open(tmp_path, embedder) for _ in range(2))
    first.add(SENTENCES[:2])

    def meanwhile(_done: int, _total: int) -> None:
        reader = LayerStore.open(tmp_path, embedder)
        reader.add(SENTENCES[:2])  # nothing is missing
        assert_holds(reader, embedder, SENTENCES[:2])
        with pytest.raises(OutputError, match="another process is adding to it"):
            second.add(SENTENCES)

    first.add(SENTENCES[2:5], progress=meanwhile)
    second.add(SENTENCES)
    assert (first.folder / LAYERS).stat().st_size == sum(map(len, SENTENCES)) * 3 * 12 * 2
    assert_holds(second, embedder, SENTENCES)
    assert_holds(first, embedder, SENTENCES[:5])


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fsync(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        yield


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path, embedder: Embedder, full_disk: None):  # noqa: ARG001
    store = LayerStore.open(tmp_path, embedder)
    with pytest.raises(OutputError, match="No space left on device; free some space"):
        store.add(SENTENCES)
    assert len(store) == 0


@pytest.mark.parametrize("name", [LAYERS, INDEX])
def test_a_link_in_the_folder_is_rejected_and_its_target_unchanged(tmp_path: Path, embedder: Embedder, name: str):
    store = LayerStore.open(tmp_path, embedder)
    (tmp_path / "precious").write_bytes(b"dear")
    (store.folder / name).symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match=f"{name}: is a symbolic link"):
        LayerStore.open(tmp_path, embedder).add(SENTENCES)
    assert (tmp_path / "precious").read_bytes() == b"dear"


def test_a_root_that_is_a_file_is_an_error(tmp_path: Path, embedder: Embedder):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="a part of the path is a file"):
        LayerStore.open(tmp_path / "file", embedder)


# Damage


@pytest.mark.parametrize("place", [0, 4571, -1])
def test_damaged_layers_are_noticed_when_they_are_read(
    tmp_path: Path, embedder: Embedder, whole: dict[str, bytes], place: int
):
    store = LayerStore.open(tmp_path, embedder)
    damaged = bytearray(whole[LAYERS])
    damaged[place] ^= 1
    (store.folder / LAYERS).write_bytes(damaged)
    (store.folder / INDEX).write_bytes(whole[INDEX])
    store = LayerStore.open(tmp_path, embedder)
    with pytest.raises(InputError, match=r"layers\.f16: the layers of .* are damaged; delete .* computed again"):
        store.join(SENTENCES)


def as_old(index: bytes) -> bytes:
    """Return an index as older versions wrote it: without checksums of layers."""
    blocks, place = b"", 0
    while place < len(index):
        header, _ = layer_store.BLOCK.unpack_from(index, place)
        num_records = header & ~layer_store.HAS_CHECKSUMS
        place += layer_store.BLOCK.size
        records = np.frombuffer(index, dtype=layer_store.RECORD, count=num_records, offset=place)
        old = np.empty(num_records, dtype=layer_store.OLD_RECORD)
        for name in layer_store.OLD_RECORD.names:
            old[name] = records[name]
        blocks += layer_store.BLOCK.pack(num_records, zlib.crc32(old.tobytes())) + old.tobytes()
        place += records.nbytes
    return blocks


def test_a_store_of_an_older_version_is_used_with_a_warning(
    tmp_path: Path, embedder: Embedder, whole: dict[str, bytes]
):
    folder = LayerStore.open(tmp_path, embedder).folder
    (folder / LAYERS).write_bytes(whole[LAYERS])
    (folder / INDEX).write_bytes(as_old(whole[INDEX]))
    with pytest.warns(ElmokitWarning, match=f"{len(SENTENCES)} cached sequences .* have no checksums"):
        store = LayerStore.open(tmp_path, embedder)
    store.add([*SENTENCES, ["new", "words"]])
    assert_holds(store, embedder, [*SENTENCES, ["new", "words"]])


@pytest.mark.filterwarnings("ignore:.*have no checksums")
def test_an_index_that_points_outside_of_the_layers_is_not_followed(
    tmp_path: Path, embedder: Embedder, whole: dict[str, bytes]
):
    folder = LayerStore.open(tmp_path, embedder).folder
    (folder / LAYERS).write_bytes(whole[LAYERS])
    records = np.zeros(1, dtype=layer_store.OLD_RECORD)
    records["digest"], records["start"] = layer_store._digest(SENTENCES[0]), -(10**12)
    (folder / INDEX).write_bytes(layer_store.BLOCK.pack(1, zlib.crc32(records.tobytes())) + records.tobytes())
    assert len(LayerStore.open(tmp_path, embedder)) == 0
