"""The built site as readers meet it: wide and narrow, light and dark, on paper, without a server or JavaScript."""

import functools
import json
import re
import threading
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from colour import contrast
from playwright.sync_api import expect

import perfmodel as pm
from perfmodel import data
from perfmodel.format import fmt
from tools import book

TOC = yaml.safe_load((book.ROOT / "_toc.yml").read_text("utf8"))
PAGES = [TOC["root"], *(chapter["file"] for part in TOC["parts"] for chapter in part["chapters"])]
CHAPTER = "book/serving/06-roofline-to-latency"
LEDGER = "book/lab/source-on-trial"
SEARCH = "search.html?q=roofline"
WIDE, NARROW = 1280, 390
EVAL = re.compile(r"\{eval\}`(\w+)`")

every_page = pytest.mark.parametrize("name", [*PAGES, "search"])
every_width = pytest.mark.parametrize("width", [WIDE, NARROW])


# ------------------------------------------------------------------------------------------------- How pages are opened
class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def server(site):
    """Address of the site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


def address(base, name):
    return base + (SEARCH if name == "search" else f"{name}.html")


def settle(page):
    """Wait until maths is set and charts are drawn or have failed."""
    page.evaluate("async () => { await window.MathJax?.startup?.promise }")
    page.wait_for_function("!document.querySelector('.chart:not(.chart-ready, .chart-failed)')")


def rest(page):
    """Wait until nothing on the page is fading or sliding."""
    page.evaluate("Promise.all(document.getAnimations().map(animation => animation.finished.catch(() => null)))")


def open_page(context, url):
    """Open a page; return it with what it asked for and what went wrong."""
    page, asked, wrong = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on("response", lambda answer: wrong.append(f"{answer.status}: {answer.url}") if answer.status >= 400 else None)
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    settle(page)
    return page, asked, wrong


@pytest.fixture(scope="session")
def visit(browser, server):
    """Open a page of the site at some width, once: the tests that only look share it. All that is folded is open."""
    opened = {}

    def opener(name, width):
        if (name, width) not in opened:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light")
            visited = opened[name, width] = open_page(context, address(server, name))
            visited[0].evaluate("""() => {
                document.querySelectorAll(".bd-article details").forEach(details => (details.open = true));
                document.querySelectorAll("button.toggle-button-hidden").forEach(button => button.click());
            }""")
            rest(visited[0])
        return opened[name, width]

    yield opener
    for page, *_ in opened.values():
        page.context.close()


@pytest.fixture
def fresh(browser, server):
    """Open a page of the site for one test that changes it."""
    contexts = []

    def opener(name, width=WIDE, **options):
        options = {"viewport": {"width": width, "height": 900}, "color_scheme": "light"} | options
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(address(server, name))
        if options.get("java_script_enabled", True):
            settle(page)
        return page

    yield opener
    for context in contexts:
        context.close()


# ------------------------------------------------------------------------------------------------------- Every page
@every_width
@every_page
def test_nothing_comes_from_elsewhere_and_nothing_fails(visit, server, name, width):
    _, asked, wrong = visit(name, width)
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []
    assert wrong == []


@every_page
def test_works_without_a_server(browser, site, name):
    context = browser.new_context(viewport={"width": WIDE, "height": 900})
    page, asked, wrong = open_page(context, address(f"{site.as_uri()}/", name))
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert wrong == []
    assert page.locator(".chart-failed").count() == 0
    if name == "search":
        page.wait_for_selector(f'ul.search a[href*="{CHAPTER}"]')
    context.close()


# What sticks out of the window, apart from what scrolls in a box of its own.
STICKS_OUT = """() => {
    const width = document.documentElement.clientWidth;
    const boxed = e => e && (getComputedStyle(e).overflowX !== "visible" || boxed(e.parentElement));
    const out = [...document.querySelectorAll(".bd-article-container *, .bd-footer *")].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width && box.right > width + 1 && !boxed(e.parentElement);
    });
    const page = document.documentElement.scrollWidth > width ? [`page: ${document.documentElement.scrollWidth}`] : [];
    return [...page, ...out.map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`)];
}"""


@every_width
@every_page
def test_fits_the_window(visit, name, width):
    page, *_ = visit(name, width)
    assert page.evaluate(STICKS_OUT) == []


@every_page
def test_the_unseen_copy_of_a_formula_is_no_wider_than_the_formula(visit, name):
    page, *_ = visit(name, NARROW)
    wider = """[...document.querySelectorAll("mjx-assistive-mml")].filter(copy =>
        copy.getBoundingClientRect().width > copy.parentElement.getBoundingClientRect().width + 1)
        .map(copy => copy.textContent)"""
    assert page.evaluate(wider) == []


# What lies over the number of its equation, or runs into it.
UNDER_ITS_NUMBER = """() => [...document.querySelectorAll(".bd-article div.math > .eqno")].filter(number => {
    const box = number.parentElement.querySelector("mjx-container");
    const formula = box.matches(".wide") ? box : box.firstElementChild;
    return formula.getBoundingClientRect().right > number.getBoundingClientRect().left;
}).map(number => number.textContent)"""


@every_width
@every_page
def test_formulas_leave_room_for_their_numbers(visit, name, width):
    page, *_ = visit(name, width)
    assert page.evaluate(UNDER_ITS_NUMBER) == []


@every_width
@every_page
def test_captions_stay_while_tables_scroll(visit, name, width):
    page, *_ = visit(name, width)
    for caption in page.locator(".course-table-frame > figcaption").all():
        box = caption.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    tables = page.locator(".course-table-box").all()
    assert len(tables) == page.locator(".course-table-frame > figcaption").count()
    for table in tables:
        wide = table.evaluate("box => box.scrollWidth > box.clientWidth + 1")
        assert (table.get_attribute("tabindex") == "0") == wide  # what scrolls, the keyboard reaches


# Cells whose words stand nearer than 8 pixels to those of the next cell.
CLOSE = """() => {
    const words = cell => {
        const range = document.createRange(), formula = cell.querySelector(":scope > mjx-container > mjx-math");
        range.selectNodeContents(formula ?? cell); // and not the unseen copy of a formula
        return range.getBoundingClientRect();
    };
    return [...document.querySelectorAll(".bd-article table:not(.cards) :is(td, th)")]
        .filter(cell => cell.nextElementSibling)
        .filter(cell => words(cell.nextElementSibling).left - words(cell).right < 8)
        .map(cell => `${cell.textContent} | ${cell.nextElementSibling.textContent}`);
}"""


@every_width
@every_page
def test_cells_of_tables_keep_their_distance(visit, name, width):
    page, *_ = visit(name, width)
    assert page.evaluate(CLOSE) == []


@pytest.mark.parametrize("name", ["book/notation", LEDGER])
@every_width
def test_tables_of_words_need_no_scrolling(visit, name, width):
    page, *_ = visit(name, width)
    cut = "[...document.querySelectorAll('.course-table-box')].filter(box => box.scrollWidth > box.clientWidth + 1)"
    assert page.evaluate(f"{cut}.map(box => box.getAttribute('aria-label'))") == []


def test_a_phone_shows_each_claim_as_a_card(visit):
    page, *_ = visit(LEDGER, NARROW)
    card = page.locator("table.cards tbody tr", has_text="c06.1-16")
    assert card.locator("td").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
    ) == [
        '"The article"',
        '"Ours"',
        '"Verdict"',
        '"Why"',
    ]
    boxes = [cell.bounding_box() for cell in card.locator("th, td").all()]
    assert all(box["x"] > 0 and box["x"] + box["width"] < NARROW for box in boxes)
    assert page.locator("table.cards").get_by_role("rowheader").count() == page.locator("table.cards tbody tr").count()


def test_what_is_folded_under_a_solution_is_its_check(fresh):
    page = fresh(CHAPTER)
    labels = page.locator(".solution + .cell summary").all_inner_texts()
    assert len(labels) >= 7
    assert set(labels) == {"Show the check"}


# For each chart: is it drawn, does it fit, do its marks have a size.
CHARTS = """() => [...document.querySelectorAll(".chart")].map(chart => {
    const svg = chart.querySelector(".chart-live svg");
    const marks = [...(svg?.querySelectorAll(".role-mark :is(path, text, image)") ?? [])];
    const size = mark => { const box = mark.getBBox(); return Math.max(box.width, box.height) };
    return {
        name: chart.querySelector(".chart-live").getAttribute("aria-label"),
        drawn: Boolean(svg) && !chart.matches(".chart-failed"),
        overhang: svg ? Math.round(svg.getBoundingClientRect().width - chart.clientWidth) : null,
        marks: marks.filter(mark => size(mark) > 0).length,
        broken: marks.filter(mark => /NaN|undefined|Infinity/.test(mark.outerHTML)).length,
        picture: getComputedStyle(chart.querySelector(".chart-static")).display,
    };
})"""


@every_width
@every_page
def test_charts_are_drawn(visit, name, width):
    page, *_ = visit(name, width)
    charts = page.evaluate(CHARTS)
    assert (name == CHAPTER) <= (len(charts) >= 3)
    for chart in charts:
        assert chart["name"].strip()
        assert chart["drawn"], chart
        assert chart["marks"], chart
        assert chart["broken"] == 0, chart
        assert chart["overhang"] <= 0, chart
        assert chart["picture"] == "none", chart


@every_page
def test_maths_is_set(visit, name):
    page, *_ = visit(name, WIDE)
    bare = """[...document.querySelectorAll(".bd-article :is(.math, tbody .maths)")]
        .filter(formula => !formula.querySelector("mjx-container")).map(formula => formula.textContent)"""
    assert page.evaluate(bare) == []
    assert page.locator("mjx-merror, [data-mjx-error]").all_text_contents() == []
    if name == CHAPTER:
        assert page.locator("mjx-container").count() > 20


@every_page
def test_no_raw_markup_is_seen(visit, name):
    page, *_ = visit(name, WIDE)
    text = page.evaluate("""() => {
        const copy = document.querySelector("main").cloneNode(true);
        copy.querySelectorAll("pre, code, script, mjx-container").forEach(e => e.remove());
        return copy.textContent;
    }""")
    raw = re.compile(
        r"\{[a-z:]+\}`|\{[a-z]+\}\s*\w*`|```|:::|\\\(|\\\[|\$\$|\$[A-Za-z\\{]|\[\^|^%|\*\*\w", re.MULTILINE
    )
    assert raw.findall(text) == []


def axe(page, **options):
    """What axe finds. It need not look into drawn charts, each one picture with a name, nor at every word of code."""
    found = Axe().run(page, {"exclude": [[".chart-live svg"], ["pre"]]}, {"resultTypes": ["violations"], **options})
    return [
        f"{rule['impact']} {rule['id']}: {node['html'][:150]}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


def in_dark(page, look):
    """Look at a page in its dark theme."""
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    rest(page)
    seen = look(page)
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("html[data-theme=light]")
    rest(page)
    return seen


@every_width
@every_page
def test_axe_finds_nothing(visit, name, width):
    page, *_ = visit(name, width)
    # axe does not see maths, which screen readers do, and takes a heading of maths for an empty one.
    assert axe(page, rules={"empty-table-header": {"enabled": False}}) == []
    assert [heading for heading in page.locator("th").all_text_contents() if not heading.strip()] == []


@every_page
def test_axe_finds_nothing_in_the_dark(visit, name):
    page, *_ = visit(name, WIDE)
    assert in_dark(page, lambda page: axe(page, runOnly=["color-contrast"])) == []


# Colours of the words of code and of what lies behind them, each pair once.
CODE = """() => {
    const hex = rgb => "#" + rgb.match(/\\d+/g).slice(0, 3).map(part => (+part).toString(16).padStart(2, "0")).join("");
    const behind = e => {
        const colour = getComputedStyle(e).backgroundColor;
        return /, 0\\)$/.test(colour) ? behind(e.parentElement) : colour;
    };
    const words = document.querySelectorAll(".bd-article pre, .bd-article pre span");
    const pairs = new Set([...words].filter(word => word.textContent.trim())
        .map(word => `${hex(getComputedStyle(word).color)} ${hex(behind(word))}`));
    return [...pairs].map(pair => pair.split(" "));
}"""


def test_code_can_be_read(visit):
    page, *_ = visit(CHAPTER, WIDE)
    light, dark = page.evaluate(CODE), in_dark(page, lambda page: page.evaluate(CODE))
    assert len(light) > 3
    assert light != dark
    assert [pair for pair in light + dark if contrast(*pair) < 4.5] == []


@pytest.mark.parametrize("name", [TOC["root"], "search"])
def test_skip_link_leads_to_the_text(fresh, name):
    page = fresh(name)
    page.keyboard.press("Tab")
    rest(page)
    assert page.locator(":focus").inner_text() == "Skip to main content"
    assert page.locator(":focus").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("Boolean(document.activeElement.closest('main'))")


# --------------------------------------------------------------------------------------------------- Files of the site
class Links(HTMLParser):
    """Ids of a page, addresses that it links, and addresses that it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.linked, self.loaded = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.ids.append(given["id"])
        for key in ("href", "src", "action"):
            if given.get(key):
                (self.linked if tag in ("a", "form") else self.loaded).append(given[key])


@pytest.fixture(scope="session")
def parsed(site):
    files = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    return {path: Links(path.read_text("utf8")) for path in files}


def test_links_and_anchors_hold(parsed, site):
    dead = []
    for path, page in parsed.items():
        for link in page.linked + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].ids
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []
    assert {f"{name}.html" for name in PAGES} <= {path.relative_to(site).as_posix() for path in parsed}


def test_pages_name_no_other_host(parsed, site):
    named = {
        f"{path.relative_to(site)}: {link}" for path, page in parsed.items() for link in page.loaded if "//" in link
    }
    assert named == set()


def test_ids_are_unique(parsed, site):
    twice = [
        f"{path.relative_to(site)}: {name}"
        for path, page in parsed.items()
        for name, times in Counter(page.ids).items()
        if times > 1
    ]
    assert twice == []


@pytest.mark.parametrize("name", PAGES)
def test_source_and_notebook_can_be_downloaded(parsed, site, said, name):
    source = (book.ROOT / f"{name}.md").read_text("utf8")
    downloads = [link for link in parsed[site / f"{name}.html"].linked if "_sources/" in link]
    assert any(link.endswith(f"{name}.md") for link in downloads)
    assert (site / "_sources" / f"{name}.md").read_text("utf8") == source
    if not source.startswith("---\njupytext:"):
        return
    assert any(link.endswith(f"{name}.ipynb") for link in downloads)
    notebook = nbformat.read(site / "_sources" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    values = {}
    for cell in notebook.cells:
        for entry in cell.metadata.get("user_expressions", []):
            values[entry["expression"]] = entry["result"]["data"]["text/plain"]
    assert values == {key: said[name][key]["text"] for key in EVAL.findall(source)}


# ------------------------------------------------------------------------------------------------- What the reader does
def test_search_finds_the_chapter(fresh):
    page = fresh(TOC["root"])
    page.keyboard.press("Control+k")
    page.keyboard.type("roofline")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=roofline*")
    page.locator(f'ul.search a[href*="{CHAPTER}"]').first.click()
    page.wait_for_url(f"**/{CHAPTER}.html*")


@pytest.mark.parametrize("name", PAGES)
def test_values_in_sentences_are_those_said(visit, said, name):
    page, *_ = visit(name, WIDE)
    prose = "\n".join(
        line for line in (book.ROOT / f"{name}.md").read_text("utf8").splitlines() if not line.startswith("#")
    )
    expected = Counter(said.get(name, {})[key]["text"] for key in EVAL.findall(prose))
    assert Counter(page.locator(".bd-article .said").all_text_contents()) == expected


def test_how_a_number_came_about_is_reached_by_mouse_keyboard_and_touch(fresh):
    page = fresh(CHAPTER, NARROW, has_touch=True)
    word = page.locator(".bd-article p .said[data-how]").first
    tip = page.locator("#said-tip")
    for show, hide in (
        (word.focus, lambda: page.keyboard.press("Escape")),
        (word.hover, lambda: page.mouse.move(0, 0)),
        (word.tap, lambda: page.keyboard.press("Escape")),
    ):
        assert tip.is_hidden()
        word.scroll_into_view_if_needed()
        page.evaluate("document.activeElement.blur()")
        show()
        assert tip.inner_text() == word.get_attribute("data-how")
        assert word.get_attribute("aria-describedby") == "said-tip"
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW
        assert box["y"] >= 0
        hide()
    assert tip.is_hidden()


def test_charts_follow_the_theme_and_keep_what_the_reader_set(fresh, site):
    page = fresh(CHAPTER)
    chart = page.locator(".chart:has(.chart-controls)").first
    slider = chart.locator("input[type=range]").first
    slider.press("End")
    label = chart.locator(".role-axis-label text").first
    light, value, text = label.get_attribute("fill"), slider.input_value(), chart_text(chart)
    page.locator(".theme-switch-button:visible").first.click()
    for _ in range(2):  # the button goes from auto through light and dark
        if page.locator("html").get_attribute("data-theme") != "dark":
            page.locator(".theme-switch-button:visible").first.click()
    page.wait_for_function(
        "([label, light]) => label.isConnected === false || label.getAttribute('fill') !== light",
        arg=[label.element_handle(), light],
    )
    themes = json.loads((book.ROOT / "book/_static/chart-theme.json").read_text("utf8"))
    assert (light, label.get_attribute("fill")) == tuple(
        themes[mode]["axis"]["labelColor"] for mode in ("light", "dark")
    )
    assert (slider.input_value(), chart_text(chart)) == (value, text)


def chart_text(chart):
    return chart.locator(".mark-text.role-mark text").all_text_contents()


def decode_text(batch, context, accelerators):
    """What the live chart must write, from the package itself."""
    device = replace(data.accelerator("h100-sxm"), bf16_flops=742e12)
    model = pm.Model.of_size("70B", 70e9, layers=80, heads=64, kv_heads=8, head_dim=128)
    time = pm.decode_time(pm.Deployment(model, device, tensor_parallel=accelerators), batch, context)
    largest = "memory" if time.shares["memory"] >= time.shares["compute"] else "compute"
    return f"{fmt(time.total, 's')} at {batch:,}, {largest}"


def test_sliders_move_the_formula(fresh):
    page = fresh(CHAPTER)
    chart = page.locator(".chart:has(.chart-controls)").first
    batch, context = chart.get_by_label("batch B"), chart.get_by_label("context s")
    accelerators = chart.get_by_label("accelerators t")

    def click(slider, share):
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)

    seen = set()
    for move in (
        lambda: None,
        lambda: batch.press("ArrowRight"),
        lambda: batch.press("End"),
        lambda: click(context, 0.5),
        lambda: accelerators.select_option(label="8"),
        lambda: click(batch, 0.2),
        lambda: context.press("Home"),
        lambda: batch.press("Home"),
    ):
        move()
        values = [int(slider.input_value()) for slider in (batch, context)]
        chosen = int(accelerators.evaluate("select => select.selectedOptions[0].label"))
        wanted = decode_text(*values, chosen)
        expect(chart.locator(".mark-text.role-mark text", has_text=" at ")).to_have_text(wanted)
        shown = chart.locator(".chart-control-range output").all_text_contents()
        assert shown == [f"{value:,}" for value in values]
        assert [slider.get_attribute("aria-valuetext") for slider in (batch, context)] == shown
        seen.add(wanted)
    assert len(seen) == 8
    expect(chart.locator("[role=status]")).to_contain_text(wanted)


def test_charts_fill_a_window_that_changes(fresh):
    page = fresh(CHAPTER)
    widths = []
    for width in (WIDE, NARROW, 600):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("""() => [...document.querySelectorAll(".chart-live")].every(place =>
            Math.abs(place.querySelector("svg").getBoundingClientRect().width - place.clientWidth) < 3)""")
        widths.append(page.locator(".chart-live").first.bounding_box()["width"])
    assert len(set(widths)) == 3


def test_paper_gets_the_static_picture(fresh):
    page = fresh(CHAPTER)
    page.emulate_media(media="print")
    for chart in page.locator(".chart").all():
        assert chart.locator(".chart-static").evaluate("e => e.offsetHeight > 100 && e.naturalWidth > 100")
        assert chart.locator(".chart-live").is_hidden()
        assert all(panel.is_hidden() for panel in chart.locator(".chart-controls").all())
    assert all(part.is_visible() for part in page.locator(".solution section > p").all())


def test_without_javascript_the_static_picture_and_its_description_are_there(fresh):
    page = fresh(CHAPTER, java_script_enabled=False)
    charts = page.locator(".chart").all()
    assert len(charts) >= 3
    for chart in charts:
        picture = chart.locator("img.chart-static")
        assert picture.is_visible()
        assert picture.bounding_box()["height"] > 100
        assert len(picture.get_attribute("alt")) > 20
        assert chart.locator(".chart-live").is_hidden()
    assert page.locator(".said[title]").count() > 0


def test_controls_are_large_enough_to_touch(visit):
    page, *_ = visit(CHAPTER, NARROW)
    controls = page.locator(".chart-control :is(input[type=range], select)").all()
    assert controls
    assert min(control.bounding_box()["height"] for control in controls) >= 44


# Buttons and links outside sentences that a finger would miss.
SMALL = """() => {
    const all = document.querySelectorAll("button, summary, select, input, nav.bd-links a, nav.page-toc a");
    return [...all].map(e => [e, e.getBoundingClientRect()])
        .filter(([e, box]) => box.width && getComputedStyle(e).visibility !== "hidden")
        .filter(([e, box]) => Math.min(box.width, box.height) < 36)
        .map(([e, box]) => `${e.className || e.tagName}: ${box.width} × ${box.height}`);
}"""


def test_a_finger_meets_no_small_target(fresh):
    page = fresh(CHAPTER, NARROW, has_touch=True, is_mobile=True)
    assert page.evaluate(SMALL) == []
    for button, dialog in (("primary-toggle", "primary-sidebar"), ("secondary-toggle", "secondary-sidebar")):
        page.locator(f"button.{button}").first.tap()
        page.wait_for_selector(f"dialog[open][id*={dialog}]")
        rest(page)
        assert page.evaluate(SMALL) == []
        page.keyboard.press("Escape")
        page.wait_for_selector(f"dialog[id*={dialog}]:not([open])", state="attached")


@pytest.mark.parametrize("name", PAGES)
def test_equations_count_from_one_on_each_page(visit, name):
    page, *_ = visit(name, WIDE)
    numbers = page.locator(".bd-article .eqno").all_inner_texts()
    assert [int(re.search(r"\d+", number)[0]) for number in numbers] == list(range(1, len(numbers) + 1))
