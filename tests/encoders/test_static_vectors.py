"""Word vectors from files, as rows, and saved with a task model."""

import gzip
import json
import lzma
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.encoders.static_vectors import SUMS, VECTORS, WORDS, StaticVectors, read_static_vectors
from elmokit.errors import ElmokitWarning, InputError, OutputError, WeightsError

PLAIN = "the 0.25 -1 3e-2\ncat 1 2 3\nThe -0.5 0 0.125\n"
NUMBERS = [[0.25, -1, 0.03], [1, 2, 3], [-0.5, 0, 0.125]]


def written(folder: Path, text: str, *, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def some_vectors() -> StaticVectors:
    return StaticVectors(["the", "cat", "The"], np.array(NUMBERS, dtype=np.float32))


# Rows and the matrix


def test_word_i_is_row_i_plus_1_and_unknown_words_are_the_row_of_zeros():
    vectors = some_vectors()
    rows_N = vectors.rows(["cat", "dog", "the"], lower="fallback")
    assert rows_N.tolist() == [2, 0, 1]
    assert rows_N.dtype == np.int64
    matrix = vectors.matrix()
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[rows_N], np.array([NUMBERS[1], [0, 0, 0], NUMBERS[0]], dtype=np.float32))


def test_lower_case_is_used_always_or_only_for_words_that_are_not_there_as_written():
    vectors = some_vectors()
    assert vectors.rows(["The", "CAT"], lower="always").tolist() == [1, 2]
    assert vectors.rows(["The", "CAT"], lower="fallback").tolist() == [3, 2]
    assert vectors.rows(["The", "CAT"], lower="never").tolist() == [3, 0]
    with pytest.raises(InputError, match="'never'"):
        vectors.rows(["The"], lower="sometimes")


def test_unit_length_scales_every_vector_and_leaves_zeros():
    vectors = StaticVectors(["long", "zero"], np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(vectors.matrix(unit_length=True), [[0, 0], [0.6, 0.8], [0, 0]])
    np.testing.assert_array_equal(vectors.matrix(), [[0, 0], [3, 4], [0, 0]])


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a"], np.zeros((2, 3)), r"1 words with vectors of shape \(2, 3\)"),
        ([], np.zeros((0, 3)), "expected"),
        (["a"], np.zeros((1, 0)), "expected"),
        (["a", "a"], np.zeros((2, 3)), "only 1 different"),
        (["a", "b"], np.array([[1.0], [np.nan]]), r"'b' \(word 2\) holds NaN"),
        (["a"], np.array([[1e300]]), "infinite"),
    ],
)
def test_impossible_words_and_vectors_are_refused(words: list[str], vectors: np.ndarray, message: str):
    with pytest.raises(InputError, match=message):
        StaticVectors(words, vectors)


# Text files


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.removesuffix("\n"),
        PLAIN.replace("\n", " \n"),  # as word2vec writes it
        "3 3\n" + PLAIN,
        "3 3 \n" + PLAIN,
    ],
)
def test_the_usual_forms_of_text_all_give_the_same(tmp_path: Path, text: str):
    vectors = read_static_vectors(written(tmp_path, text))
    assert vectors.words == ("the", "cat", "The")
    np.testing.assert_array_equal(vectors.vectors_VD, np.array(NUMBERS, dtype=np.float32))


def test_compressed_text_is_unpacked(tmp_path: Path):
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(PLAIN.encode()))
    (tmp_path / "v.txt.xz").write_bytes(lzma.compress(PLAIN.encode()))
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/v.txt", PLAIN)
    for name in ("v.txt.gz", "v.txt.xz", "v.zip"):
        vectors = read_static_vectors(tmp_path / name)
        assert vectors.words == ("the", "cat", "The")
        np.testing.assert_array_equal(vectors.vectors_VD, np.array(NUMBERS, dtype=np.float32))


