"""A report is one file that needs nothing else."""

import base64
import hashlib
import json
import re

import pytest
from live_server import SENTENCES, toy_models

from elmokit.errors import InputError
from elmokit.serve.report import MOST_SENTENCES, make_report

MODELS = toy_models()


def test_a_report_holds_all_that_it_shows():
    html = make_report(MODELS, [*SENTENCES, "", SENTENCES[0]], words=["boat"])
    assert not re.search(r"<link|<script src|@import|url\(", html)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    for tag in ("script", "style"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    recorded = json.loads(re.search(r'id="recorded">(.*?)</script>', html, re.DOTALL)[1])
    assert list(recorded["sentences"]) == SENTENCES
    places = recorded["sentences"][SENTENCES[1]]["/substitutes"]["places"]
    expected = MODELS.scorer.predict([SENTENCES[1]], top_k=1)[0]
    assert [place["both_logprob"] for place in places] == pytest.approx(
        [one.both_logprob for one in expected], abs=1e-5
    )
    assert recorded["senses"]["boat"]["num_occurrences"] == 3


def test_texts_cannot_end_the_script():
    html = make_report(MODELS, ["a </script><b>bold</b> <!-- word"])
    assert "</script><b>" not in html
    assert "<!-- word" not in html


def test_frequent_words_are_chosen():
    html = make_report(MODELS, SENTENCES)
    recorded = json.loads(re.search(r'id="recorded">(.*?)</script>', html, re.DOTALL)[1])
    assert "river" in recorded["senses"]
    assert "the" not in recorded["senses"]


@pytest.mark.parametrize(
    ("sentences", "words", "says"),
    [
        ([" "], [], "no sentences"),
        ([f"a {k}" for k in range(MOST_SENTENCES + 1)], [], "at most"),
        (["a"], ["unheard"], "not a token"),
    ],
)
def test_texts_that_fit_no_report_are_rejected(sentences, words, says):
    with pytest.raises(InputError, match=says):
        make_report(MODELS, sentences, words=words)
