"""Training batches against the streams of text they are made from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from toy import toy_corpus

from elmokit.pretrain.batches import DirectionBatch, PretrainBatch, PretrainBatches
from elmokit.pretrain.negatives import draw_negatives
from elmokit.text.corpus import Corpus
from elmokit.text.streams import RowStreams
from elmokit.text.vocab import Vocab

NUM_ROWS, UNROLL = 4, 5


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return toy_corpus(tmp_path)


@pytest.fixture
def vocab(corpus: Corpus) -> Vocab:
    return Vocab.from_counts(corpus.word_counts(), min_count=2)  # leaves many unknown


def make(corpus: Corpus, vocab: Vocab, *, rows: range = range(NUM_ROWS), negatives: int | None = 7) -> PretrainBatches:
    return PretrainBatches(
        corpus, vocab, num_rows=NUM_ROWS, unroll_steps=UNROLL, num_negatives=negatives, seed=5, rows=rows
    )


def directions(batch: PretrainBatch) -> dict[str, DirectionBatch]:
    return {"forward": batch.forward, "backward": batch.backward}


def take(batches: PretrainBatches, count: int) -> list[PretrainBatch]:
    return [next(batches) for _ in range(count)]


def test_words_and_targets_are_those_of_the_streams_step_by_step(corpus: Corpus, vocab: Vocab) -> None:
    streams = {
        name: RowStreams(corpus, direction=name, num_rows=NUM_ROWS, unroll_steps=UNROLL, seed=5)
        for name in ("forward", "backward")
    }
    for number, batch in enumerate(take(make(corpus, vocab), 9)):
        assert batch.step == number
        assert len(batch.char_ids_WC.unique(dim=0)) == len(batch.char_ids_WC)
        for name, part in directions(batch).items():
            text = next(streams[name])
            for position in range(UNROLL * NUM_ROWS):
                step, row = divmod(position, NUM_ROWS)
                spelling = corpus.char_ids(text.input_ids_RU[row, step])
                assert batch.char_ids_WC[part.words_N[position]].tolist() == spelling.tolist()
                assert part.targets_N[position] == vocab.id(corpus.word(int(text.target_ids_RU[row, step])))


def test_unknown_targets_are_one_word_but_inputs_keep_their_spelling(corpus: Corpus, vocab: Vocab) -> None:
    batches = take(make(corpus, vocab), 9)
    assert any(vocab.unk_id in batch.forward.targets_N for batch in batches)
    assert max(len(batch.char_ids_WC) for batch in batches) > len(vocab)


def test_negatives_are_drawn_apart_for_each_direction_and_step(corpus: Corpus, vocab: Vocab) -> None:
    drawn = [
        part.candidates.ids_K.tolist() for batch in take(make(corpus, vocab), 4) for part in directions(batch).values()
    ]
    assert len({tuple(ids) for ids in drawn}) == len(drawn)


def test_expected_counts_are_those_of_the_draw(corpus: Corpus, vocab: Vocab) -> None:
    batch = take(make(corpus, vocab), 3)[2]
    drawn = draw_negatives(7, num_words=len(vocab), key=(5, 2, 1))
    candidates = batch.backward.candidates
    assert candidates.ids_K.tolist() == drawn.ids.tolist()
    np.testing.assert_allclose(candidates.log_expected_K, drawn.log_expected(drawn.ids), rtol=1e-6)
    expected = drawn.log_expected(batch.backward.targets_N.numpy())
    np.testing.assert_allclose(candidates.log_expected_targets_N, expected, rtol=1e-6)


def test_a_full_softmax_draws_nothing(corpus: Corpus, vocab: Vocab) -> None:
    batch = next(make(corpus, vocab, negatives=None))
    assert batch.forward.candidates is None
    assert batch.forward.rows is None


def test_processes_share_out_the_rows_of_one_batch(corpus: Corpus, vocab: Vocab) -> None:
    whole = take(make(corpus, vocab), 6)
    for rows in (range(1), range(1, 4)):
        for all_of_it, part_of_it in zip(whole, take(make(corpus, vocab, rows=rows), 6), strict=True):
            for name, all_rows in directions(all_of_it).items():
                mine = directions(part_of_it)[name]

                def pick(values: torch.Tensor, rows: range = rows) -> torch.Tensor:
                    return values.view(UNROLL, NUM_ROWS, *values.shape[1:])[:, rows.start : rows.stop].flatten(0, 1)

                assert torch.equal(mine.targets_N, pick(all_rows.targets_N))
                spelled = all_of_it.char_ids_WC[all_rows.words_N]
                assert torch.equal(part_of_it.char_ids_WC[mine.words_N], pick(spelled))
                assert torch.equal(mine.candidates.ids_K, all_rows.candidates.ids_K)
                # Every process knows every row of the softmax that gets a gradient in any of them.
                assert torch.equal(mine.rows, all_rows.rows)
                assert mine.rows.tolist() == sorted({*all_rows.targets_N.tolist(), *mine.candidates.ids_K.tolist()})


def test_batches_resume_from_their_cursors(corpus: Corpus, vocab: Vocab) -> None:
    batches = make(corpus, vocab)
    take(batches, 5)
    cursors = batches.cursors()
    expected = take(batches, 4)
    other = make(corpus, vocab)
    other.resume(cursors)
    for left, right in zip(take(other, 4), expected, strict=True):
        assert left.step == right.step
        assert torch.equal(left.char_ids_WC, right.char_ids_WC)
        assert torch.equal(left.backward.words_N, right.backward.words_N)
        assert torch.equal(left.forward.candidates.ids_K, right.forward.candidates.ids_K)


def test_forward_and_backward_read_different_sentences(corpus: Corpus, vocab: Vocab) -> None:
    batch = next(make(corpus, vocab))
    first_words = [part.words_N.view(UNROLL, NUM_ROWS)[1] for part in directions(batch).values()]
    assert batch.char_ids_WC[first_words[0]].tolist() != batch.char_ids_WC[first_words[1]].tolist()
