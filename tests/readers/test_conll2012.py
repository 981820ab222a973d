"""CoNLL-2012 columns: roles, coreference, archives, and what each fault says."""

import io
import lzma
import tarfile
from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.conll2012 import Document, Mention, Predicate, read_conll2012, read_conll2012_archive

BEGIN = "#begin document (tale/ada); part 001"
END = "#end document"


def row(number: int, token: str, *roles: str, pos: str = "NN", lemma: str = "-", coref: str = "-") -> str:
    """Return a row as OntoNotes has it, with spaces; a lemma comes with frameset 01."""
    frameset = "-" if lemma == "-" else "01"
    cells = ["tale/ada", "1", str(number), token, pos, "*", lemma, frameset, "-", "Ada", "*", *roles, coref]
    return "   ".join(cells)


def tabbed_row(number: int, token: str, coref: str) -> str:
    """Return a row as LitBank has it."""
    return "\t".join(["tale/ada", "1", str(number), token, *["_"] * 8, coref])


def mention_rows(*corefs: str) -> list[str]:
    return [row(number, f"w{number}", coref=coref) for number, coref in enumerate(corefs)]


def role_rows(*roles: str, lemmas: tuple[str, ...] = ()) -> list[str]:
    padded = lemmas + ("-",) * (len(roles) - len(lemmas))
    return [
        row(number, f"w{number}", role, lemma=lemma)
        for number, (role, lemma) in enumerate(zip(roles, padded, strict=True))
    ]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "a.conll"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def read_one(folder: Path, *rows: str) -> Document:
    (document,) = read_conll2012(write(folder, BEGIN, *rows, END))
    return document


def test_a_document_has_tokens_speakers_and_parts_of_speech(tmp_path: Path) -> None:
    second = row(0, "Yes", pos="UH").replace("Ada", "-")
    document = read_one(tmp_path, row(0, "Bo", pos="NNP"), row(1, "ran", pos="VBD"), "", second, "")
    assert (document.name, document.part) == ("tale/ada", 1)
    assert [sentence.tokens for sentence in document.sentences] == [("Bo", "ran"), ("Yes",)]
    assert [sentence.speakers for sentence in document.sentences] == [("Ada", "Ada"), (None,)]
    assert [sentence.pos for sentence in document.sentences] == [("NNP", "VBD"), ("UH",)]
    assert document.clusters == ()


def test_several_documents_are_kept_apart(tmp_path: Path) -> None:
    second = "#begin document (tale/bo); part 000"
    path = write(tmp_path, BEGIN, *mention_rows("(0)"), END, "", second, *mention_rows("(0)", "(1)"), "", END)
    assert [(document.name, document.part, document.clusters) for document in read_conll2012(path)] == [
        ("tale/ada", 1, ((Mention(0, 0, 1),),)),
        ("tale/bo", 0, ((Mention(0, 0, 1),), (Mention(0, 1, 2),))),
    ]


def test_each_role_column_is_a_predicate_with_bio_tags(tmp_path: Path) -> None:
    document = read_one(
        tmp_path,
        row(0, "He", "(ARG0*)", "(ARG0*"),
        row(1, "who", "(R-ARG0*)", "*"),
        row(2, "gave", "(V*)", "*)", lemma="give"),
        row(3, "in", "(C-V*)", "*"),
        row(4, "will", "*", "(ARGM-MOD*)"),
        row(5, "win", "*", "(V*)", lemma="win"),
    )
    (sentence,) = document.sentences
    assert sentence.predicates == (
        Predicate(2, "give", ("B-ARG0", "B-R-ARG0", "B-V", "B-C-V", "O", "O")),
        Predicate(5, "win", ("B-ARG0", "I-ARG0", "I-ARG0", "O", "B-ARGM-MOD", "B-V")),
    )


def test_a_predicate_is_where_its_v_is_even_without_a_lemma(tmp_path: Path) -> None:
    (sentence,) = read_one(tmp_path, *role_rows("*", "(V*", "*)")).sentences
    assert sentence.predicates == (Predicate(1, None, ("O", "B-V", "I-V")),)


def test_a_predicate_without_v_is_where_its_frameset_is(tmp_path: Path) -> None:
    rows = row(0, "take", "*", "*", lemma="take"), row(1, "aim", "*", "(ARG0*)", lemma="aim")
    (sentence,) = read_one(tmp_path, *rows).sentences
    assert [(predicate.index, predicate.lemma) for predicate in sentence.predicates] == [(0, "take"), (1, "aim")]


