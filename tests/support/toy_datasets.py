"""All data of the paper's tables in their published formats and names, invented and tiny; a biLM, vectors, recipes."""

import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import torch
from toy import toy_model

from elmokit.model.bilm import BiLM
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM

PEOPLE = ("Ada", "Bo", "Cleo", "Dan")
PLACES = ("Oslo", "Paris", "Quito", "Rome")
VERBS = ("saw", "met", "left")
VERDICTS = {"awful": 0, "bad": 1, "plain": 2, "good": 3, "superb": 4}
LABELS = ("entailment", "neutral", "contradiction")

SIZES = {
    "classify": "hidden_dim = 4\nhead_dims = [6, 4]",
    "coref": "hidden_dim = 4\nscorer_dims = [4]\nfeature_dim = 2\nmax_span_width = 2",
    "ner": "hidden_dims = [6, 4]",
    "parse": "hidden_dim = 4\nlabel_dim = 5",
    "snli": "hidden_dim = 4",
    "squad": "hidden_dim = 4",
    "srl": "predicate_dim = 3\nhidden_dim = 4\nnum_layers = 2",
    "sst": "hidden_dim = 4\nhead_dims = [6, 4]",
    "tag": "hidden_dims = [6, 4]",
}
RECIPE = """\
task = "{task}"
[words]
lower = "always"
[elmo]
place = "input"
[model]
{sizes}
[training]
batch_size = {batch_size}
epochs = 2
max_examples = 100
learning_rate = 0.01
"""


def write_home(folder: Path) -> None:
    """Data, recipes, vectors and a biLM, each in its place."""
    write_data(folder / "data")
    write_recipes(folder / "recipes")
    save_toy_bilm(folder / "bilm")


def write_recipes(folder: Path) -> Path:
    """Recipes so small that a run takes a moment."""
    for task, sizes in SIZES.items():
        batch_size = 1 if task == "coref" else 4
        _write(folder / f"{task}.toml", RECIPE.format(task=task, sizes=sizes, batch_size=batch_size))
    return folder


def write_tagged(path: Path, num_sentences: int, *, per_document: int | None = None) -> None:
    """Who went where, in CoNLL's columns and IOB1; a document ends after so many sentences."""
    lines = []
    for number, (person, verb, place) in enumerate(islice(_stories(), num_sentences)):
        if per_document and number % per_document == 0:
            lines += ["-DOCSTART- O", ""]
        lines += [f"{person} I-PER", f"{verb} O", f"{place} I-LOC", ". O", ""]
    _write(path, "\n".join(lines))


def write_labeled(path: Path, num_texts: int) -> None:
    """A verdict as the label of a line about it."""
    chosen = islice(product(("the film was", "it was"), VERDICTS), num_texts)
    _write(path, "".join(f"{verdict}\t{start} {verdict} .\n" for start, verdict in chosen))


def write_brackets(path: Path, num_sentences: int) -> None:
    trees = [
        f"(TOP (S (NP (NNP {person})) (VP (VBD {verb}) (NP (NNP {place}))) (. .)))"
        for person, verb, place in islice(_stories(), num_sentences)
    ]
    _write(path, "\n".join(trees) + "\n")


def write_trees(path: Path, num_sentences: int) -> None:
    words = [
        f"({label} (2 The) ({label} (2 film) ({label} (2 in) ({label} (2 {place}) ({label} {verdict})))))"
        for place, (verdict, label) in product(PLACES, VERDICTS.items())
    ]
    _write(path, "\n".join(words[:num_sentences]) + "\n")


def write_pairs(path: Path, num_pairs: int) -> None:
    lines = []
    for number, (person, verb, place) in enumerate(islice(_stories(), num_pairs)):
        label = LABELS[number % 3]
        end = {"entailment": place, "neutral": "someone", "contradiction": "nobody"}[label]
        pair = {"gold_label": label, "sentence1": f"{person} {verb} {place}.", "sentence2": f"{person} {verb} {end}."}
        lines.append(json.dumps(pair))
    _write(path, "\n".join(lines) + "\n")


def write_questions(path: Path, num_paragraphs: int) -> None:
    paragraphs = []
    for number, (person, verb, place) in enumerate(islice(_stories(), num_paragraphs)):
        context = f"It was late. {person} {verb} {place} at last."
        asked = {"Who was it?": person, "Where was it?": place}
        answers = {question: [{"text": text, "answer_start": context.index(text)}] for question, text in asked.items()}
        qas = [{"id": f"{number} {text}", "question": text, "answers": answers[text]} for text in answers]
        paragraphs.append({"context": context, "qas": qas})
    _write(path, json.dumps({"version": "1.1", "data": [{"title": "tales", "paragraphs": paragraphs}]}))


def write_roles(path: Path, num_sentences: int) -> None:
    lines = ["#begin document (tales); part 000"]
    for person, verb, place in islice(_stories(), num_sentences):
        for number, (token, lemma, role) in enumerate(
            [(person, "-", "(A0*)"), (verb, verb, "(V*)"), (place, "-", "(A1*)"), (".", "-", "*")]
        ):
            frameset = "-" if lemma == "-" else "01"
            lines.append(
                "   ".join(["tales", "0", str(number), token, "NN", "*", lemma, frameset, "-", "-", "*", role, "-"])
            )
        lines.append("")
    _write(path, "\n".join([*lines, "#end document", ""]))


