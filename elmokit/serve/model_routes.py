"""Routes that only a biLM has: all layers, log-probabilities, substitutes, and task models.

Shapes: L layers, T tokens, D width.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import Request
from safetensors.numpy import save as save_tensors

from elmokit.embed.picking import Vectors
from elmokit.score.results import Candidate, Place, SentenceScore
from elmokit.serve.answers import LayersOfSentence, ScoredSentence, SubstitutesOfSentence, TaskAnswer
from elmokit.serve.bodies import Layers, Sentences, Substitutes, TaskInputs
from elmokit.serve.embedding_routes import compute_layers, encode_base64, read_sentences
from elmokit.serve.failures import RequestError
from elmokit.serve.routing import SAFETENSORS, Encoded, Route, accepts
from elmokit.serve.service import Service
from elmokit.serve.texts import LocatedSentence, as_list, check_answer_size, check_number, locate_sentences
from elmokit.tasks.task_model import read_typed
from elmokit.text.rules import TextRules


async def _layers(service: Service, body: Layers, request: Request) -> Any:
    embedder = service.models.embedder
    sentences = await read_sentences(service, body.inputs)
    num_tokens = sum(len(one.tokens) for one in sentences)
    check_answer_size(num_tokens, embedder.num_layers * embedder.width, service.limits)
    found = await compute_layers(service, sentences, range(embedder.num_layers))
    if accepts(request, SAFETENSORS):
        return Encoded(_to_safetensors(sentences, found, body.dtype), SAFETENSORS)
    return [
        {
            "tokens": one.tokens,
            "offsets": one.offsets,
            "shape": layers_LTD.shape,
            "dtype": body.dtype if body.encoding_format == "base64" else "float32",
            "layers": (
                encode_base64(layers_LTD.astype(body.dtype)) if body.encoding_format == "base64" else layers_LTD
            ),
        }
        for one, layers_LTD in zip(sentences, found, strict=True)
    ]


def _to_safetensors(sentences: Sequence[LocatedSentence], found: list[Vectors], dtype: str) -> bytes:
    tensors = {str(index): np.ascontiguousarray(one.astype(dtype)) for index, one in enumerate(found)}
    tokens = [one.tokens for one in sentences]
    return save_tensors(tensors, metadata={"tokens": json.dumps(tokens, ensure_ascii=False)})


async def _score(service: Service, body: Sentences, _: Request) -> Any:
    _check_can_score(service)
    sentences = await read_sentences(service, body.inputs)
    scores = await service.queue.compute(service.models.run_scores, *_tokens_and_sizes(sentences))
    return [
        {**_describe_score(score), "offsets": sentence.offsets}
        for sentence, score in zip(sentences, scores, strict=True)
    ]


async def _substitutes(service: Service, body: Substitutes, _: Request) -> Any:
    _check_can_score(service)
    models = service.models
    sentences = await read_sentences(service, body.inputs)
    tokens, sizes = _tokens_and_sizes(sentences)
    scores = await service.queue.compute(models.run_scores, tokens, sizes)
    places = await service.queue.compute(models.run_places(body.top_k), tokens, sizes)
    return [
        {"tokens": one.tokens, "offsets": one.offsets, "places": _describe_places(score, found)}
        for one, score, found in zip(sentences, scores, places, strict=True)
    ]


async def _task(service: Service, body: TaskInputs, request: Request) -> Any:
    name = request.path_params["name"]
    if name not in service.models.tasks:
        known = ", ".join(service.models.tasks) or "none; start the server with --task NAME=FOLDER"
        raise RequestError(404, "not_found", f"no task {name!r}; loaded: {known}")
    model, texts = service.models.tasks[name], as_list(body.inputs)
    check_number(texts, service.limits.max_inputs)
    await service.read_texts(locate_sentences, texts)  # for its checks
    rules = TextRules(language=service.language)
    read = [(index, one) for index, text in enumerate(texts) for one in read_typed(model.task, str(text), rules)]
    examples = [example for _, example in read]
    sizes = [sum(len(tokens) for column in model.task.sequences(example) for tokens in column) for example in examples]
    predictions = await service.queue.compute(service.models.run_task(name), examples, sizes)
    return [
        {
            "input": index,
            "shown": model.task.show(example, prediction),
            "prediction": model.task.to_json(example, prediction),
        }
        for (index, example), prediction in zip(read, predictions, strict=True)
    ]


def _check_can_score(service: Service) -> None:
    if service.models.scorer is None:
        raise RequestError(
            404,
            "not_found",
            f"model {service.models.name!r} has no output layer, so it can embed but not score; "
            "published weights never have one: `elmokit finetune` trains one on text",
        )


def _tokens_and_sizes(sentences: Sequence[LocatedSentence]) -> tuple[list[tuple[str, ...]], list[int]]:
    return [one.tokens for one in sentences], [len(one.tokens) + 2 for one in sentences]


def _describe_score(score: SentenceScore) -> dict[str, Any]:
    return {
        "tokens": score.tokens,
        "unknown": score.unknown.tolist(),
        "forward_logprobs": score.forward_logprobs,
        "backward_logprobs": score.backward_logprobs,
        "end_logprob": score.end_logprob,
        "start_logprob": score.start_logprob,
        "forward_total": score.forward_total,
        "backward_total": score.backward_total,
        "forward_perplexity": _finite(score.forward_perplexity),
        "backward_perplexity": _finite(score.backward_perplexity),
        "perplexity": _finite(score.perplexity),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _describe_places(score: SentenceScore, places: Sequence[Place]) -> list[dict[str, Any]]:
    def words(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        return [{"word": one.word, "logprob": one.logprob} for one in candidates]

    return [
        {
            "token": place.token,
            "unknown": bool(score.unknown[row]),
            "forward_logprob": float(score.forward_logprobs[row]),
            "backward_logprob": float(score.backward_logprobs[row]),
            "both_logprob": place.both_logprob,
            "forward": words(place.forward),
            "backward": words(place.backward),
            "both": words(place.both),
        }
        for row, place in enumerate(places)
    ]


def _scores_to_text(scores: list[dict[str, Any]]) -> str:
    rows = ["perplexity\tforward\tbackward\ttext"]
    rows += [
        f"{one['perplexity'] or math.inf:.4g}\t{one['forward_total']:.4f}\t{one['backward_total']:.4f}\t"
        + " ".join(one["tokens"])
        for one in scores
    ]
    return "\n".join(rows) + "\n"


def _substitutes_to_text(sentences: list[dict[str, Any]]) -> str:
    blocks = []
    for sentence in sentences:
        rows = (
            f"{place['token']}\t" + " ".join(f"{one['word']} {math.exp(one['logprob']):.3f}" for one in place["both"])
            for place in sentence["places"]
        )
        blocks.append("\n".join(rows) + "\n")
    return "\n".join(blocks)


def _task_to_text(answers: list[dict[str, Any]]) -> str:
    return "".join(f"{one['shown']}\n" for one in answers)


NO_SOFTMAX = "The model has no output layer."
ROUTES = (
    Route(
        "/layers",
        Layers,
        list[LayersOfSentence],
        _layers,
        "Return all layers of every token.",
        media_types=(SAFETENSORS,),
    ),
    Route(
        "/score",
        Sentences,
        list[ScoredSentence],
        _score,
        "Return the log-probability of every token from both sides.",
        _scores_to_text,
        not_found=NO_SOFTMAX,
    ),
    Route(
        "/substitutes",
        Substitutes,
        list[SubstitutesOfSentence],
        _substitutes,
        "Return the likeliest words in the place of every token.",
        _substitutes_to_text,
        not_found=NO_SOFTMAX,
    ),
    Route(
        "/tasks/{name}",
        TaskInputs,
        list[TaskAnswer],
        _task,
        "Return the predictions of a task model.",
        _task_to_text,
        not_found="No such task is loaded.",
    ),
)
