"""Planted values through tables to verdicts, beside SciPy's tests and intervals."""

import math
from collections import Counter
from pathlib import Path
from typing import cast
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from curvflow.flows.api import results_of
from curvflow.flows.graph.open_study import OpenedStudy
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.results.check import check
from curvflow.flows.results.findings import counts
from curvflow.flows.run.run import run_study
from curvflow.schemas import kinds
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Numbers, Outcome
from curvflow.schemas.options import RunOptions
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore
from curvflow.tasks import registry
from curvflow.tasks.registry import computes

RUNS = 6
ODD = {"nan": math.nan, "inf": math.inf, "diverged": 1.5, "failed": math.nan}


class PlantedParams(Params):
    """A value, and whether something odd becomes of it."""

    value: float = 0.0
    odd: str = ""


PLANTED = Kind(
    name="toy.planted",
    version=1,
    summary="A planted value.",
    params=PlantedParams,
    returns=Numbers,
    outputs=(Variable("found", "the value"),),
    vectorised=False,
)


def _planted(members, _):
    outcomes = []
    for member in members:
        p = cast("PlantedParams", member.params)
        if p.odd == "failed":
            raise RuntimeError("planted")
        value = np.array(ODD.get(p.odd, p.value))
        is_lost = p.odd == "diverged"
        status, reason = ("diverged", "planted") if is_lost else ("ok", "")
        outcomes.append(Outcome({"found": value}, status, reason))
    return outcomes


@pytest.fixture(autouse=True)
def planted():
    """Make the kind known, and forget it again."""
    with mock.patch.dict(kinds._added, {PLANTED.name: PLANTED}):
        computes(PLANTED.name)(_planted)
        yield
    del registry._implementations[PLANTED.name]


STUDY = """
study: planted
axes:
  run: {{{runs}}}
stages:
  node: {{use: toy.planted, value: "${{run.value}}", odd: "${{run.odd}}"}}
  mean: {{use: aggregate.summary, of: node, over: run, confidence: {confidence}}}
expect: [{expect}]
"""


def findings_of(runs, expect, confidence=0.95):
    """Run a study of these runs, and return what it finds."""
    written = ", ".join(f"r{n}: {run}" for n, run in enumerate(runs))
    text = STUDY.format(runs=written, confidence=confidence, expect=", ".join(expect))
    study = load_study(text, file="planted.yaml")
    opened = OpenedStudy(study, MemoryStore(), SourceFiles(Path()), Path("results"))
    options = RunOptions(workers=1, partial=True)
    run_study(study, opened.store, opened.files, options=options)
    return check(results_of(opened), study.expect)


def random_runs(draw, number):
    """Return runs as written, and the scale of their values."""
    scale = draw.choice([1e-6, 1.0, 1e6])
    runs = []
    for value in draw.normal(size=number).tolist():
        odd = str(draw.choice([*ODD])) if draw.random() < 0.15 else ""
        runs.append({"value": float(value * scale), "odd": odd})
    return runs, scale


def wanted_of(values, entry, confidence):
    """Return the verdict on a mean by SciPy, of values that are finite."""
    mean = float(np.mean(values)) if values else math.nan
    if not values:
        return "not measured"
    if len(values) < 2:
        return "undecided"
    sem = float(stats.sem(values))
    low, high = stats.t.interval(confidence, len(values) - 1, mean, sem)
    if "at_least" in entry:
        least = entry["at_least"]
        return (
            "agrees"
            if low >= least
            else "contradicted"
            if high < least
            else ("undecided")
        )
    if "within" in entry:
        first, last = (entry["value"] + x * entry["within"] for x in (-1, 1))
        if high < first or low > last:
            return "contradicted"
        is_outside = not first <= mean <= last
        return "undecided" if is_outside or sem > entry["within"] else "agrees"
    sd, n = entry["sd"], entry["n"]
    error = math.hypot(sd / math.sqrt(n), sem)
    welch = stats.ttest_ind_from_stats(
        mean,
        sem * math.sqrt(len(values)),
        len(values),
        entry["value"],
        sd,
        n,
        equal_var=False,
    ).pvalue
    fewer = min(n, len(values))
    cautious = 2 * stats.t.sf(abs(mean - entry["value"]) / error, fewer - 1)
    differs = welch < 0.05 and (fewer >= 5 or cautious < 0.05)
    if abs(mean - entry["value"]) > 3 * sd:
        return "contradicted" if differs else "undecided"
    if sem > sd or (welch < 0.05 and not differs):
        return "undecided"
    return "differs_in_mean" if differs else "agrees"


def random_entry(draw, scale):
    """Return what is expected of a mean, by a tolerance that is drawn."""
    value = float(draw.normal() * scale * draw.choice([0.3, 2.0, 20.0]))
    size = float(scale * draw.exponential() * draw.choice([0.1, 1.0, 3.0]))
    n = int(draw.integers(2, 12))
    return [
        {"at_least": value},
        {"value": value, "within": size},
        {"value": value, "sd": size, "n": n},
    ][draw.integers(3)]


@pytest.mark.parametrize("seed", range(15))
def test_verdicts_on_planted_means_are_those_of_scipy(seed):
    draw = np.random.default_rng(seed)
    runs, scale = random_runs(draw, int(draw.integers(1, RUNS + 1)))
    confidence = float(draw.choice([0.8, 0.95, 0.99]))
    entries = [random_entry(draw, scale) for _ in range(40)]
    written = []
    for entry in entries:
        numbers = ", ".join(f"{name}: {x!r}" for name, x in entry.items())
        is_named = "sd" not in entry and draw.random() < 0.5
        column = ", column: mean" if is_named else ""
        written.append(f"{{stage: mean, quantity: found, {numbers}{column}}}")
    found = findings_of(runs, written, confidence)
    values = [run["value"] for run in runs if not run["odd"]]
    wanted = [wanted_of(values, entry, confidence) for entry in entries]
    assert [finding.verdict for finding in found] == wanted
    assert counts(found) == counts([]) | Counter(wanted)
    assert all(f.reason for f in found if f.verdict == "undecided")
    odd = Counter(run["odd"] for run in runs)
    if odd["failed"] < len(runs):
        assert {f.failed for f in found} == {odd["failed"]}
        assert {f.left_out["diverged"] for f in found} == {odd["diverged"]}
        assert {f.left_out["nonfinite"] for f in found} == {odd["nan"] + odd["inf"]}


@pytest.mark.parametrize("seed", range(5))
def test_verdicts_on_planted_nodes_tell_what_became_of_each(seed):
    draw = np.random.default_rng(seed)
    runs, scale = random_runs(draw, 12)
    limit = float(draw.normal() * scale)
    found = findings_of(runs, [f"{{stage: node, quantity: found, at_most: {limit!r}}}"])
    assert len(found) == len(runs)
    for run, finding in zip(runs, found, strict=True):
        value = ODD.get(run["odd"], run["value"])
        is_there = math.isfinite(value)
        decided = "agrees" if value <= limit else "contradicted"
        assert finding.verdict == (decided if is_there else "not measured")
        told = {"failed": "failed", "diverged": "diverged", "inf": "infinite"}
        assert told.get(run["odd"], "") in finding.notes
        assert bool(finding.notes) == (run["odd"] in told)
        assert finding.as_json()["notes"] == finding.notes
