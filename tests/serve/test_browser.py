"""A browser clicks through every view of the page."""

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from live_server import SENTENCES, Client, serving, toy_models
from task_answers import TYPED, answer_of

from elmokit.serve.report import make_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium is installed; on Debian: apt install chromium"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(toy_models()) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=[*FLAGS.split(), "--no-first-run"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Open a page that must log no error."""
    errors: list[str] = []
    opened = browser.new_page(viewport={"width": 1100, "height": 800}, reduced_motion="reduce")
    opened.set_default_timeout(10_000)
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert errors == []


def run_axe(page: Any) -> None:
    """Fail on serious problems for people with disabilities.

    The page must be opened with ``reduced_motion``: colors in transition have too little contrast.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page.wait_for_selector(".waiting", state="detached")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.fixture(params=[pytest.param(False, id="clicks"), pytest.param(True, id="axe", marks=pytest.mark.slow)])
def check_accessible(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Return `run_axe` in the slow tests; everyday it checks every view as it is opened, on the phone."""
    return run_axe if request.param else lambda _page: None


def test_sentence_shows_substitutes_and_restores_its_address(page, client, check_accessible):
    page.goto(client.url)
    page.fill("#text", SENTENCES[0])
    page.click(".go")
    page.wait_for_selector(".token >> text=river")
    page.wait_for_selector(".waiting", state="detached")  # until then tokens may move below the pointer
    page.click(".token >> text=river")
    page.wait_for_selector("text=In the place of “river”")
    assert page.locator(".ranking").count() == 3
    page.click("label:has-text('From the left')")
    check_accessible(page)
    address = page.url
    assert "side=forward" in address
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("text=In the place of “river”")
    assert page.input_value("#text") == SENTENCES[0]
    word = page.locator(".ranking button").first
    replaced = word.locator("span").first.inner_text()
    word.click()
    page.wait_for_selector(f"text=In the place of “{replaced}”")


def test_tokens_can_be_reached_by_keyboard(page, client):
    page.goto(f"{client.url}/#sentence?text=the+old+man")
    page.locator(".token").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=In the place of “old”")


def test_layers_change_with_the_slider(page, client, check_accessible):
    page.goto(f"{client.url}/#layers?a=the+old+boat&b=the+red+boat&layer=0")
    cell = page.locator(".heat tbody tr").nth(2).locator("button").nth(2)
    cell.wait_for()
    assert cell.inner_text() == "1.00"
    other = page.locator(".heat tbody tr").nth(1).locator("button").nth(1)
    before = other.inner_text()
    page.focus("#layer")
    page.keyboard.press("ArrowRight")
    sync_api.expect(other).not_to_have_text(before)
    cell.click()
    page.wait_for_selector("text=“boat” and “boat”")
    assert "layer=1" in page.url
    check_accessible(page)


def test_senses_move_and_keep_their_points(page, client, check_accessible):
    page.goto(f"{client.url}/#senses")
    page.fill("#word", "the")
    page.fill("#sentences", "\n".join(SENTENCES))
    page.click("text=Show the senses")
    page.wait_for_selector("svg[aria-label$='of the'] .dot")
    before = page.evaluate("[...document.querySelectorAll('.dot')].map((dot) => dot.style.transform)")
    page.evaluate("document.querySelectorAll('.dot').forEach((dot, index) => { dot.dataset.index = index; })")
    page.focus("#layer")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=First LSTM:")
    after = page.evaluate("[...document.querySelectorAll('.dot')].map((dot) => dot.style.transform)")
    assert len(before) == len(after)
    assert before != after
    assert page.evaluate("[...document.querySelectorAll('.dot')].every((dot, i) => dot.dataset.index === String(i))")
    page.locator(".dot").nth(3).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Nearest in the first LSTM")
    check_accessible(page)


def test_mix_follows_the_weights(page, client, check_accessible):
    page.goto(f"{client.url}/#mix")
    page.fill("#word", "the")
    page.fill("#sentences", "\n".join(SENTENCES))
    page.click("text=Find neighbors")
    page.wait_for_selector("text=Nearest contexts")
    page.click("button:text-is('Token layer')")
    sync_api.expect(page.locator(".contexts .number").first).to_have_text("1.000")
    assert "weights=1" in page.url
    check_accessible(page)