def test_an_archive_of_several_files_is_refused_with_their_names(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("v.50d.txt", PLAIN)
        archive.writestr("v.100d.txt", PLAIN)
    with pytest.raises(InputError, match=r"holds 2 files \(v\.50d\.txt, v\.100d\.txt\)"):
        read_static_vectors(tmp_path / "v.zip")


def test_a_word_with_spaces_keeps_them_and_the_last_fields_are_its_numbers(tmp_path: Path):
    path = written(tmp_path, PLAIN + ". . . 4 5 6\nat name@domain.com 7 8 9\n")
    vectors = read_static_vectors(path)
    assert vectors.words[3:] == (". . .", "at name@domain.com")
    np.testing.assert_array_equal(vectors.vectors_VD[3:], [[4, 5, 6], [7, 8, 9]])


def test_odd_white_space_and_marks_are_part_of_a_word(tmp_path: Path):
    words = ["a\u00a0b", "\u0085", "c\u2028", "#", '"', "1", "\u200b", "nan"]
    path = written(tmp_path, "".join(f"{word} 1 2\n" for word in words))
    assert read_static_vectors(path).words == tuple(words)


def test_more_lines_than_are_parsed_together_stay_in_order(tmp_path: Path):
    rng = np.random.default_rng(0)
    vectors_VD = rng.normal(size=(2600, 4)).astype(np.float32)
    lines = [f"w{row} " + " ".join(repr(float(value)) for value in vector) for row, vector in enumerate(vectors_VD)]
    lines[1500] = lines[1500].replace("w1500", "w x")
    found = read_static_vectors(written(tmp_path, "\n".join(lines)))
    assert found.words == tuple("w x" if row == 1500 else f"w{row}" for row in range(2600))
    np.testing.assert_array_equal(found.vectors_VD, vectors_VD)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_every_float_is_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, values: list[float]):
    path = written(tmp_path_factory.mktemp("floats"), "word " + " ".join(map(repr, values)) + "\n")
    np.testing.assert_array_equal(read_static_vectors(path).vectors_VD, np.array([values], dtype=np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("5 0\n", "line 1"),
        ("alone\n", "line 1"),
        ("0 3\n", "holds no word"),
        (PLAIN + "dog 1 2\n", r"line 4: 3 fields \('dog 1 2'\); expected a word and 3 numbers"),
        (PLAIN + "dog 1 2 3 4\n", "line 4: more than 3 numbers after 'dog'"),
        (PLAIN + "dog 1 2 x3\n", "line 4: 'x3' is no number"),
        (PLAIN + "dog 1 nan 3\n", "line 4: the vector of 'dog' holds NaN"),
        (PLAIN + "dog 1 1e99 3\n", "line 4: the vector of 'dog' holds NaN or infinite"),
        (PLAIN + "dog  1 2 3\n", "line 4: 5 fields"),
        (PLAIN + "dog 1  2 3\n", "line 4"),
        (PLAIN + " 1 2 3\n", "line 4: 4 fields"),
        (PLAIN + "\n", "line 4: 1 fields"),
        (PLAIN + "dog 1 2 \uff13\n", "line 4"),
        ("4 3\n" + PLAIN, "line 1 says 4 words, but 3 follow"),
        ("3 2\n" + PLAIN, "line 2: more than 2 numbers"),
    ],
)
def test_damaged_text_is_refused_with_its_place(tmp_path: Path, text: str, message: str):
    with pytest.raises(InputError, match=message) as caught:
        read_static_vectors(written(tmp_path, text))
    assert "vectors.txt" in str(caught.value)


