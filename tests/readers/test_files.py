"""What all readers do alike: compressed files, missing files, and no torch."""

import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.conll2003 import read_conll2003
from elmokit.readers.conll2012 import read_conll2012
from elmokit.readers.conllu import read_conllu
from elmokit.readers.snli import read_snli
from elmokit.readers.squad import read_squad
from elmokit.readers.sst import read_sst
from elmokit.readers.wsd import read_wsd

Reader = Callable[[Path], Iterator[object]]

READERS: dict[Reader, str] = {
    read_conll2003: "Ada B-PER\n",
    read_conll2012: "#begin document (a); part 000\na 0 0 Ada NNP * - - - - * -\n\n#end document\n",
    read_conllu: "1\tAda\tAda\tPROPN\tNNP\t_\t0\troot\t_\t_\n\n",
    read_snli: '{"gold_label": "-", "sentence1": "Ada", "sentence2": "Bo"}\n',
    read_squad: '{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "0", "question": "y", "answers": []}]}]}]}',
    read_sst: "(2 Ada)\n",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_read_as_plain_ones(
    tmp_path: Path, reader: Reader, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    plain, packed = tmp_path / "a", tmp_path / f"a{suffix}"
    plain.write_text(READERS[reader])
    packed.write_bytes(pack(plain.read_bytes()))
    assert len(list(reader(plain))) == 1
    assert list(reader(packed)) == list(reader(plain))


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_is_told_at_the_call(tmp_path: Path, reader: Reader) -> None:
    with pytest.raises(InputError, match="gone: no such file"):
        reader(tmp_path / "gone")


@pytest.mark.parametrize("reader", READERS)
def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "a"
    path.write_bytes(READERS[reader].encode() + b"\n\xff")
    number = path.read_bytes().count(b"\n") + 1
    with pytest.raises(InputError, match=f"a, line {number}: byte 0xff .* is not UTF-8"):
        list(reader(path))


def test_both_files_of_a_sense_corpus_are_looked_for_at_the_call(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    for paths in [(path, tmp_path / "gone"), (tmp_path / "gone", path)]:
        with pytest.raises(InputError, match="gone: no such file"):
            read_wsd(*paths)


def test_readers_do_not_load_torch() -> None:
    names = {reader.__module__ for reader in READERS} | {read_wsd.__module__}
    code = f"import sys, {', '.join(sorted(names))}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
