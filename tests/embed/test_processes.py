"""Embedders in other processes: the same vectors in every one of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from published import PublishedModel

TWO_THREADS = {"OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}
FORKS = 10


def run_program(program: str, *arguments: str | Path, folder: Path, timeout: int = 240) -> str:
    """Run a program in a process of its own, where torch may use two cores; return its output."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=os.environ | TWO_THREADS,
        check=False,
        timeout=timeout,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_processes_go_on_embedding_after_use(published_model: PublishedModel, tmp_path: Path) -> None:
    """In pools, and while other threads embed. Nothing imports torch's compiler unasked."""
    program = """
import multiprocessing, os, sys, threading
from elmokit import Embedder

SENTENCES = [["The", "bank", "closed"], ["Children", "play"] * 20] * 20
FORKS = int(sys.argv[2])
embedder = Embedder.from_pretrained(sys.argv[1])

def embed(_):
    return [layers.tobytes() for layers in embedder.embed_layers(SENTENCES)]

expected = embed(0)
# The compiler and its sympy take longer to import than the model to load.
assert not {"torch._dynamo", "sympy"} & sys.modules.keys()
for _ in range(FORKS):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map_async(embed, range(2)).get(60)
    assert found == [expected, expected]
    print("same in a pool")

stop = threading.Event()

def work(thread):
    number = 0
    while not stop.is_set():
        number += 1
        embedder.embed_layers([[f"word{thread}.{number}.{place}" for place in range(20)]] * 2)

threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for _ in range(FORKS):
    child = os.fork()
    if child == 0:
        os._exit(0 if embed(0) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("same beside threads")
stop.set()
"""
    printed = run_program(program, published_model.options_path.parent, FORKS, folder=tmp_path)
    assert sorted(printed.splitlines()) == ["same beside threads"] * FORKS + ["same in a pool"] * FORKS


@pytest.mark.long
@pytest.mark.parametrize("part", ["forward", pytest.param("training", marks=pytest.mark.slow)])
def test_torch_compile_changes_nothing(published_model: PublishedModel, tmp_path: Path, part: str) -> None:
    """In a process of its own: the compiler takes seconds to import, and a wrong trace could corrupt the heap."""
    program = """
import sys, torch
from elmokit import Elmo
from elmokit.text.chars import pad_sentences

def step(elmo, ids):
    loss = elmo(ids).mixes[0].square().sum()
    loss.backward()
    return loss.detach()

def train(function, elmo, ids):
    elmo.zero_grad()
    return function(elmo, ids), {name: parameter.grad.clone() for name, parameter in elmo.named_parameters()}

frozen = Elmo.from_pretrained(sys.argv[1], dropout=0.0)
trained = Elmo.from_pretrained(sys.argv[1], dropout=0.0, requires_grad=True)
compiled, compiled_step = torch.compile(frozen, backend="eager"), torch.compile(step, backend="eager")
for sentences in ([["The", "bank"], ["x"]], [["Children", "play", "outside"] * 7] * 4):
    ids = torch.from_numpy(pad_sentences(sentences, max_chars=50))
    with torch.no_grad():
        assert torch.equal(compiled(ids).mixes[0], frozen(ids).mixes[0])
    assert torch.equal(compiled(ids).mixes[0], frozen(ids).mixes[0])
    if sys.argv[2] == "forward":
        break  # another shape compiles anew
    (loss, gradients), (found_loss, found) = train(step, trained, ids), train(compiled_step, trained, ids)
    assert torch.equal(found_loss, loss)
    assert all(torch.equal(found[name], gradient) for name, gradient in gradients.items())
print("same")
"""
    printed = run_program(program, published_model.options_path.parent, part, folder=tmp_path)
    assert printed.split() == ["same"]