def test_a_word_that_comes_twice_keeps_its_first_vector_with_a_warning(tmp_path: Path):
    path = written(tmp_path, PLAIN + "cat 9 9 9\ndog 4 5 6\n")
    with pytest.warns(ElmokitWarning, match=r"vectors\.txt: 1 of 5 words.*'cat', words 2 and 4"):
        vectors = read_static_vectors(path)
    assert vectors.words == ("the", "cat", "The", "dog")
    np.testing.assert_array_equal(vectors.vectors_VD[[1, 3]], [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("name", ["none.txt", "none.npz", "none.zip"])
def test_a_missing_file_is_said_to_be_missing(tmp_path: Path, name: str):
    with pytest.raises(InputError, match=rf"{name}: no such file"):
        read_static_vectors(tmp_path / name)


def test_files_that_are_not_what_their_names_say_are_refused(tmp_path: Path):
    for name in ("v.zip", "v.npz", "v.txt.gz"):
        with pytest.raises(InputError, match=name):
            read_static_vectors(written(tmp_path, PLAIN, name=name))
    with zipfile.ZipFile(tmp_path / "latin.zip", "w") as archive:
        archive.writestr("v.txt", b"the 1\ncaf\xe9 2\n")
    with pytest.raises(InputError, match=r"latin\.zip, line 2: byte 0xe9 .* is not UTF-8"):
        read_static_vectors(tmp_path / "latin.zip")
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(InputError, match=r"array\.npz: not an \.npz file of plain arrays"):
        read_static_vectors(tmp_path / "array.npz")


def test_a_byte_order_mark_in_an_archive_is_no_part_of_the_first_word(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("v.txt", b"\xef\xbb\xbfthe 1 2\ncat 2 3\n")
    assert read_static_vectors(tmp_path / "v.zip").words == ("the", "cat")


# Arrays


def test_arrays_are_read_as_they_are(tmp_path: Path):
    vectors_VD = np.array(NUMBERS, dtype=np.float16)
    np.savez(tmp_path / "v.npz", words=np.array(["the", "cat", "The"]), vectors=vectors_VD)
    vectors = read_static_vectors(tmp_path / "v.npz")
    assert vectors.words == ("the", "cat", "The")
    assert type(vectors.words[0]) is str
    assert vectors.vectors_VD.dtype == np.float16
    np.testing.assert_array_equal(vectors.vectors_VD, vectors_VD)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"words": np.array(["a"], dtype=object), "vectors": np.ones((1, 2))},
            "pickled objects",
        ),
        ({"words": np.array(["a"])}, "it has no array 'vectors', only words"),
        ({"words": np.array(["a", "b"]), "vectors": np.ones((1, 2))}, r"shape \(2,\).*shape \(1, 2\)"),
        ({"words": np.array([b"a"]), "vectors": np.ones((1, 2))}, "expected strings"),
        ({"words": np.array(["a"]), "vectors": np.ones((1, 2), dtype=int)}, "expected strings"),
        ({"words": np.array(["a"]), "vectors": np.ones(1)}, "expected strings"),
        ({"words": np.array(["a", "b"]), "vectors": np.array([[1.0], [np.inf]])}, r"'b' \(word 2\)"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_static_vectors(tmp_path / "v.npz")
    assert "v.npz" in str(caught.value)


def test_the_published_vectors_are_read(data_dir: Path):
    vectors = read_static_vectors(data_dir / "glove" / "glove.6B.100d.top100k.f16.npz")
    assert (len(vectors), vectors.width) == (100_000, 100)
    assert vectors.rows(["The", "of", "qqqqq"], lower="fallback").tolist() == [1, 4, 0]


# A saved folder

words_strategy = st.lists(st.text(st.characters(codec=None)), unique=True, min_size=1, max_size=8)


@settings(max_examples=20)  # each waits for the disk
@given(words_strategy, st.sampled_from([np.float16, np.float32]))
def test_saved_vectors_come_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, words: list[str], dtype: type):
    vectors = StaticVectors(words, np.random.default_rng(0).normal(size=(len(words), 3)).astype(dtype))
    folder = tmp_path_factory.mktemp("saved") / "vectors"
    vectors.save(folder)
    loaded = StaticVectors.load(folder)
    assert loaded.words == vectors.words
    assert loaded.vectors_VD.dtype == dtype
    np.testing.assert_array_equal(loaded.vectors_VD, vectors.vectors_VD)


def test_saving_again_replaces_only_what_is_ours(tmp_path: Path):
    some_vectors().save(tmp_path / "saved")
    StaticVectors(["new"], np.ones((1, 2))).save(tmp_path / "saved")
    assert StaticVectors.load(tmp_path / "saved").words == ("new",)
    (tmp_path / "saved" / "diary.txt").write_text("mine")
    with pytest.raises(OutputError, match="files in it"):
        some_vectors().save(tmp_path / "saved")


def test_a_damaged_folder_is_refused(tmp_path: Path):
    some_vectors().save(tmp_path)
    content = (tmp_path / VECTORS).read_bytes()
    (tmp_path / VECTORS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(WeightsError, match=r"vectors\.safetensors: its SHA-256"):
        StaticVectors.load(tmp_path)
    with pytest.raises(WeightsError, match="missing"):
        StaticVectors.load(tmp_path / "none")


@pytest.mark.parametrize("words", [["the", "cat"], {"the": 1}, ["a", "b", 3], ["a", "a", "b"]])
def test_a_folder_whose_words_are_no_words_is_refused(tmp_path: Path, words: object):
    from elmokit.weights.sums import write_sums

    some_vectors().save(tmp_path)
    (tmp_path / WORDS).write_text(json.dumps(words))
    (tmp_path / SUMS).unlink()
    write_sums(tmp_path, (VECTORS, WORDS))
    with pytest.raises(WeightsError, match="no static vectors of ours"):
        StaticVectors.load(tmp_path)


# Hostile files


def zipped(path: Path, compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(shape: str, descr: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + data


WORDS_NPY = npy("(2,)", "<U1", "ab".encode("utf-32-le"))
HOSTILE = {
    "no array": b"not an array at all",
    "open header": npy("(2, 1"),
    "claims 4 TB": npy("(2, 1000000000000)"),
    "negative": npy("(2, -3)", data=bytes(24)),
    "overflow": npy("(2, 99999999999999999999999)"),
    "objects": npy("(2,)", "|O", b"cos\nsystem\n"),
    "version 9": b"\x93NUMPY\x09\x00" + bytes(100),
    "cut": npy("(2, 3)", data=bytes(23)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arrays_are_rejected_by_name(tmp_path: Path, content: bytes):
    path = zipped(tmp_path / "v.npz", words=WORDS_NPY, vectors=content)
    with pytest.raises(InputError, match=r"v\.npz: "):
        read_static_vectors(path)


def test_a_damaged_lzma_member_is_rejected(tmp_path: Path):
    path = zipped(tmp_path / "v.npz", zipfile.ZIP_LZMA, words=WORDS_NPY, vectors=npy("(2, 3)", data=bytes(24)))
    content = bytearray(path.read_bytes())
    place = content.index(b"vectors.npy") + len("vectors.npy") + 12
    content[place : place + 20] = b"\xff" * 20
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"v\.npz: "):
        read_static_vectors(path)


def test_arrays_that_unpack_to_far_more_than_their_file_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELMOKIT_MAX_UNPACKED_MB", "1")
    path = zipped(tmp_path / "v.npz", words=WORDS_NPY, vectors=npy("(2, 200000)", data=bytes(1_600_000)))
    with pytest.raises(InputError, match=r"unpacks to 1,600,000 bytes, .* ELMOKIT_MAX_UNPACKED_MB"):
        read_static_vectors(path)
    monkeypatch.setenv("ELMOKIT_MAX_UNPACKED_MB", "2")
    assert read_static_vectors(path).vectors_VD.shape == (2, 200_000)


def test_a_zip_that_unpacks_to_far_more_than_its_size_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELMOKIT_MAX_UNPACKED_MB", "1")
    with zipfile.ZipFile(tmp_path / "v.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.txt", "".join(f"{number} 0 0 0\n" for number in range(300_000)))
    path = tmp_path / "v.zip"
    monkeypatch.setattr("elmokit.limits.MAX_RATIO", 1)
    with pytest.raises(InputError, match=r"v\.zip: unpacks to more than .* ELMOKIT_MAX_UNPACKED_MB"):
        read_static_vectors(path)


def test_a_zip_member_without_a_name_is_rejected(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("x", "the 1 2\n")
        archive.filelist[0].filename = ""
    with pytest.raises(InputError, match=r"v\.zip: damaged"):
        read_static_vectors(tmp_path / "v.zip")
