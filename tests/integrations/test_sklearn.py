"""ELMo in scikit-learn: pipelines, searches, frames, pickles, and the library's own checks."""

import pickle

import numpy as np
import pytest

from elmokit.errors import InputError

pytestmark = pytest.mark.integration
sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'elmokit[sklearn]'")
pd = pytest.importorskip("pandas", reason="pandas is not installed; requirements/integrations-a.txt has it")

import joblib  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks as checks  # noqa: E402

from elmokit.integrations.sklearn import ElmoTokenVectorizer, ElmoVectorizer  # noqa: E402

TEXTS = ["The river rose.", "A fish swam. It was fast.", "He sold the boat", "she sang"] * 5
LABELS = [0, 1, 0, 1] * 5


def test_vectors_are_the_embedder_s(model, embedder):
    found = ElmoVectorizer(model, layer=1, pooling="max", normalize=True).fit_transform(TEXTS)
    expected = embedder.encode(TEXTS, layer=1, pooling="max", normalize_embeddings=True)
    np.testing.assert_array_equal(found, expected)
    sequences = ElmoTokenVectorizer(model, layer=-1).fit_transform([["a", "fish"], "The river rose."])
    for one, other in zip(sequences, embedder.embed_tokens([["a", "fish"], "The river rose."], layer=-1), strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_shape_of_texts_is_taken(model):
    expected = ElmoVectorizer(model).transform(TEXTS)
    column = pd.Series(TEXTS, index=range(100, 120))
    for texts in (np.array(TEXTS), np.array(TEXTS)[:, None], column, column.to_frame("text"), tuple(TEXTS)):
        np.testing.assert_array_equal(ElmoVectorizer(model).transform(texts), expected)


def test_a_search_over_layers_finds_the_best_and_a_pipeline_predicts(model):
    pipeline = make_pipeline(ElmoVectorizer(model), StandardScaler(), LogisticRegression())
    search = GridSearchCV(pipeline, {"elmovectorizer__layer": [0, 1, "mean"]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ == 1.0
    assert search.predict(TEXTS[:4]).tolist() == LABELS[:4]


def test_frames_keep_their_index_and_columns_have_names(model):
    frame = pd.DataFrame({"text": TEXTS, "length": range(20)}, index=range(50, 70))
    columns = ColumnTransformer([("elmo", ElmoVectorizer(model), "text"), ("rest", "passthrough", ["length"])])
    found = columns.set_output(transform="pandas").fit_transform(frame)
    assert found.columns.tolist() == [*(f"elmo__elmo{number}" for number in range(12)), "rest__length"]
    assert found.index.tolist() == frame.index.tolist()
    by_list = ColumnTransformer([("elmo", ElmoVectorizer(model), ["text"])]).fit_transform(frame)
    np.testing.assert_array_equal(by_list, found.to_numpy()[:, :12])


def test_pickles_hold_settings_not_weights(model, tmp_path):
    vectorizer = ElmoVectorizer(model, layer=1).fit(TEXTS)
    content = pickle.dumps(vectorizer)
    assert len(content) < 1000
    np.testing.assert_array_equal(pickle.loads(content).transform(TEXTS), vectorizer.transform(TEXTS))
    joblib.dump(vectorizer, tmp_path / "vectorizer")
    assert joblib.load(tmp_path / "vectorizer").get_params() == vectorizer.get_params()
    assert clone(vectorizer).get_params() == vectorizer.get_params()


@pytest.mark.parametrize("kind", [ElmoVectorizer, ElmoTokenVectorizer])
@pytest.mark.parametrize(
    "check",
    [
        checks.check_no_attributes_set_in_init,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_estimator_cloneable,
        checks.check_estimator_repr,
        checks.check_parameters_default_constructible,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn_s_checks_that_need_no_numbers(kind, check):
    check(kind.__name__, kind())


def test_input_that_is_no_text_is_named(model):
    with pytest.raises(InputError, match=r"row 1 is nan.*expected a text, fill gaps first"):
        ElmoVectorizer(model).fit(["a", float("nan")])
    with pytest.raises(InputError, match="is one string"):
        ElmoVectorizer(model).transform("one text")
    with pytest.raises(InputError, match=r"texts of shape \(2, 2\); expected one column"):
        ElmoVectorizer(model).transform(np.array([["a", "b"], ["c", "d"]]))
    with pytest.raises(InputError, match="layer 7; expected"):
        ElmoVectorizer(model, layer=7).fit(TEXTS)
