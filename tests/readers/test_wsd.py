"""Sense-tagged XML, its keys and WordNet's index: what is read and refused, and published first-sense scores."""

from pathlib import Path

import pytest

from elmokit.errors import InputError
from elmokit.readers.wsd import SenseInstance, SenseSentence, read_sense_index, read_wsd

SENTENCE = """<sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="polling_day" pos="NOUN">polling  day</instance>
<wf lemma="&apos;" pos="VERB">&apos;s</wf>
<instance id="d0.s0.t1" lemma="near" pos="ADJ">near</instance>
</sentence>"""
KEYS = "d0.s0.t0 polling_day%1:28:00::\nd0.s0.t1 near%3:00:00:: close%5:00:00:near:01\n"


def write(
    folder: Path, *, body: str = SENTENCE, keys: str = KEYS, head: str = '<?xml version="1.0"?>'
) -> tuple[Path, Path]:
    """Write both files; the body begins on line 3."""
    data_path, keys_path = folder / "a.data.xml", folder / "a.gold.key.txt"
    data_path.write_text(f'{head}\n<corpus lang="en"><text id="d0">\n{body}\n</text></corpus>\n', encoding="utf-8")
    keys_path.write_text(keys, encoding="utf-8")
    return data_path, keys_path


def test_sentences_have_tokens_and_instances_with_senses(tmp_path: Path) -> None:
    assert list(read_wsd(*write(tmp_path))) == [
        SenseSentence(
            tokens=("The", "polling", "day", "'s", "near"),
            lemmas=("the", "polling_day", "polling_day", "'", "near"),
            pos=("DET", "NOUN", "NOUN", "VERB", "ADJ"),
            instances=(
                SenseInstance("d0.s0.t0", 1, 3, "polling_day", "NOUN", ("polling_day%1:28:00::",)),
                SenseInstance("d0.s0.t1", 4, 5, "near", "ADJ", ("near%3:00:00::", "close%5:00:00:near:01")),
            ),
        )
    ]


def test_a_sentence_begins_with_nothing_of_the_one_before(tmp_path: Path) -> None:
    word = '<sentence><wf lemma="ä" pos="X">Ä</wf></sentence>'
    sentences = list(read_wsd(*write(tmp_path, body=SENTENCE + word + word)))
    assert sentences[1:] == [SenseSentence(("Ä",), ("ä",), ("X",), ())] * 2


def test_sentences_come_before_the_file_is_read_to_its_end(tmp_path: Path) -> None:
    sentences = read_wsd(*write(tmp_path, body=f"{SENTENCE}\n<oops/>"))
    assert next(sentences).tokens[0] == "The"
    with pytest.raises(InputError, match="oops"):
        next(sentences)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("</text>", "", 9, r"no XML, damaged or cut short \(mismatched tag\)"),
        ("</text></corpus>", "", 10, r"no XML, damaged or cut short \(no element found\)"),
        ("The</wf>", "R&B</wf>", 4, "no XML, damaged or cut short"),
        ("The</wf>", "&unknown;</wf>", 4, r"no XML, damaged or cut short \(undefined entity\)"),
        ('<sentence id="d0.s0">', "", 4, "<wf> inside no sentence, but expected corpus > text > sentence"),
        ('<sentence id="d0.s0">', "<sentence><sentence>", 3, "<sentence> inside a sentence"),
        ("The</wf>", "<wf/></wf>", 4, "<wf> inside a word"),
        ("<sentence", "<p/><sentence", 3, "<p> inside no sentence"),
        (' lemma="the"', "", 4, "<wf> has no attribute 'lemma'"),
        (' pos="DET"', "", 4, "<wf> has no attribute 'pos'"),
        (' id="d0.s0.t1"', "", 7, "<instance> has no attribute 'id'"),
        (">The<", "> <", 4, "<wf> has no text"),
        ("</sentence>", "so</sentence>", 8, "text 'so' outside of wf and instance"),
        ("</sentence>", "</sentence><sentence>\n</sentence>", 9, "the sentence that ends here has no words"),
        ('id="d0.s0.t1"', 'id="d0.s0.t9"', 7, r"instance 'd0\.s0\.t9' has no line in .*a\.gold\.key\.txt"),
        ('id="d0.s0.t1"', 'id="d0.s0.t0"', 7, r"instance 'd0\.s0\.t0' has no line in .* or comes twice"),
    ],
)
def test_wrong_xml_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    data_path, keys_path = write(tmp_path)
    text = data_path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    data_path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=rf"a\.data\.xml, line {line}: {message}"):
        list(read_wsd(data_path, keys_path))


