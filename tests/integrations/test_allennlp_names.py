"""Names that old scripts reach into, on the golden model; and small scripts with the same calls, run unchanged."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.integrations.allennlp import (
    DEFAULT_OPTIONS_FILE,
    DEFAULT_WEIGHT_FILE,
    Elmo,
    ELMoCharacterMapper,
    ElmoEmbedder,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    Params,
    Token,
    _ElmoBiLm,
    add_sentence_boundary_token_ids,
    batch_to_ids,
    cached_path,
    install,
    remove_sentence_boundaries,
)
from elmokit.integrations.allennlp_command import main

# One golden word is longer than the model reads, on purpose.
pytestmark = [pytest.mark.filterwarnings("ignore:.*(was|were) cut"), pytest.mark.usefixtures("no_install")]

GOLDEN = Path(__file__).parents[1] / "assets" / "golden"
PAIR = (GOLDEN / "options.json", GOLDEN / "weights.hdf5")
SENTENCES: list[list[str]] = json.loads((GOLDEN / "sentences.json").read_text("utf-8"))
EXPECTED = np.load(GOLDEN / "expected.npz")
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
TOLERANCE = 1e-5


@pytest.fixture
def elmo() -> Elmo:
    return Elmo(*PAIR, 1, dropout=0.0)


def mean(layers: Any) -> Any:
    return np.asarray(layers).mean(axis=0)


def test_stateful_off_starts_every_sentence_from_zero(elmo: Elmo) -> None:
    assert elmo._elmo_lstm._elmo_lstm.stateful
    elmo._elmo_lstm._elmo_lstm.stateful = False
    for row, sentence in enumerate(SENTENCES):
        found = elmo(batch_to_ids([sentence]))["elmo_representations"][0][0]
        np.testing.assert_allclose(found.detach(), mean(EXPECTED[f"reset_{row}"]), atol=TOLERANCE)


def test_carried_states_reset_and_move(elmo: Elmo) -> None:
    lstm = elmo._elmo_lstm._elmo_lstm
    assert lstm._states is None
    first = elmo(batch_to_ids(SENTENCES[:4]))["elmo_representations"][0]
    hidden, cell = lstm._states
    assert hidden.shape == (2, 4, 32)
    assert cell.shape == (2, 4, 128)
    lstm._states = tuple(state.clone() for state in (hidden, cell))
    carried = elmo(batch_to_ids(SENTENCES[4:8]))["elmo_representations"][0]
    length = len(SENTENCES[4])
    np.testing.assert_allclose(carried[0, :length].detach(), mean(EXPECTED["carry_4"]), atol=TOLERANCE)
    lstm.reset_states()
    assert torch.equal(elmo(batch_to_ids(SENTENCES[:4]))["elmo_representations"][0], first)
    assert (lstm.hidden_size, lstm.cell_size, lstm.num_layers, lstm.input_size) == (16, 64, 2, 16)


def test_the_bilm_returns_activations_with_boundaries() -> None:
    bilm = _ElmoBiLm(*PAIR)
    found = bilm(batch_to_ids(SENTENCES[:2]))
    assert len(found["activations"]) == bilm.num_layers == 3
    layers = [remove_sentence_boundaries(layer, found["mask"]) for layer in found["activations"]]
    for row in range(2):
        length = len(SENTENCES[row])
        assert int(layers[0][1][row].sum()) == length
        for layer, expected in zip(layers, EXPECTED[f"reset_{row}"], strict=True):
            np.testing.assert_allclose(layer[0][row, :length].detach(), expected, atol=TOLERANCE)
    token = bilm._token_embedder(batch_to_ids(SENTENCES[:2]))
    both = torch.cat([token["token_embedding"]] * 2, dim=-1)
    assert torch.allclose(both, found["activations"][0], atol=1e-6)
    assert bilm._token_embedder.get_output_dim() == 16
    assert bilm.get_output_dim() == 32


def test_a_given_module_is_shared(elmo: Elmo) -> None:
    shared = Elmo(None, None, 1, dropout=0.0, module=_ElmoBiLm(*PAIR))
    ids = batch_to_ids(SENTENCES[:2])
    assert torch.equal(shared(ids)["elmo_representations"][0], elmo(ids)["elmo_representations"][0])
    with pytest.raises(InputError, match="module is a Linear"):
        Elmo(None, None, 1, module=nn.Linear(1, 1))  # type: ignore[arg-type]


def test_from_params_takes_dicts_and_params(elmo: Elmo) -> None:
    values = {"options_file": str(PAIR[0]), "weight_file": str(PAIR[1]), "num_output_representations": 1}
    ids = batch_to_ids(SENTENCES[:1])
    expected = elmo(ids)["elmo_representations"][0]
    for params in (Params(dict(values)), dict(values)):
        made = Elmo.from_params(params)
        assert torch.equal(made.eval()(ids)["elmo_representations"][0], expected)
        assert len(params) == 0
    narrow = ElmoTokenEmbedder.from_params(
        None, Params({**dict(list(values.items())[:2]), "type": "x", "projection_dim": 4})
    )
    assert narrow.get_output_dim() == 4
    with pytest.raises(ConfigError, match="Elmo has no setting surprise; known are options_file"):
        Elmo.from_params({**values, "surprise": 1})


def test_params_are_taken_out_one_by_one() -> None:
    params = Params({"a": 1, "b": {"c": "true"}, "d": "2.5"})
    assert params.pop_int("a") == 1
    assert params.pop("b").pop_bool("c") is True
    assert params.pop("e", 7) == 7
    with pytest.raises(ConfigError, match="has no setting d"):
        params.assert_empty("Elmo")
    assert params.pop_float("d") == 2.5
    with pytest.raises(ConfigError, match="e is missing"):
        params.pop("e")


def test_one_minus_the_mask_is_the_padding(elmo: Elmo) -> None:
    mask = elmo(batch_to_ids(SENTENCES[:2]))["mask"]
    assert mask.dtype == torch.bool
    inverse = 1 - mask
    assert inverse.dtype == torch.long
    assert torch.equal(inverse, (~mask).long())
    assert torch.equal(mask - 1, -inverse)
    assert torch.equal(1 - mask.unsqueeze(-1)[:, 1:].to("cpu"), inverse[:, 1:, None])
    assert type(mask.float()) is torch.Tensor
    assert torch.equal(1.0 - mask.float(), inverse.float())
    assert torch.equal((mask & mask).long().sum(dim=1), torch.tensor([len(sentence) for sentence in SENTENCES[:2]]))


def test_word_inputs_alone_are_read_from_the_cached_vocabulary(elmo: Elmo) -> None:
    words = ["@@PADDING@@", *dict.fromkeys(word for sentence in SENTENCES[:3] for word in sentence)]
    cached = Elmo(*PAIR, 1, dropout=0.0, vocab_to_cache=words)
    longest = max(map(len, SENTENCES[:3]))
    ids = torch.tensor([[words.index(w) for w in s] + [0] * (longest - len(s)) for s in SENTENCES[:3]])
    found = cached(torch.zeros(3, longest, 50, dtype=torch.long), ids)
    expected = elmo(batch_to_ids(SENTENCES[:3]))
    assert found["elmo_representations"][0].any()
    assert torch.equal(found["elmo_representations"][0], expected["elmo_representations"][0])
    assert torch.equal(found["mask"], expected["mask"])
    with pytest.raises(InputError, match=r"word_inputs has the id 999; expected 0 to"):
        cached(torch.zeros(1, 1, 50, dtype=torch.long), torch.tensor([[999]]))


def test_the_embedder_shares_its_state_with_elmo_bilm() -> None:
    embedder = ElmoEmbedder(*PAIR)
    first = embedder.embed_sentence(SENTENCES[0])
    assert embedder.elmo_bilm._elmo_lstm._states is not None
    assert not np.array_equal(embedder.embed_sentence(SENTENCES[0]), first)
    embedder.elmo_bilm._elmo_lstm.stateful = False
    np.testing.assert_allclose(embedder.embed_sentence(SENTENCES[0]), EXPECTED["reset_0"], atol=TOLERANCE)
    assert embedder.indexer.tokens_to_indices(["a"], None, "x")["x"][0] == batch_to_ids([["a"]])[0, 0].tolist()
    assert embedder.elmo_bilm.get_output_dim() == 32


def test_state_dicts_have_the_old_names_and_load_again(elmo: Elmo) -> None:
    saved = elmo.state_dict()
    assert "_elmo_lstm._token_embedder._char_embedding_weights" in saved
    assert "_elmo_lstm._elmo_lstm.forward_layer_0.input_linearity.weight" in saved
    assert not any("bilm" in name for name in saved)
    other = Elmo(*PAIR, 1, dropout=0.0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(saved)
    ids = batch_to_ids(SENTENCES[:2])
    found, expected = (one(ids)["elmo_representations"][0] for one in (other, elmo))
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=0, atol=1e-6)
    earlier = {f"bilm.{name}": value for name, value in elmo.bilm.state_dict().items()}
    earlier |= {name: value for name, value in saved.items() if name.startswith("scalar_mix")}
    other.load_state_dict(earlier)


def test_the_mapper_and_the_indexer_have_allennlps_ids() -> None:
    mapper = ELMoCharacterMapper({"<MASK>": 300})
    assert mapper.convert_word_to_char_ids("<MASK>")[:4] == [259, 301, 260, 261]
    assert mapper.convert_word_to_char_ids("é")[:5] == [259, 196, 170, 260, 261]
    assert ELMoCharacterMapper.beginning_of_sentence_characters[:4] == [258, 256, 259, 260]
    assert len(ELMoCharacterMapper.end_of_sentence_characters) == ELMoCharacterMapper.max_word_length == 50
    indexer = ELMoTokenCharactersIndexer()
    ids = indexer.tokens_to_indices([Token("a"), "b"], None, "elmo")
    assert ids["elmo"] == batch_to_ids([["a", "b"]])[0].tolist()
    assert indexer.pad_token_sequence(ids, {"elmo": 3})["elmo"][2] == [0] * 50
    with pytest.raises(InputError, match="a token is 3; expected a string"):
        indexer.tokens_to_indices([3])


def test_boundaries_are_added_and_removed() -> None:
    tensor, mask = torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]])
    bounded, bounded_mask = add_sentence_boundary_token_ids(tensor, mask, 9, 10)
    assert bounded.tolist() == [[9, 5, 6, 7, 10], [9, 8, 10, 0, 0]]
    assert bounded_mask.long().tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    vectors = bounded[..., None].float()
    cut, cut_mask = remove_sentence_boundaries(vectors, bounded_mask)
    assert cut[..., 0].tolist() == tensor.tolist()
    assert cut_mask.long().tolist() == mask.tolist()


def test_install_registers_every_module_and_respects_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install()
    assert install()  # again, nothing happens
    import allennlp.modules.elmo  # type: ignore[import-not-found]

    assert allennlp.modules.elmo.Elmo is Elmo
    with pytest.raises(ModuleNotFoundError, match=r"allennlp\.models"):
        __import__("allennlp.models")
    monkeypatch.setitem(sys.modules, "allennlp", type(sys)("allennlp"))
    assert not install()


def test_addresses_are_found_in_the_folder_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMOKIT_MODELS", raising=False)
    with pytest.raises(WeightsError, match=r"is the address .*Put elmo_2x4096.*install\(models=FOLDER\)"):
        ElmoEmbedder()
    monkeypatch.setenv("ELMOKIT_MODELS", str(tmp_path))
    with pytest.raises(WeightsError, match="no such file; expected the file of"):
        cached_path(DEFAULT_WEIGHT_FILE)
    for address, path in ((DEFAULT_OPTIONS_FILE, PAIR[0]), (DEFAULT_WEIGHT_FILE, PAIR[1])):
        shutil.copy(path, tmp_path / address.rpartition("/")[2])
    assert ElmoEmbedder().embed_sentence(["a"]).shape == (3, 1, 32)
    assert cached_path("some/path") == "some/path"


def run(*arguments: str | Path) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert main([str(argument) for argument in arguments]) == 0
    return stream.getvalue().strip()


SAYS = {
    "cached_vocabulary": "True True",
    "default_files": "[3, 3]",
    "embed_text_file": "(2, 32) [('Children play', '1'), ('The bank closed .', '0')]",
    "from_params": "32 1 [[1]]",
    "lower_level": "3 (3, 2, 3, 32) 16",
    "protein_vectors": "(32,)\n(32,)",
    "sentence_vectors": "(32,)",
    "stateless": "True",
    "token_embedder": "(1, 2, 5) 260",
    "token_ids_module": "2 (2, 3, 32) 1",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_old_scripts_run_unchanged(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_MODELS", str(tmp_path))
    for address, path in ((DEFAULT_OPTIONS_FILE, PAIR[0]), (DEFAULT_WEIGHT_FILE, PAIR[1])):
        shutil.copy(path, tmp_path / address.rpartition("/")[2])
    assert run(script, *PAIR, tmp_path / "text") == SAYS[script.stem]


def test_there_are_ten_scripts() -> None:
    assert len(SCRIPTS) == len(SAYS) == 10


@pytest.mark.parametrize(("flag", "shape"), [("--all", (3, 2, 32)), ("--top", (2, 32)), ("--average", (2, 32))])
def test_the_elmo_command_writes_the_old_layout(tmp_path: Path, flag: str, shape: tuple[int, ...]) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("The bank\nplay\n", "utf-8")
    files = ("--options-file", PAIR[0], "--weight-file", PAIR[1])
    run("elmo", text, output, flag, *files, "--batch-size", "1", "--cuda-device", "-1")
    with h5py.File(output) as found:
        assert set(found) == {"0", "1", "sentence_to_index"}
        assert found["0"].shape == shape
        assert json.loads(found["sentence_to_index"][0]) == {"The bank": "0", "play": "1"}
    run("elmo", text, output, flag, *files, "--use-sentence-keys")
    with h5py.File(output) as found:
        assert set(found) == {"The bank", "play"}


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--options-file", str(PAIR[0]), "--weight-file", str(PAIR[1])]
    for arguments, code, message in (
        (["absent.py"], 1, "absent.py: no such script"),
        (["elmo", str(tmp_path / "absent"), "out", "--all", *files], 1, "expected a file of tokenized lines"),
        ([], 2, "usage: "),
    ):
        assert main(arguments) == code
        assert message in capsys.readouterr().err
    assert main(["--help"]) == 0
