"""Parquet files for Embedding Atlas: rows, vectors and coordinates."""

import numpy as np
import pytest

from elmokit.errors import InputError

pytestmark = pytest.mark.integration
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install 'elmokit[atlas]'")

from elmokit.integrations.atlas import export_texts, export_tokens  # noqa: E402

TEXTS = ["A fish swam.", "The river rose.", "the boat sank"]


def test_texts_have_one_row_each(embedder, tmp_path):
    assert export_texts(embedder, TEXTS, tmp_path / "texts.parquet", layer=1) == 3
    table = parquet.read_table(tmp_path / "texts.parquet").to_pydict()
    assert list(table) == ["id", "text", "projection_x", "projection_y", "vector"]
    assert (table["id"], table["text"]) == ([0, 1, 2], TEXTS)
    vectors_ND = embedder.encode(TEXTS, layer=1)
    np.testing.assert_array_equal(np.array(table["vector"], dtype=np.float32), vectors_ND)
    points_N2 = np.stack([table["projection_x"], table["projection_y"]], axis=1)
    # Three points lie in a plane: the two components keep all distances.
    distances = [np.linalg.norm(vectors_ND[0] - vectors_ND[1]), np.linalg.norm(vectors_ND[1] - vectors_ND[2])]
    found = [np.linalg.norm(points_N2[0] - points_N2[1]), np.linalg.norm(points_N2[1] - points_N2[2])]
    np.testing.assert_allclose(found, distances, rtol=1e-5)


def test_tokens_have_their_place_and_sentence(embedder, tmp_path):
    assert export_tokens(embedder, TEXTS, tmp_path / "tokens.parquet", words=["fish", "boat"]) == 2
    table = parquet.read_table(tmp_path / "tokens.parquet").to_pydict()
    assert table["token"] == ["fish", "boat"]
    assert table["text"] == ["A fish swam .", "the boat sank"]
    assert (table["sentence"], table["position"]) == ([0, 2], [1, 1])
    np.testing.assert_array_equal(
        np.array(table["vector"][0], dtype=np.float32), embedder.embed_tokens(TEXTS, layer=-1)[0][1]
    )


def test_no_rows_leave_no_file(embedder, tmp_path):
    with pytest.raises(InputError, match="no rows to export"):
        export_tokens(embedder, TEXTS, tmp_path / "none.parquet", words=["whale"])
    assert not list(tmp_path.iterdir())