def write_documents(path: Path, num_documents: int) -> None:
    """An archive of tales, in which "she" is who was named before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for number, (person, verb, place) in enumerate(islice(_stories(), num_documents)):
            name = f"tale{number}"
            rows = [
                [(person, "(0)"), (verb, ""), (place, "(1)"), (".", "")],
                [("She", "(0)"), (verb, ""), ("it", "(1)")],
            ]
            lines = [f"#begin document ({name}); part 0"]
            for sentence in rows:
                lines += [
                    "\t".join([name, "0", str(place), token, *["_"] * 8, mention])
                    for place, (token, mention) in enumerate(sentence)
                ]
                lines.append("")
            content = "\n".join([*lines, "#end document", ""]).encode()
            member = tarfile.TarInfo(f"conll/{name}.conll")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_data(folder: Path) -> Path:
    """Everything that the tables read."""
    write_tagged(folder / "ner" / "wikigold.conll.xz", 20, per_document=2)
    for part, size in (("train", 10), ("dev", 4), ("test", 5)):
        write_tagged(folder / "ner" / f"wnut17.{part}.conll.xz", size)
        write_trees(folder / "sst" / f"{part}.txt.xz", size)
        write_labeled(folder / "classify" / f"{part}.tsv", size)
        write_pairs(folder / "snli" / f"snli_1.0_{'train-100k' if part == 'train' else part}.jsonl.xz", size)
        write_brackets(folder / "trees" / f"ewt.{part}.ptb.xz", size)
        write_roles(folder / "srl" / f"ewt-propbank-{part}.conll.xz", size)
        write_tags(folder / "pos" / f"en_ewt-ud-{part}.conllu.xz", size)
    write_questions(folder / "squad" / "train-small.json.xz", 8)
    write_questions(folder / "squad" / "test-small.json.xz", 3)
    write_documents(folder / "coref" / "litbank-conll.tar.xz", 12)
    write_senses(folder / "wsd")
    write_vectors(folder / "glove.txt")
    return folder


def write_vectors(path: Path) -> None:
    words = [*map(str.lower, PEOPLE + PLACES), *VERBS, *VERDICTS, "the", "film", "it", "she", "was", ".", "play"]
    chance = torch.Generator().manual_seed(3)
    rows = torch.randn(len(words), 5, generator=chance).tolist()
    _write(
        path, "".join(f"{word} {' '.join(f'{x:.3f}' for x in row)}\n" for word, row in zip(words, rows, strict=True))
    )


def save_toy_bilm(folder: Path, *, seed: int = 4) -> Path:
    torch.manual_seed(seed)
    config = toy_model()
    save_folder(SavedBiLM(config, dict(BiLM(config).state_dict())), folder)
    return folder


def _stories() -> Iterator[tuple[str, str, str]]:
    return ((person, verb, place) for verb, place, person in product(VERBS, PLACES, PEOPLE))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode()
    path.write_bytes(packed)


PLAYS = (
    ("Chico Ruiz made a spectacular play", "play%1:04:04::"),
    ("Kieffer , the only junior in the group , saw a good play", "play%1:04:04::"),
    ("Olivia De Havilland signed to do a Broadway play", "play%1:10:01::"),
    ("they were actors who had been handed fat roles in a successful play", "play%1:10:01::"),
    ("They play chess", "play%2:33:00::"),
    ("We play chess here", "play%2:33:00::"),
)


def write_senses(folder: Path) -> None:
    """SemCor, four test sets and WordNet's index, of one word."""
    names = ["semcor", "senseval2", "senseval3", "semeval2013", "semeval2015"]
    for name in names:
        rows, keys = ["<corpus>", "<text>"], []
        for number, (text, sense) in enumerate(PLAYS):
            pos = "NOUN" if "%1" in sense else "VERB"
            words = [
                f'<instance id="{number}" lemma="play" pos="{pos}">play</instance>'
                if word == "play"
                else f'<wf lemma="{word.lower()}" pos="X">{word}</wf>'
                for word in text.split()
            ]
            rows += ["<sentence>", *words, "</sentence>"]
            keys.append(f"{number} {sense}")
        place = folder if name == "semcor" else folder / name
        _write(place / f"{name}.data.xml", "\n".join([*rows, "</text>", "</corpus>"]) + "\n")
        _write(place / f"{name}.gold.key.txt", "\n".join(keys) + "\n")
    senses = ("play%1:10:01:: 07007945 1 3", "play%1:04:04:: 00554850 2 2", "play%2:33:00:: 01072949 1 5")
    _write(folder / "wordnet3.0.index.sense.xz", "\n".join(senses) + "\n")


def write_tags(path: Path, num_sentences: int) -> None:
    lines = []
    for person, verb, place in islice(_stories(), num_sentences):
        tokens = [(person, "PROPN", "NNP"), (verb, "VERB", "VBD"), (place, "PROPN", "NNP"), (".", "PUNCT", ".")]
        for number, (token, coarse, tag) in enumerate(tokens, start=1):
            head, relation = ("0", "root") if coarse == "VERB" else ("2", "dep")
            lines.append("\t".join([str(number), token, token, coarse, tag, "_", head, relation, "_", "_"]))
        lines.append("")
    _write(path, "\n".join([*lines, ""]))
