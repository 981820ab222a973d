"""Compare pretraining steps with plain autograd: ratios, tokens per CPU-second, time per part.

    python benchmarks/pretrain.py TEXT [--size NAME] [--rounds 3] [--save FILE]

Both sides compute the same step on the same batch of real text: character encoder over the distinct words, LSTMs in
both directions, sampled softmax, clipping by global norm, Adagrad. The reference is the straightforward implementation:
a loop over time steps under autograd, torch's convolutions, and sparse embedding lookups for the softmax. It also
encodes every distinct word once, and short words without most of their padding. Making batches is not timed, and there
is no dropout. Freed memory is kept between our steps, as in `elmokit pretrain`, and returned between the reference's
steps, which is the default.

Sizes: paper; "paper, 32 rows"; small; "mini, 32 rows"; tiny, a smoke test; all: every one but tiny.
"""

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages, read when torch is imported; for both sides
os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as in `elmokit pretrain`; for both sides

import torch
from gemm import gemm_rate, lstm_flops
from report import Report, Row, gather_facts, judge, spread
from torch import Tensor
from torch.nn import functional
from workload import read_sentences

from elmokit.cli.system import keep_freed_memory
from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.model.bilm import BiLMState
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.directions import direction_threads
from elmokit.model.language_model import LanguageModel
from elmokit.model.lstm import LSTMLayer, LSTMStack, LSTMState
from elmokit.pretrain.batches import DirectionBatch, PretrainBatch, PretrainBatches
from elmokit.pretrain.optimizer import PretrainOptimizer
from elmokit.pretrain.recipe import PretrainSettings
from elmokit.pretrain.step import compute_gradients
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

UNROLL, NUM_NEGATIVES, NUM_WORDS = 20, 8192, 100_000
CLIP, RATE = 10.0, 0.2
NUM_SENTENCES = 8000


@dataclass(frozen=True)
class Size:
    """Shape of a model, number of rows, and goals."""

    config: BiLMConfig
    num_rows: int
    ratio: float | None  # over the reference
    tokens_per_cpu_second: float | None
    gemm_share: float | None  # of the LSTMs


def shape(cell_dim: int, proj_dim: int, num_highway: int) -> BiLMConfig:
    return BiLMConfig(
        char_encoder=CharEncoderConfig(num_highway=num_highway), lstm=LSTMConfig(cell_dim=cell_dim, proj_dim=proj_dim)
    )


SIZES = {
    "paper": Size(shape(4096, 512, 2), 64, 1.5, None, 0.7),
    "paper, 32 rows": Size(shape(4096, 512, 2), 32, None, 84, None),
    "small": Size(shape(1024, 128, 1), 128, 1.3, None, None),
    "mini, 32 rows": Size(shape(512, 64, 2), 32, None, 650, None),
    "tiny": Size(shape(32, 16, 1), 4, None, None, None),  # smoke test
}


class Side:
    """One implementation of a step: its model, its optimizer and its state."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        self.model = LanguageModel.untrained(size.config, NUM_WORDS)
        self.num_rows = size.num_rows
        self.state = self.model.bilm.zero_state(size.num_rows)


class Ours(Side):
    """The package's step."""

    def __init__(self, size: Size, executor: Executor | None) -> None:
        super().__init__(size)
        self.executor = executor
        settings = PretrainSettings(steps=1, clip_norm=CLIP, learning_rate=RATE)
        self.optimizer = PretrainOptimizer(self.model, settings, sampled=True)

    def step(self, batch: PretrainBatch) -> float:
        """Take a training step; return the summed loss."""
        result = compute_gradients(
            self.model,
            batch,
            self.state,
            drop=lambda _: lambda tensor: tensor,
            scale=0.5 / self.num_rows,
            executor=self.executor,
        )
        self.optimizer.step(result.softmax_rows, RATE)
        self.state = result.final
        return (result.forward_loss + result.backward_loss).item()


