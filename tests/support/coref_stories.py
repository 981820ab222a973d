"""Invented documents for the tests of coreference: stories of people and animals, mentions in brackets."""

from collections import defaultdict

import numpy as np

from elmokit.readers.conll2012 import Document, Mention, Sentence
from elmokit.tasks.coref_documents import tidy_clusters


def story(*sentences: str, name: str = "story", part: int = 0, speakers: tuple[str, ...] = ()) -> Document:
    """A document of sentences such as ``[1 Ann ] lost [2 [1 her ] hat ] .``; mentions of one number are one cluster."""
    made, clusters = [], defaultdict(list)
    for number, marked in enumerate(sentences):
        tokens: list[str] = []
        opened: list[tuple[str, int]] = []
        for word in marked.split():
            if word.startswith("["):
                opened.append((word[1:], len(tokens)))
            elif word == "]":
                cluster, start = opened.pop()
                clusters[cluster].append(Mention(number, start, len(tokens)))
            else:
                tokens.append(word)
        speaker = speakers[number] if speakers else None
        made.append(Sentence(tuple(tokens), (speaker,) * len(tokens), None, ()))
    return Document(name, part, tuple(made), tidy_clusters(clusters.values()))


def stories(num_stories: int, *, seed: int = 1, of_names: bool = False) -> list[Document]:
    """A woman, a man and an animal meet; later sentences say only "she", "he", "it", or "the dog" for a dog.

    ``of_names``: the animal has one, so that no mention has two words.
    """
    chance = np.random.default_rng(seed)
    made = []
    for number in range(num_stories):
        woman, man = chance.choice(["ann", "eve", "sue"]), chance.choice(["ben", "dan", "tom"])
        animal = chance.choice(["rex", "max", "pip"] if of_names else ["dog", "cat", "cow"])
        first, again = (animal, animal) if of_names else (f"a {animal}", f"the {animal}")
        later = [
            "[w she ] saw [a it ]",
            f"[m he ] fed [a {again} ]",
            "[w she ] liked [m him ]",
            f"[a {again} ] slept and [m he ] left [w her ]",
        ]
        chosen = [later[place] for place in chance.permutation(len(later))[:3]]
        made.append(story(f"[w {woman} ] met [m {man} ]", f"[a {first} ] came to [w her ]", *chosen, name=f"s{number}"))
    return made


def as_conll(document: Document) -> str:
    """A document in CoNLL-2012's columns."""
    lines = [f"#begin document ({document.name}); part {document.part:03d}"]
    for number, sentence in enumerate(document.sentences):
        marks = defaultdict(list)
        for cluster, mentions in enumerate(document.clusters):
            for mention in mentions:
                if mention.sentence == number and mention.end == mention.start + 1:
                    marks[mention.start].append(f"({cluster})")
                elif mention.sentence == number:
                    marks[mention.start].append(f"({cluster}")
                    marks[mention.end - 1].append(f"{cluster})")
        for place, (token, speaker) in enumerate(zip(sentence.tokens, sentence.speakers, strict=True)):
            last = "|".join(marks[place]) or "-"
            columns = [document.name, str(document.part), str(place), token, *"-----", speaker or "-", "*", last]
            lines.append("\t".join(columns))
        lines.append("")
    return "\n".join([*lines, "#end document", ""])
