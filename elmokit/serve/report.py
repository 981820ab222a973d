"""The page with recorded answers as one self-contained file: no server, no network.

The page's own code draws it. Scripts and styles are inline, and a content-security policy names them by their hashes.
"""

import asyncio
import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from starlette.requests import Request

from elmokit.errors import InputError
from elmokit.serve.app import ROUTES, describe
from elmokit.serve.batching import BatchingQueue
from elmokit.serve.failures import RequestError
from elmokit.serve.limits import Limits
from elmokit.serve.loaded import Models
from elmokit.serve.metrics import Metrics
from elmokit.serve.page_files import INDEX, PAGE
from elmokit.serve.routing import encode_json
from elmokit.serve.service import Service

MOST_SENTENCES = 100
NUM_WORDS = 8
FEWEST_OCCURRENCES = 3
SHORTEST_WORD = 4
TOP_K = 10


def make_report(models: Models, sentences: Sequence[str], *, words: Sequence[str] = ()) -> str:
    """Return an HTML page with the sentence, layer and sense views of a text.

    Args:
        models: the loaded models.
        sentences: the sentences of the text, at most 100.
        words: words whose senses are shown; by default the most frequent longer words of the text.
    """
    texts = list(dict.fromkeys(sentence.strip() for sentence in sentences if sentence.strip()))
    if not texts:
        raise InputError("no sentences in the text; expected one per line")
    if len(texts) > MOST_SENTENCES:
        raise InputError(f"{len(texts):,} sentences; a report holds at most {MOST_SENTENCES}, choose some of them")
    chosen = list(words) or _frequent_words(models, texts)
    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook has an event loop of its own in this one
            recorded = thread.submit(lambda: asyncio.run(_record(models, texts, chosen))).result()
    except RequestError as error:
        raise InputError(error.message) from None
    return _build_page(recorded)


def _frequent_words(models: Models, texts: Sequence[str]) -> list[str]:
    counts = Counter(token for text in texts for token in models.embedder.tokenize(text))
    return [
        word
        for word, count in counts.most_common()
        if count >= FEWEST_OCCURRENCES and len(word) >= SHORTEST_WORD and word.isalpha()
    ][:NUM_WORDS]


async def _record(models: Models, texts: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    metrics = Metrics()
    queue = BatchingQueue(batch_tokens=Limits.batch_tokens, metrics=metrics)
    service = Service(models, Limits(max_inputs=MOST_SENTENCES), queue, metrics)
    queue.start()
    try:
        sentences: dict[str, dict[str, Any]] = {text: {} for text in texts}
        for text in texts:
            [sentences[text]["/layers"]] = await _ask(service, "/layers", inputs=[text], encoding_format="base64")
            if models.scorer is not None:
                [sentences[text]["/substitutes"]] = await _ask(service, "/substitutes", inputs=[text], top_k=TOP_K)
        senses = {word: await _ask(service, "/senses", word=word, sentences=list(texts)) for word in words}
    finally:
        queue.close()
    views: dict[str, Any] = {"sentence": {"text": texts[0]}} if models.scorer is not None else {}
    views["layers"] = {"a": texts[0], "b": texts[1] if len(texts) > 1 else ""}
    if words:
        views["senses"] = {"word": words[0], "sentences": ""}
    return {"info": describe(service), "sentences": sentences, "senses": senses, "views": views}


async def _ask(service: Service, path: str, **body: Any) -> Any:
    route = next(route for route in ROUTES if route.path == path)
    request = Request({"type": "http", "headers": [], "path_params": {}})
    answer = await route.handle(service, route.body.model_validate(body), request)
    return orjson.loads(encode_json(answer))


def _build_page(recorded: dict[str, Any]) -> str:
    html = (PAGE / INDEX).read_text("utf-8")
    scripts = "\n".join((PAGE / name).read_text("utf-8") for name in re.findall(r'<script src="page/([^"]+)"', html))
    styles = "\n".join(
        (PAGE / name).read_text("utf-8") for name in re.findall(r'<link rel="stylesheet" href="page/([^"]+)"', html)
    )
    policy = f"default-src 'none'; script-src '{_hash(scripts)}'; style-src '{_hash(styles)}'; base-uri 'none'"
    data = orjson.dumps(recorded).decode().replace("<", "\\u003c")
    html = re.sub(r"<(?:link|script) [^>]*>(?:</script>)?\n", "", html)
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{styles}</style>\n</head>'
    body = f'<script type="application/json" id="recorded">{data}</script>\n<script>{scripts}</script>\n</body>'
    html = html.replace("Runs on this machine; nothing leaves it.", "Made with elmokit report; works offline.")
    return html.replace("</head>", head).replace("</body>", body)


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
