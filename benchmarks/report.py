"""Time the page of `curvflow report`: writing it, and loading it in Chromium.

    python -m benchmarks.report [NODES ...]      default 100 10000

Needs Chromium and the package playwright. Prints per study the seconds that a fresh
process takes to write the page, the best of three; the page's size and number of
elements; and from the browser's own clock, best of five fresh loads with an empty
cache, milliseconds until something is seen, until all is loaded, and that sorting the
longest table takes until it is drawn.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BUDGET = 1000.0  # milliseconds to load 10,000 nodes
STUDY = """
study: report-scale
axes:
  seed: {seeds}
  rule: {{small: {{rule: sgd, lr: 0.01}}, large: {{rule: sgd, lr: 0.1}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: mlp, hidden: [3]}}, rule: "${{rule}}",
         seed: "${{seed}}", epochs: 2, checkpoints: {{every: 1}}}}
  trace: {{use: probe.hessian_trace, weights: fit, num_probes: 4}}
  norms: {{use: probe.norms, weights: fit, at: all}}
  table: {{use: aggregate.summary, of: [fit, trace], over: seed}}
  loss: {{use: figure.lines, of: fit, y: train_loss, label: rule, over: seed}}
"""
NODES_PER_SEED = 2 * (1 + 1 + 3)  # fit, trace, norms at three checkpoints
CLI = "from curvflow.cli.app import main; main()"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
LOADED = """() => {
  const [load] = performance.getEntriesByType("navigation");
  const [seen] = performance.getEntriesByName("first-contentful-paint");
  return [seen ? seen.startTime : NaN, load.loadEventEnd];
}"""
SORTED = """() => new Promise((done) => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const tables = [...document.querySelectorAll(".grid table")];
  const longest = tables.reduce((a, b) => (b.rows.length > a.rows.length ? b : a));
  const began = performance.now();
  longest.querySelector("th.number button").click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""


def main(sizes: list[int]) -> None:
    """Measure each size and print one line."""
    heads = ("nodes", "write s", "kB", "elements", "seen ms", "loaded ms", "sort ms")
    print("".join(f"{head:>11}" for head in heads), f"{'budget ms':>11}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            study = Path(folder) / "study.yaml"
            study.write_text(STUDY.format(seeds=max(size // NODES_PER_SEED, 2)))
            curvflow("run", study)
            seconds = min(curvflow("report", study) for _ in range(3))
            page = study.parent / "results" / "report-scale" / "report.html"
            elements, seen, loaded, in_order = opened(page)
            nodes = NODES_PER_SEED * max(size // NODES_PER_SEED, 2) + 4
            print(
                f"{nodes:>11,}{seconds:>11.2f}{page.stat().st_size / 1000:>11.0f}"
                f"{elements:>11,}{seen:>11.0f}{loaded:>11.0f}{in_order:>11.0f}"
                f"{BUDGET:>12.0f}"
            )


def curvflow(verb: str, study: Path) -> float:
    """Run a command in a fresh process; return the seconds it took."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", CLI, verb, str(study)], check=True, capture_output=True
    )
    return time.perf_counter() - began


def opened(page: Path) -> tuple[int, float, float, float]:
    """Load a page in five fresh contexts; elements and the least times."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        found: list[Any] = []
        for _ in range(5):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            tab = context.new_page()
            tab.goto(page.as_uri(), wait_until="load")
            tab.wait_for_timeout(200)
            count = tab.evaluate("document.querySelectorAll('*').length")
            found.append([count, *tab.evaluate(LOADED), tab.evaluate(SORTED)])
            context.close()
        browser.close()
    count, *times = map(min, zip(*found, strict=True))
    return count, times[0], times[1], times[2]


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 10_000])