def test_nested_mentions_are_half_open_and_in_order(tmp_path: Path) -> None:
    rows = [*mention_rows("(12|(3", "3)|(7)", "-", "12)"), "", *mention_rows("-", "(3)", "(12", "(12", "12)|12)")]
    assert read_one(tmp_path, *rows).clusters == (
        (Mention(0, 0, 2), Mention(1, 1, 2)),
        (Mention(0, 0, 4), Mention(1, 2, 5), Mention(1, 3, 5)),
        (Mention(0, 1, 2),),
    )


def test_tabs_underscores_and_an_empty_last_column_are_read(tmp_path: Path) -> None:
    document = read_one(tmp_path, tabbed_row(0, "I", "(0)"), tabbed_row(1, "x y", ""))
    (sentence,) = document.sentences
    assert (sentence.tokens, sentence.speakers, sentence.pos) == (("I", "x y"), (None, None), None)
    assert (sentence.predicates, document.clusters) == ((), ((Mention(0, 0, 1),),))


@pytest.mark.parametrize(
    ("rows", "line", "message"),
    [
        (["tale/ada 1 0 w NN"], 2, "5 columns in 'tale/ada 1 0 w NN', but CoNLL-2012 has 12 or more"),
        ([row(0, "a"), row(1, "b", "*")], 3, r"13 columns, but 12 in the sentence's first line \(2\)"),
        ([row(0, "a"), row(2, "b")], 3, "word number '2', but 1 comes next"),
        ([row(1, "a")], 2, "word number '1', but 0 comes next"),
        ([tabbed_row(0, "", "-")], 2, r"the word \(column 4\) is empty"),
        (role_rows("(V*)", "(ARG0*", "(ARG1*"), 4, r"'\(ARG1\*' in column 12 inside \(ARG0\*"),
        (role_rows("(V*)", "*)"), 3, r"'\*\)' in column 12 outside of any role"),
        (role_rows("(V*)", "ARG0"), 3, "'ARG0' in column 12"),
        (role_rows("(V*)", "(ARG0(ARG1*))"), 3, r"'\(ARG0\(ARG1\*\)\)' in column 12"),
        (role_rows("(V*)", "_"), 3, "'_' in column 12"),
        (role_rows("(V*)", "(ARG0*", "*"), 3, r"'\(ARG0\*' in column 12 is not closed"),
        (role_rows("(ARG0*)", "*"), 2, r"column 12 of the sentence that begins here has no \(V\*\), and 0 framesets"),
        (role_rows("*", "*", lemmas=("be", "go")), 2, r"no \(V\*\), and 2 framesets do not tell .* of 1 columns"),
        (mention_rows("-", "3"), 3, "'3' in the last column; expected"),
        (mention_rows("-", "(3|"), 3, r"'\(3\|' in the last column; expected"),
        (mention_rows("-", "(a)"), 3, r"'\(a\)' in the last column; expected"),
        (mention_rows("(3", "4)"), 3, r"'4\)' in the last column closes a mention that was not opened"),
        (mention_rows("(3)", "3)"), 3, r"'3\)' in the last column closes"),
        (mention_rows("-", "(3", "-"), 3, r"'\(3' in the last column is not closed"),
        ([*mention_rows("(3"), "", *mention_rows("3)")], 2, r"'\(3' in the last column is not closed"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, rows: list[str], line: int, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.conll, line {line}: .*{message}"):
        read_one(tmp_path, *rows)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (["", row(0, "a")], 2, "found 'tale/ada .*', but expected '#begin document"),
        (["#begin document tale/ada"], 1, "found '#begin document tale/ada', but expected"),
        ([END], 1, "found '#end document', but expected"),
        (["", BEGIN, row(0, "a")], 2, "the document that begins here has no '#end document'"),
        ([BEGIN, row(0, "a"), "", BEGIN, END], 1, "the document that begins here has no '#end document'"),
        ([BEGIN, "# a note", END], 2, "3 columns in '# a note'"),
    ],
)
def test_a_document_begins_and_ends(tmp_path: Path, lines: list[str], line: int, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.conll, line {line}: {message}"):
        list(read_conll2012(write(tmp_path, *lines)))


def test_faulty_roles_do_not_matter_to_who_asks_for_none(tmp_path: Path) -> None:
    path = write(tmp_path, BEGIN, row(0, "Bo", "(ARG0(ARG1*))", coref="(0)"), row(1, "she", "*", coref="(0)"), "", END)
    with pytest.raises(InputError, match="column 12"):
        list(read_conll2012(path))
    (document,) = read_conll2012(path, roles=False)
    assert document.sentences[0].predicates == ()
    assert document.clusters == ((Mention(0, 0, 1), Mention(0, 1, 2)),)


def document_bytes(name: str) -> bytes:
    return "\r\n".join([f"#begin document ({name}); part 0", *mention_rows("(0)"), "", END, ""]).encode()


def write_archive(folder: Path, *members: tuple[tarfile.TarInfo | str, bytes], mode: str = "w:xz") -> Path:
    path = folder / "a.tar"
    with tarfile.open(path, mode) as archive:
        for member, content in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "x/b.conll"
    return info


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_gives_its_files_by_name(tmp_path: Path, mode: str) -> None:
    members = [
        ("x/b.conll", b"\xef\xbb\xbf" + document_bytes("b")),
        (special("x", tarfile.DIRTYPE), b""),
        ("x/README", b"not read"),
        ("x/a.gold_conll", document_bytes("a")),
    ]
    path = write_archive(tmp_path, *members, mode=mode)
    documents = list(read_conll2012_archive(path))
    assert [document.name for document in documents] == ["a", "b"]
    assert documents[0].clusters == ((Mention(0, 0, 1),),)


@pytest.mark.parametrize(
    "member",
    [
        "../a.conll",
        "/a.conll",
        "x/../../a.conll",
        special("a.conll", tarfile.SYMTYPE),
        special("a.conll", tarfile.LNKTYPE),
        special("a.conll", tarfile.CHRTYPE),
        special("a.conll", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_with_links_devices_or_paths_out_of_it_is_rejected(
    tmp_path: Path, member: tarfile.TarInfo | str
) -> None:
    path = write_archive(tmp_path, ("x/b.conll", document_bytes("b")), (member, b""))
    with pytest.raises(InputError, match=r"a\.tar: '.*a\.conll' is a link, a device or a path out of the archive"):
        next(read_conll2012_archive(path))


def test_faults_in_an_archive_name_file_and_line(tmp_path: Path) -> None:
    path = write_archive(tmp_path, ("x/b.conll", document_bytes("b").replace(b"(0)", b"(0")))
    with pytest.raises(InputError, match=r"a\.tar: x/b\.conll, line 2: '\(0' in the last column is not closed"):
        list(read_conll2012_archive(path))
    path = write_archive(tmp_path, ("x/b.conll", document_bytes("b").replace(b"w0", b"caf\xe9")))
    with pytest.raises(InputError, match=r"a\.tar: x/b\.conll, line 2: byte 0xe9 \(byte 23 of the line\) is not UTF-8"):
        list(read_conll2012_archive(path))


def test_a_file_that_is_no_archive_or_has_no_conll_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.tar: no such file"):
        read_conll2012_archive(tmp_path / "gone.tar")
    with pytest.raises(InputError, match="no file in the archive has a name that ends in 'conll'"):
        list(read_conll2012_archive(write_archive(tmp_path, ("README", b"x"))))
    path = write_archive(tmp_path, ("b.conll", document_bytes("b") * 2000))
    packed = path.read_bytes()
    for content in (b"no archive at all", lzma.compress(b"no archive"), packed[: len(packed) // 2]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.tar: not a tar archive, damaged or cut short"):
            list(read_conll2012_archive(path))


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "num_documents", "num_sentences", "num_predicates"),
    [
        pytest.param("train", 540, 12_517, 31_126, marks=pytest.mark.slow),
        ("dev", 297, 1965, 3793),
        ("test", 308, 2056, 3652),
    ],
)
def test_published_roles_are_read_whole(
    data_dir: Path, split: str, num_documents: int, num_sentences: int, num_predicates: int
) -> None:
    documents = list(read_conll2012(data_dir / "srl" / f"ewt-propbank-{split}.conll.xz"))
    sentences = [sentence for document in documents for sentence in document.sentences]
    predicates = [(sentence, predicate) for sentence in sentences for predicate in sentence.predicates]
    assert (len(documents), len(sentences), len(predicates)) == (num_documents, num_sentences, num_predicates)
    for sentence, predicate in predicates:
        assert len(predicate.tags) == len(sentence.tokens) == len(sentence.pos)
        assert predicate.tags[predicate.index] == "B-V"


@pytest.mark.slow
def test_published_coreference_is_read_whole(data_dir: Path) -> None:
    num_documents = num_sentences = num_tokens = num_clusters = num_mentions = 0
    for document in read_conll2012_archive(data_dir / "coref" / "litbank-conll.tar.xz"):
        num_documents += 1
        num_sentences += len(document.sentences)
        num_tokens += sum(len(sentence.tokens) for sentence in document.sentences)
        num_clusters += len(document.clusters)
        num_mentions += sum(len(cluster) for cluster in document.clusters)
    assert (num_documents, num_sentences, num_tokens) == (100, 8562, 210_532)
    assert (num_clusters, num_mentions) == (7927, 29_103)
