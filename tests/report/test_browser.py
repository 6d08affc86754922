"""The page in a real browser: it loads nothing, and everything on it works."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

import curvflow
from curvflow.flows.report.render import write_report
from curvflow.flows.report.request import ReportRequest
from tests.report.studies import MARKUP, report_kinds

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLC = '.grid[data-name="llc"]'
CHAINS = '.grid[data-name="llc by chain"]'
LAST = '.grid[data-name="last"]'
# Relative luminance and contrast as WCAG 2.2 defines them.
CONTRASTS = """() => {
  const parsed = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith("color(srgb") ? 255 : 1;
    return [r * scale, g * scale, b * scale, a];
  };
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = parsed(getComputedStyle(one).backgroundColor);
      if (found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const nodes = [...element.childNodes];
    const own = nodes.some((one) => one.nodeType === 3 && one.data.trim());
    if (!own || !element.checkVisibility()) continue;
    if (element.closest("dialog, script, style, .unseen")) continue;
    const ink = parsed(getComputedStyle(element).color);
    const [one, two] = [light(ink), light(behind(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) found.push(`${element.outerHTML.slice(0, 80)} ${ratio}`);
  }
  return [...new Set(found)];
}"""


@pytest.fixture
def opened(chromium, written):
    """Return a function that opens the page; what it loads and says is watched."""
    contexts, requests, complaints = [], [], []

    def open_page(file=None, **settings):
        settings = {"viewport": {"width": 1280, "height": 800}, **settings}
        context = chromium.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((file or written.file).as_uri())
        page.evaluate(
            "document.querySelectorAll('details').forEach(one => { one.open = true })"
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    outside = [url for url in requests if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert len([url for url in requests if url.startswith("file:")]) == len(contexts)
    assert complaints == []


def column(page, grid, field, *, attribute=False):
    heads = page.locator(f"{grid} thead th")
    fields = [heads.nth(n).get_attribute("data-field") for n in range(heads.count())]
    cells = page.locator(
        f"{grid} tbody tr:not([hidden]) > :nth-child({fields.index(field) + 1})"
    )
    if attribute:
        return cells.evaluate_all("all => all.map(one => one.dataset.v)")
    return [text.strip() for text in cells.all_text_contents()]


def press(page, grid, field):
    page.locator(f'{grid} thead th[data-field="{field}"] button').click()


def sorts(page, grid):
    heads = page.locator(f"{grid} thead th").all()
    found = {h.get_attribute("data-field"): h.get_attribute("aria-sort") for h in heads}
    return {field: order for field, order in found.items() if order != "none"}


def copied(page, grid, what):
    page.locator(f'{grid} [data-copy="{what}"]').click()
    page.wait_for_function(
        "name => document.getElementById('said').textContent === `Copied ${name}.`",
        arg=page.locator(grid).get_attribute("data-name"),
    )
    return page.evaluate("navigator.clipboard.readText()")


def test_the_page_loads_nothing_runs_no_foreign_script_and_says_no_error(opened):
    page = opened()
    assert page.title() == "everything: curvflow report"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[onerror]").count() == 0
    assert page.locator("h1").text_content() == "everything"
    sizes = page.locator(".picture img").evaluate_all(
        "all => all.map(one => one.naturalWidth > 0)"
    )
    assert sizes == [True, True]


def test_numbers_are_sorted_by_size_and_back_to_the_order_of_the_study(opened):
    page = opened()
    before = column(page, CHAINS, "per_chain")
    press(page, CHAINS, "per_chain")
    up = [float(text) for text in column(page, CHAINS, "per_chain", attribute=True)]
    assert up == sorted(up)
    assert sorts(page, CHAINS) == {"per_chain": "ascending"}
    press(page, CHAINS, "per_chain")
    down = [float(text) for text in column(page, CHAINS, "per_chain", attribute=True)]
    assert down == sorted(down, reverse=True)
    assert sorts(page, CHAINS) == {"per_chain": "descending"}
    press(page, CHAINS, "per_chain")
    assert column(page, CHAINS, "per_chain") == before
    assert sorts(page, CHAINS) == {}


def test_text_is_sorted_as_text_and_what_has_no_value_stays_last(opened):
    page = opened()
    press(page, LAST, "rule")
    rules = column(page, LAST, "rule")
    assert rules == sorted(rules, key=str.casefold)
    for _ in range(2):
        press(page, LAST, "square")
        lacking = [
            "no value" in text or text == "nan" for text in column(page, LAST, "square")
        ]
        assert lacking == sorted(lacking)
        assert any(lacking)


def test_a_filter_keeps_the_rows_with_all_of_its_words(opened):
    page = opened()
    field = page.locator(f"{LLC} input")
    field.fill("SLOW drifting")
    assert set(column(page, LLC, "verdict")) == {"drifting"}
    assert set(column(page, LLC, "rule")) == {"slow"}
    assert page.locator(f"{LLC} .shown").text_content() == "1 of 12 rows"
    field.fill("<IMG converged")
    assert set(column(page, LLC, "rule")) == {MARKUP}
    field.fill("")
    assert len(column(page, LLC, "rule")) == 12
    assert page.locator(f"{LLC} .shown").text_content() == "12 rows"


def test_csv_is_copied_in_full_as_it_is_filtered_and_sorted(opened):
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    page.locator(f"{LLC} input").fill("slow")
    press(page, LLC, "seed")
    press(page, LLC, "seed")
    rows = list(csv.DictReader(io.StringIO(copied(page, LLC, "csv"))))
    assert [row["seed"] for row in rows] == ["13", "2", "1", "0"]
    assert rows[3]["llc_mean"] == "1.23456789"
    assert rows[2]["reason"] == f"R-hat {MARKUP}"
    assert {row["num_matvecs"] for row in rows} == {"10"}
    rows = list(csv.DictReader(io.StringIO(copied(page, LAST, "csv"))))
    assert {row["status"] for row in rows} == {"ok", "diverged", "missing"}
    assert {row["square"] for row in rows if row["status"] == "missing"} == {""}


def test_latex_is_copied_with_rules_and_every_sign_escaped(opened):
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    text = copied(page, CHAINS, "latex")
    assert text.startswith("\\begin{tabular}{rlrr}\n  \\toprule\n")
    assert text.endswith("  \\bottomrule\n\\end{tabular}\n")
    assert "loss / parameter$^{2}$" in text
    assert "per\\_chain" in text
    assert "\\textless{}/script\\textgreater{}" in text
    assert "$1.000 \\times 10^{-7}$" in text
    assert "$-3.000$" in text
    body = text.partition("\\midrule\n")[2].partition("  \\bottomrule")[0]
    assert len(body.splitlines()) == 2 * 4 * 3
    assert all(line.count("&") == 3 for line in body.splitlines())


# What a label may hold, and how LaTeX is to say it.
TOLD = {
    r"a_b & 50% of #3": r"a\_b \& 50\% of \#3",
    r"{x^2} ~ $y\z": r"\{x$^{2}$\} \textasciitilde{} \$y\textbackslash{}z",
    "λ ± 1 ≤ \N{MINUS SIGN}∞": r"$\lambda$ $\pm$ 1 $\le$ $-$$\infty$",
    "Σ x² w₁₀ 10⁻³": "$\\Sigma$ x$^{2}$ w$_{10}$ 10$^{-3}$",
    "[first]": "{}[first]",
    "*starred": "{}*starred",
    '"a" | `b`': r'"a" \textbar{} \textasciigrave{}b\textasciigrave{}',
    "é \N{EN DASH} …": r"é -- \dots{}",
}


def test_labels_are_escaped_so_that_latex_compiles(opened, toys, tmp_path):
    study = tmp_path / "labels.yaml"
    axes = {"note": {label: {"seed": n} for n, label in enumerate(TOLD)}}
    stages = {
        "data": {"use": "toy.points"},
        "fit": {"use": "toy.fit", "data": "data", "seed": "${note.seed}"},
    }
    study.write_text(
        json.dumps({"study": "labels", "axes": axes, "stages": stages}),
        encoding="utf-8",
    )
    curvflow.run(study, workers=1)
    file, _ = write_report(ReportRequest(study))
    page = opened(file=file, permissions=["clipboard-read", "clipboard-write"])
    text = copied(page, '.grid[data-name="fit"]', "latex")
    body = text.partition("\\midrule\n")[2].partition("  \\bottomrule")[0]
    rows = [row.strip().removesuffix(" \\\\") for row in body.splitlines()]
    assert [re.split(r" (?<!\\)& ", row)[0] for row in rows] == [*TOLD.values()]


def test_a_figure_is_enlarged_and_put_away_by_keys(opened):
    page = opened()
    picture = page.locator(".picture").nth(1)
    picture.focus()
    page.keyboard.press("Enter")
    large = page.locator("#enlarged img")
    assert large.is_visible()
    assert large.get_attribute("src") == picture.locator("img").get_attribute("src")
    assert large.bounding_box()["width"] > picture.bounding_box()["width"]
    page.keyboard.press("Escape")
    assert not large.is_visible()
    assert picture.evaluate("one => one === document.activeElement")


def test_a_number_says_where_it_is_from_to_the_pointer_and_to_the_keys(opened):
    page = opened()
    tip = page.locator("#tip")
    cell = page.locator(f"{LLC} tbody td.number").first
    cell.hover()
    tip.wait_for(state="visible")
    told = tip.inner_text()
    for part in ("llc[seed=0,rule=slow]", "toy.sample, version 3", "digest", "seed 0"):
        assert part in told
    assert cell.get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    first = page.locator(f"{LLC} tbody th").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert tip.is_visible()
    assert MARKUP in tip.inner_text()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.nextElementSibling") is None


def test_a_head_says_what_its_column_is(opened):
    page = opened()
    head = page.locator(f'{LLC} th[data-field="llc_mean"] button')
    head.focus()
    assert page.locator("#tip").text_content() == f"the estimate {MARKUP}"


def test_heads_are_pressed_by_keys_and_a_table_is_one_stop(opened):
    page = opened()
    page.locator(f"{LLC} input").focus()
    stops = []
    heads = page.locator(f"{LLC} thead th button").count()
    for _ in range(3 + heads + 1):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "(() => { const one = document.activeElement; return one.tagName + "
                "(one.closest('tbody') ? ' in body' : '') })()"
            )
        )
        if stops[-1].endswith("in body"):
            break
    assert stops[:3] == ["BUTTON", "BUTTON", "DIV"]
    assert stops[-1] == "TH in body"
    page.locator(f'{LLC} th[data-field="seed"] button').focus()
    page.keyboard.press("Enter")
    assert sorts(page, LLC) == {"seed": "ascending"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(opened, scheme):
    page = opened(color_scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark != "rgb(255, 255, 255)") == (scheme == "dark")
    assert page.evaluate(CONTRASTS) == []


def test_the_other_theme_is_one_press_away(opened):
    page = opened(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    assert page.evaluate(ground) != light
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    assert page.evaluate(CONTRASTS) == []
    page.locator("#theme").click()
    assert page.evaluate(ground) == light


def test_print_is_on_white_without_controls_and_shows_whole_tables(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    for gone in ("nav", ".copies", ".bar label", "#theme"):
        assert not page.locator(gone).first.is_visible()
    clipped = page.locator(".scroll").evaluate_all(
        "all => all.filter(one => one.scrollHeight > one.clientHeight + 1).length"
    )
    assert clipped == 0
    assert page.evaluate(CONTRASTS) == []
    assert re.match(rb"%PDF-1", page.pdf(format="A4"))


@pytest.mark.parametrize("width", [400, 820, 1280])
def test_nothing_is_wider_than_the_screen(opened, width):
    page = opened(viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


COMPARED = """\
study: compared
axes:
  seed: [2, 3, 4]
  rule:
    slow: {lr: 0.25}
    fast: {lr: 0.5}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${rule.lr}", seed: "${seed}"}
  last: {use: toy.probe, weights: fit}
  table: {use: aggregate.compare, of: last, along: rule, baseline: slow, over: seed}
"""
TABLE = '.grid[data-name="table by quantity"]'


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the page of a study with a table that is wider than the screen."""
    study = tmp_path_factory.mktemp("compared") / "compared.yaml"
    study.write_text(COMPARED)
    with report_kinds():
        curvflow.run(study, workers=1)
        file, _ = write_report(ReportRequest(study))
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_wide_table_scrolls_in_its_box_and_says_so(opened, compared, width, scheme):
    view = {"width": width, "height": 800}
    page = opened(file=compared, viewport=view, color_scheme=scheme)
    wider = "document.scrollingElement.scrollWidth > innerWidth"
    told = page.locator(f"{TABLE} .more-columns")
    told.wait_for(state="visible")
    assert not page.evaluate(wider)
    box = page.locator(f"{TABLE} .scroll")
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")
    assert "gradient" in box.evaluate("one => getComputedStyle(one).maskImage")
    first = page.locator(f"{TABLE} tbody th, {TABLE} thead th:first-child")
    before = [one.bounding_box()["x"] for one in first.all()]
    box.evaluate("one => { one.scrollLeft = one.scrollWidth }")
    told.wait_for(state="hidden")
    assert box.evaluate("one => getComputedStyle(one).maskImage") == "none"
    assert [one.bounding_box()["x"] for one in first.all()] == before
    grounds = "all => all.map(one => getComputedStyle(one).backgroundColor)"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert {*first.evaluate_all(grounds)} == {paper}
    assert not page.evaluate(wider)


def test_a_table_that_fits_says_nothing_of_more_columns(opened):
    page = opened()
    narrow = '.grid[data-name="fit"]'
    page.locator(narrow).scroll_into_view_if_needed()
    page.locator(f"{narrow} .scroll:not(.more)").wait_for()
    assert not page.locator(f"{narrow} .more-columns").is_visible()


def test_a_long_name_of_a_column_is_broken_at_its_parts(opened, compared):
    page = opened(file=compared)
    head = page.locator(f'{TABLE} th[data-field="bootstrap_high"]')
    line = float(head.evaluate("one => parseFloat(getComputedStyle(one).lineHeight)"))
    assert head.locator("button").bounding_box()["height"] > 1.5 * line


def test_it_can_be_read_without_scripts(chromium, written):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written.file.as_uri())
    assert page.locator("h1").text_content() == "everything"
    assert page.locator(f"{LLC} tbody tr").count() == 12
    context.close()


def test_the_report_of_the_quickstart_opens(opened, tmp_path):
    source = Path(__file__).parents[2] / "studies" / "quickstart.yaml"
    study = Path(shutil.copy(source, tmp_path))
    curvflow.run(study, profile="smoke", workers=1)
    file, unreadable = write_report(ReportRequest(study, profile="smoke"))
    assert unreadable == []
    page = opened(file=file)
    assert page.locator("h1").text_content() == "quickstart"
    assert page.locator(".picture img").count() == 2
    table = '.grid[data-name="table by quantity"]'
    assert page.locator(f"{table} tbody tr").count() > 0
    press(page, table, "quantity")
    assert sorts(page, table) == {"quantity": "ascending"}