@pytest.mark.parametrize(
    ("keys", "line", "message"),
    [
        (KEYS + "d0.s0.t2\n", 3, r"found 'd0\.s0\.t2', but expected an instance's id and one or more sense keys"),
        (KEYS + "\nd0.s0.t0 x%1:00:00::\n", 4, r"'d0\.s0\.t0' has a line already \(1\)"),
        (KEYS + "d0.s0.t2 x%1:00:00::\n", 3, r"'d0\.s0\.t2' is no instance of .*a\.data\.xml"),
    ],
)
def test_wrong_keys_are_named_with_their_line(tmp_path: Path, keys: str, line: int, message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.gold\.key\.txt, line {line}: {message}"):
        list(read_wsd(*write(tmp_path, keys=keys)))


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">',
        '<!ENTITY c SYSTEM "file:///etc/hostname">',
        '<!ENTITY % c SYSTEM "file:///etc/hostname"> %c;',
    ],
)
def test_entities_are_refused_before_they_are_used(tmp_path: Path, declaration: str) -> None:
    head = f'<?xml version="1.0"?>\n<!DOCTYPE corpus [{declaration}]>'
    paths = write(tmp_path, head=head, body=SENTENCE.replace(">The<", ">&c;<"))
    with pytest.raises(InputError, match=r"a\.data\.xml, line 2: <!DOCTYPE corpus> is not allowed"):
        list(read_wsd(*paths))


def test_the_index_gives_the_first_sense_of_a_lemma_and_part_of_speech(tmp_path: Path) -> None:
    path = tmp_path / "index.sense"
    path.write_bytes(
        b"near%2:38:00:: 01965464 1 2\r\n"
        b"near%3:00:00:: 00444519 2 9\r\n"
        b"near%5:00:00:warm:00 00444520 1 9\r\n"
        b"near%4:02:00:: 00071000 1 5\r\n"
        b"day%1:28:00:: 15155220 1 0\r\n"
    )
    assert read_sense_index(path) == {
        ("near", "VERB"): "near%2:38:00::",
        ("near", "ADJ"): "near%5:00:00:warm:00",
        ("near", "ADV"): "near%4:02:00::",
        ("day", "NOUN"): "day%1:28:00::",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("near 00444519 1 9", "found 'near 00444519 1 9', but expected a sense key"),
        ("near%3:00:00:: 00444519 1", ".* but expected a sense key, an offset"),
        ("near%6:00:00:: 00444519 1 9", ".* but expected a sense key"),
        ("near%3:00:00:: 00444519 one 9", ".* but expected a sense key"),
        ("", "found ''"),
        ("near%5:00:00:warm:00 00444519 1 9", r"near%5:00:00:warm:00 is a first sense of 'near' \(ADJ\), but near%3:"),
    ],
)
def test_a_wrong_line_of_the_index_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "index.sense"
    path.write_text(f"near%3:00:00:: 00444519 1 9\n{line}\n")
    with pytest.raises(InputError, match=rf"index\.sense, line 2: {message}"):
        read_sense_index(path)


@pytest.fixture(scope="module")
def first_senses(data_dir: Path) -> dict[tuple[str, str], str]:
    return read_sense_index(data_dir / "wsd" / "wordnet3.0.index.sense.xz")


# The first-sense scores that Raganato et al. 2017 publish (WN 1st sense): keys, lemmas and index fit together.
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "num_sentences", "num_instances", "published_score"),
    [("senseval2", 242, 2282, 66.8), ("senseval3", 352, 1850, 66.2), ("semeval2007", 135, 455, 55.2)],
)
def test_published_test_sets_give_the_published_first_sense_scores(
    data_dir: Path,
    first_senses: dict[tuple[str, str], str],
    name: str,
    num_sentences: int,
    num_instances: int,
    published_score: float,
) -> None:
    folder = data_dir / "wsd" / name
    sentences = list(read_wsd(folder / f"{name}.data.xml", folder / f"{name}.gold.key.txt"))
    instances = [instance for sentence in sentences for instance in sentence.instances]
    assert (len(sentences), len(instances)) == (num_sentences, num_instances)
    num_right = sum(first_senses[instance.lemma, instance.pos] in instance.senses for instance in instances)
    assert round(100 * num_right / num_instances, 1) == published_score


@pytest.mark.slow
def test_semcor_is_read_whole(data_dir: Path) -> None:
    sentences = read_wsd(data_dir / "wsd" / "semcor.data.xml.xz", data_dir / "wsd" / "semcor.gold.key.txt.xz")
    first = next(sentences)
    assert first.tokens[:5] == ("The", "Fulton", "County", "Grand", "Jury")
    assert first.instances[0] == SenseInstance("d000.s000.t000", 1, 5, "group", "NOUN", ("group%1:03:00::",))
    counts = [len(first.instances), *(len(sentence.instances) for sentence in sentences)]
    assert (len(counts), sum(counts)) == (37_176, 226_036)