class Plain(Side):
    """The same step with plain autograd."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        softmax = list(self.model.softmax.parameters())
        self.dense = torch.optim.Adagrad(self.model.bilm.parameters(), lr=RATE, initial_accumulator_value=1.0)
        self.sparse = torch.optim.Adagrad(softmax, lr=RATE, initial_accumulator_value=1.0)

    def step(self, batch: PretrainBatch) -> float:
        """Take a training step; return the summed loss."""
        bilm = self.model.bilm
        self.model.zero_grad()
        tokens_WP = encode_plainly(bilm.char_encoder, batch.char_ids_WC)
        forward, forward_state = self._direction(bilm.forward_lstm, tokens_WP, batch.forward, self.state.forward)
        backward, backward_state = self._direction(bilm.backward_lstm, tokens_WP, batch.backward, self.state.backward)
        loss = forward + backward
        (loss * 0.5 / self.num_rows).backward()
        gradients = [
            parameter.grad.coalesce() if parameter.grad.is_sparse else parameter.grad
            for parameter in self.model.parameters()
        ]
        values = [gradient.values() if gradient.is_sparse else gradient for gradient in gradients]
        norm = torch.stack([value.norm() for value in values]).norm()
        for value in values:
            value.mul_(min(1.0, CLIP / float(norm)))
        for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.dense.step()
        self.sparse.step()
        self.state = BiLMState(forward_state, backward_state)
        return loss.item()

    def _direction(
        self, stack: LSTMStack, tokens_WP: Tensor, batch: DirectionBatch, start: LSTMState
    ) -> tuple[Tensor, LSTMState]:
        steps = list(functional.embedding(batch.words_N, tokens_WP).split(self.num_rows))
        hiddens, cells = [], []
        for index, layer in enumerate(stack.layers):
            hidden_BP, cell_BC = start.hidden_LBP[index], start.cell_LBC[index]
            outputs = []
            for inputs_BP in steps:
                hidden_BP, cell_BC = lstm_step(layer, inputs_BP, hidden_BP, cell_BC)
                outputs.append(hidden_BP + inputs_BP if index else hidden_BP)
            steps = outputs
            hiddens.append(hidden_BP.detach())
            cells.append(cell_BC.detach())
        return self._loss(torch.cat(steps), batch), LSTMState(torch.stack(hiddens), torch.stack(cells))

    def _loss(self, top_NP: Tensor, batch: DirectionBatch) -> Tensor:
        softmax, candidates = self.model.softmax, batch.candidates
        assert candidates is not None

        def rows(ids: Tensor) -> tuple[Tensor, Tensor]:
            weight = functional.embedding(ids, softmax.weight, sparse=True)
            return weight, functional.embedding(ids, softmax.bias[:, None], sparse=False).squeeze(1)

        true_weight, true_bias = rows(batch.targets_N)
        weight, bias = rows(candidates.ids_K)
        true_N = (top_NP * true_weight).sum(dim=1) + true_bias - candidates.log_expected_targets_N
        logits_NK = top_NP @ weight.t() + bias - candidates.log_expected_K
        logits_NK = logits_NK.masked_fill(batch.targets_N[:, None] == candidates.ids_K, -torch.inf)
        together = torch.cat([true_N[:, None], logits_NK], dim=1)
        return functional.cross_entropy(together, torch.zeros_like(batch.targets_N), reduction="sum")


def encode_plainly(encoder: CharEncoder, char_ids_WC: Tensor) -> Tensor:
    vectors_WF = encoder._convolve(char_ids_WC)
    for highway in encoder.highways:
        transform_WF = torch.relu(highway.transform(vectors_WF))
        vectors_WF = torch.lerp(vectors_WF, transform_WF, torch.sigmoid(highway.gate(vectors_WF)))
    return vectors_WF if encoder.projection is None else encoder.projection(vectors_WF)


def lstm_step(layer: LSTMLayer, inputs_BP: Tensor, hidden_BP: Tensor, cell_BC: Tensor) -> tuple[Tensor, Tensor]:
    gates = functional.linear(inputs_BP, layer.input_weight, layer.bias)
    gates = gates + functional.linear(hidden_BP, layer.recurrent_weight)
    let_in, forget, let_out, candidate = gates.chunk(4, dim=1)
    cell_BC = torch.sigmoid(forget + 1) * cell_BC + torch.sigmoid(let_in) * torch.tanh(candidate)
    cell_BC = cell_BC.clamp(-3, 3)
    return functional.linear(torch.sigmoid(let_out) * torch.tanh(cell_BC), layer.projection).clamp(-3, 3), cell_BC


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text, one sentence per line; also .gz, .xz")
    parser.add_argument("--size", choices=["all", *SIZES], default="all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    names = [name for name in SIZES if name != "tiny"] if arguments.size == "all" else [arguments.size]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, direction_threads(torch.device("cpu")) as executor:
        text = Path(folder) / "text"
        text.write_text(
            "".join(" ".join(s) + "\n" for s in islice(read_sentences(arguments.text), NUM_SENTENCES)), "utf-8"
        )
        corpus = prepare_corpus([text], Path(folder) / "corpus", rules=TextRules(tokenized=True))
        filler = (f"filler{number}" for number in range(NUM_WORDS))
        words = [*corpus.word_counts(), *filler]
        vocab = Vocab(["<S>", "</S>", "<UNK>", *words[: NUM_WORDS - 3]])
        for name in names:
            size = SIZES[name]
            batches = PretrainBatches(
                corpus,
                vocab,
                num_rows=size.num_rows,
                unroll_steps=UNROLL,
                num_negatives=NUM_NEGATIVES,
                seed=0,
                rows=range(size.num_rows),
            )
            rows += compare(name, size, batches, arguments.rounds, executor)
    facts = gather_facts(hidden=arguments.text)
    facts["token"] = "one position of one direction; a step has rows x unrolled steps of them"
    report = Report("Pretraining: complete training steps", facts, rows)
    report.print()
    if arguments.save:
        arguments.save.write_text(report.to_markdown(), "utf-8")


def compare(name: str, size: Size, batches: PretrainBatches, rounds: int, executor: Executor | None) -> list[Row]:
    ours, plain = Ours(size, executor), Plain(size)
    first = next(batches)
    losses = ours.step(first), plain.step(first)
    assert abs(losses[0] - losses[1]) < 1e-3 * losses[1], f"the sides disagree: {losses}"
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": []}
    for _ in range(rounds):
        batch = next(batches)
        give_back_memory()
        taken["plain"].append(clock(partial(plain.step, batch)))
        keep_freed_memory()
        ours.step(batch)  # not timed: fills the memory that later steps reuse
        taken["ours"].append(clock(partial(ours.step, batch)))
    tokens = size.num_rows * UNROLL
    wall = {side: median(wall for wall, _ in times) for side, times in taken.items()}
    cpu = {side: [tokens / seconds for _, seconds in times] for side, times in taken.items()}
    ratios = [slow[0] / fast[0] for slow, fast in zip(taken["plain"], taken["ours"], strict=True)]
    label = f"{name}: {size.config.lstm.cell_dim}/{size.config.lstm.proj_dim}, {size.num_rows} x {UNROLL}"
    step = Row(
        label, "tokens/s", f"{tokens / wall['plain']:.0f}", f"{tokens / wall['ours']:.0f}", spread(ratios, "{:.2f}x")
    )
    if size.ratio is not None:
        step = judge(step, f">= {size.ratio}x", met=median(ratios) >= size.ratio)
    per_cpu = Row(label, "tokens per CPU-second", spread(cpu["plain"], "{:.0f}"), spread(cpu["ours"], "{:.0f}"))
    if size.tokens_per_cpu_second is not None:
        goal = size.tokens_per_cpu_second
        per_cpu = judge(per_cpu, f">= {goal:.0f}", met=median(cpu["ours"]) >= goal)
    return [step, per_cpu, *shares(label, size, ours, next(batches), rounds, wall["ours"])]


def give_back_memory() -> None:
    """Set glibc's allocator to the state that it reaches by default with large blocks; elsewhere do nothing."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    for option, value in {-4: 65536, -3: 32 * 2**20, -1: 64 * 2**20}.items():
        if set_option is not None:
            set_option(option, value)


