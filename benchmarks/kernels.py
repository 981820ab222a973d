"""Compare the compiled kernels with torch on one thread: a table of times and ratios.

    python benchmarks/kernels.py

Both sides alternate within a round, so drift of the machine affects both. Times are CPU time of the calling thread,
medians over rounds.
"""

import copy
import time
from collections.abc import Callable
from statistics import median

import torch

from elmokit.config import BEGIN_WORD, END_WORD, PAD_CHAR, CharEncoderConfig, LSTMConfig
from elmokit.kernels import library as kernels
from elmokit.kernels.panels import pack_panels
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.lstm import LSTMStack

ROUNDS = 7
STACK_STEPS = 22
PAPER, SMALL = (4096, 512), (1024, 128)  # cells, width of a projection
ROW = "{:38} {:>12} {:>12} {:>8}"


def main() -> None:
    compiled = kernels.load()
    if compiled is None:
        raise SystemExit("no compiled kernels; install elmokit with a C compiler, and unset ELMOKIT_KERNELS")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; kernels {compiled.isa}\n")
    print(ROW.format("", "torch", "kernel", "ratio"))
    with torch.inference_mode():
        for num_cells, width in (PAPER, SMALL):
            for num_rows in (8, 64):
                compare_cells(compiled, num_rows, num_cells)
            for num_outputs, num_inputs in ((4 * num_cells, width), (width, num_cells)):
                compare_products(compiled, num_outputs, num_inputs)
            compare_stacks(num_cells, width)
        compare_char_pool(compiled)


def compare_cells(compiled: kernels.Kernels, num_rows: int, num_cells: int) -> None:
    gates_bG, gates_grad_bG = torch.randn(2, num_rows, 4 * num_cells).sigmoid()
    before_bC, after_bC, squashed_bC, grad_bC, cell_grad_bC = torch.randn(5, num_rows, num_cells)

    def torch_forward() -> None:
        squashed = gates_bG[:, : 3 * num_cells].sigmoid()
        let_in, forget, let_out = squashed.chunk(3, dim=1)
        torch.mul(forget, before_bC, out=after_bC)
        after_bC.addcmul_(let_in, gates_bG[:, 3 * num_cells :].tanh()).clamp_(-3.0, 3.0)
        torch.mul(after_bC.tanh(), let_out, out=squashed_bC)

    def torch_backward() -> None:
        let_in, forget, let_out, candidate = gates_bG.chunk(4, dim=1)
        in_grad, forget_grad, out_grad, candidate_grad = gates_grad_bG.chunk(4, dim=1)
        squashed = after_bC.tanh()
        torch.mul(grad_bC * squashed, let_out * (1 - let_out), out=out_grad)
        cell_grad_bC.addcmul_(grad_bC * let_out, 1 - squashed * squashed)
        cell_grad_bC.masked_fill_(after_bC.abs() >= 3.0, 0.0)
        torch.mul(cell_grad_bC * candidate, let_in * (1 - let_in), out=in_grad)
        torch.mul(cell_grad_bC * before_bC, forget * (1 - forget), out=forget_grad)
        torch.mul(cell_grad_bC * let_in, 1 - candidate * candidate, out=candidate_grad)
        cell_grad_bC.mul_(forget)

    def forward() -> None:
        compiled.cell_forward(gates_bG, before_bC, after_bC, squashed_bC, clip=3.0, keep_gates=False)

    def backward() -> None:
        compiled.cell_backward(grad_bC, gates_bG, after_bC, before_bC, cell_grad_bC, gates_grad_bG, clip=3.0)

    report(f"cell forward, {num_rows} x {num_cells}", torch_forward, forward)
    report(f"cell backward, {num_rows} x {num_cells}", torch_backward, backward)


def compare_products(compiled: kernels.Kernels, num_outputs: int, num_inputs: int) -> None:
    weight_GP = torch.randn(num_outputs, num_inputs)
    packed = pack_panels(compiled, weight_GP)
    for num_rows in (1, 4, 8, 16, 32, 64, 128):
        inputs_bP, out_bG = torch.randn(num_rows, num_inputs), torch.zeros(num_rows, num_outputs)
        shape = f"{num_rows} x {num_inputs} x {num_outputs}"

        def torch_product(out_bG=out_bG, inputs_bP=inputs_bP) -> None:
            out_bG.addmm_(inputs_bP, weight_GP.t())

        def panels(out_bG=out_bG, inputs_bP=inputs_bP) -> None:
            compiled.matmul_panels(out_bG, inputs_bP, packed, accumulate=True)

        report(f"float32 panels, {shape}", torch_product, panels)


def compare_stacks(num_cells: int, width: int) -> None:
    plain = LSTMStack(LSTMConfig(cell_dim=num_cells, proj_dim=width)).requires_grad_(requires_grad=False)
    for precision in ("fp32", "int8"):
        packed = copy.deepcopy(plain)
        packed.pack_weights(precision)
        for num_rows in (1, 8, 64):
            inputs_NP, state = torch.randn(STACK_STEPS * num_rows, width), plain.zero_state(num_rows)
            sizes = [num_rows] * STACK_STEPS

            def by_torch(inputs_NP=inputs_NP, sizes=sizes, state=state) -> None:
                plain.run_layers(inputs_NP, sizes, state)

            def by_kernel(packed=packed, inputs_NP=inputs_NP, sizes=sizes, state=state) -> None:
                packed(inputs_NP, sizes, state)

            report(f"{precision} stack {num_cells}/{width}, {num_rows} x {STACK_STEPS}", by_torch, by_kernel)


def compare_char_pool(compiled: kernels.Kernels, num_words: int = 512) -> None:
    encoder = CharEncoder(CharEncoderConfig(num_highway=0), token_dim=2048)
    convs = [(conv.weight, conv.bias) for conv in encoder.convs]
    tables = kernels.build_char_tables(encoder.char_embedding, convs, activation="relu")
    char_ids_WK = torch.full((num_words, 50), PAD_CHAR)
    for word, length in enumerate(torch.randint(1, 12, (num_words,)).tolist()):
        letters = torch.randint(ord("a"), ord("z") + 1, (length,)) + 1
        char_ids_WK[word, : length + 2] = torch.tensor([BEGIN_WORD, *letters.tolist(), END_WORD])
    report(
        f"characters, {num_words} words of 6 letters",
        lambda: encoder(char_ids_WK),
        lambda: compiled.char_pool(char_ids_WK, tables),
    )


def report(name: str, torch_side: Callable[[], object], kernel_side: Callable[[], object]) -> None:
    times: dict[Callable[[], object], list[float]] = {torch_side: [], kernel_side: []}
    for _ in range(ROUNDS + 1):  # the first round is a warm-up
        for side, taken in times.items():
            start = time.thread_time()
            side()
            taken.append(time.thread_time() - start)
    before, after = (median(taken[1:]) for taken in times.values())
    print(ROW.format(name, f"{before * 1e3:.3f} ms", f"{after * 1e3:.3f} ms", f"{before / after:.1f}x"), flush=True)


if __name__ == "__main__":
    main()