def test_python_code_holds_the_texts_as_they_are(page, client):
    page.goto(f"{client.url}/#layers?a=true+or+null&b=it+is+%22false%22")
    page.wait_for_selector(".heat tbody button")
    page.click("details.code summary")
    code = page.locator("pre[aria-label=Python]").inner_text()
    assert 'embedder.embed(["true or null", "it is \\"false\\""])' in code
    compile(code, "copied", "exec")


def test_views_without_data_say_what_to_do(page, client):
    page.goto(f"{client.url}/#tasks")
    page.wait_for_selector("text=No task model is loaded")
    page.goto(f"{client.url}/#sentence?text=+")
    page.wait_for_selector("text=Type a sentence to begin")


def test_a_key_is_asked_for(browser):
    with serving(toy_models(), api_keys=["secret"]) as client:
        page = browser.new_page()
        page.goto(client.url)
        page.fill("#key", "secret")
        page.click("text=Continue")
        page.wait_for_selector(".token")
        page.close()


def test_a_phone_in_the_dark_shows_every_view(browser, client):
    phone = {"width": 360, "height": 740}
    page = browser.new_page(viewport=phone, color_scheme="dark", reduced_motion="reduce")
    for view in ("sentence", "layers", "senses", "mix", "tasks"):
        page.goto(f"{client.url}/#{view}")
        page.wait_for_selector(f"h1:text-is('{view.capitalize()}')")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        run_axe(page)
    page.close()


def test_a_report_works_offline(page, tmp_path, check_accessible):
    path = tmp_path / "report.html"
    path.write_text(make_report(toy_models(), SENTENCES, words=["the", "boat"]), "utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector(".token")
    page.select_option("#text", SENTENCES[3])
    page.click(".token >> text=daughter")
    page.wait_for_selector("text=In the place of “daughter”")
    check_accessible(page)
    page.click("nav >> text=Layers")
    page.wait_for_selector(".heat tbody button")
    page.click("nav >> text=Senses")
    page.select_option("#word", "boat")
    page.wait_for_selector("svg[aria-label$='of boat'] .dot")
    assert page.locator("nav a").count() == 3


DRAWN = {
    "ner": (".span", 2, "Ada Lovelace"),
    "srl": (".drawing .label", 3, "ARG1"),
    "coref": (".span", 5, "hat2"),
    "parse": (".drawing .label", 10, "VP"),
    "sst": (".ranking li", 3, "72%"),
    "squad": ("mark", 1, "Oslo"),
}


@pytest.mark.parametrize(
    "name",
    [*("ner", "parse", "squad"), *(pytest.param(name, marks=pytest.mark.slow) for name in ("srl", "coref", "sst"))],
)
def test_a_task_is_drawn_as_people_expect(page, client, check_accessible, name):
    mixes = [{"place": "input", "weights": [0.2, 0.5, 0.3], "gamma": 1.0}]
    info = client.get("/info").json() | {"tasks": [{"name": name, "task": name, "reads": "a text", "mixes": mixes}]}
    page.route("**/info", lambda route: route.fulfill(body=json.dumps(info), content_type="application/json"))
    answer = json.dumps(answer_of(name))
    page.route(f"**/tasks/{name}", lambda route: route.fulfill(body=answer, content_type="application/json"))
    page.goto(f"{client.url}/#tasks")
    first, _, second = TYPED[name].partition("\t")
    page.fill("#text", first)
    if second:
        page.fill("#more", second)
    page.click(".go")
    selector, number, text = DRAWN[name]
    page.wait_for_selector(selector)
    assert page.locator(selector).count() == number
    assert text in page.locator("section.card").first.inner_text()
    assert page.locator(".mixes td.low").all_inner_texts() == ["30%", "20%"]  # the top layer first
    check_accessible(page)
    page.goto(f"{client.url}/#mix")
    page.click(f".mixes thead button:has-text('{name}')")
    assert "weights=0.2000%2C0.5000%2C0.3000" in page.url