def shares(label: str, size: Size, ours: Ours, batch: PretrainBatch, rounds: int, whole: float) -> list[Row]:
    """Return the time of each part of our step, and the LSTMs' share of the GEMM rate."""
    bilm, executor = ours.model.bilm, ours.executor
    parts = (
        (bilm.forward_lstm, batch.forward, ours.state.forward),
        (bilm.backward_lstm, batch.backward, ours.state.backward),
    )
    tokens_WP = bilm.encode_tokens(batch.char_ids_WC).detach()

    def read(stack: LSTMStack, direction: DirectionBatch, start: LSTMState) -> None:
        inputs = functional.embedding(direction.words_N, tokens_WP).requires_grad_()
        run = stack(inputs, [ours.num_rows] * UNROLL, start)
        run.outputs[-1].backward(torch.ones_like(run.outputs[-1]))

    def lstms() -> None:
        bilm.zero_grad()  # steps do not accumulate gradients
        if executor is None:
            for part in parts:
                read(*part)
        else:
            for future in [executor.submit(read, *part) for part in parts]:
                future.result()

    def encoder() -> None:
        bilm.zero_grad()
        vectors = bilm.encode_tokens(batch.char_ids_WC)
        vectors.backward(torch.ones_like(vectors))

    lstm_seconds = median(clock(lstms)[0] for _ in range(rounds))
    encoder_seconds = median(clock(encoder)[0] for _ in range(rounds))
    rest = whole - lstm_seconds - encoder_seconds
    flops = 3 * lstm_flops(size.config.lstm) * ours.num_rows * UNROLL
    share = flops / lstm_seconds / gemm_rate(size.config.lstm)
    limit = Row(label, "LSTMs, share of the GEMM rate", "", f"{share:.0%}")
    if size.gemm_share is not None:
        limit = judge(limit, f">= {size.gemm_share:.0%}", met=share >= size.gemm_share)
    timings = {"LSTMs": lstm_seconds, "character encoder": encoder_seconds, "softmax, clip, optimizer": rest}
    return [limit, *(Row(label, f"ms, {part}", "", f"{1000 * seconds:.0f}") for part, seconds in timings.items())]


def clock(call: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
