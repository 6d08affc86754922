"""What a report says, gathered from a study and its store, without a browser."""

import hashlib
import shutil
import subprocess
from unittest import mock

import pytest

import curvflow
from curvflow.errors import UnknownNameError
from curvflow.flows.report.basis import compact
from curvflow.flows.report.gather import gather, open_basis
from curvflow.flows.report.render import render, write_report
from curvflow.flows.report.reproduce import _commit, _named
from curvflow.flows.report.request import ReportRequest
from curvflow.schemas import kinds
from tests.report.studies import MARKUP, STUDY

SMALL = """\
study: small
axes: {seed: 3, rule: {slow: {lr: 0.25}, fast: {lr: 0.75}}}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${rule.lr}", seed: "${seed}"}
  llc: {use: toy.sample, weights: fit, seed: "${seed}"}
  table: {use: aggregate.summary, of: llc, over: seed}
"""


@pytest.fixture
def small(toys, tmp_path):
    study = tmp_path / "small.yaml"
    study.write_text(SMALL)
    return study


def page_of(study, **asked):
    return gather(open_basis(ReportRequest(study, **asked)))


def stage_of(content, name):
    (found,) = [one for one in (*content.tables, *content.stages) if one.name == name]
    return found


def texts(row):
    return [cell.text for cell in row.cells]


def test_the_first_screen_states_the_request_and_whether_to_trust_it(written):
    overview = written.content.overview
    assert overview.question == (
        "Is a page safe from the names that a study gives? One rate is too large on "
        "purpose, and one seed fails."
    )
    assert [(axis.name, axis.size) for axis in overview.axes] == [
        ("seed", 4),
        ("rule", 3),
    ]
    assert overview.axes[0].labels == "0, 1, 2, 13"
    marks = {mark.target: (mark.tone, mark.text) for mark in overview.marks}
    assert marks["troubles"][0] == "bad"
    assert "failed" in marks["troubles"][1]
    assert marks["expectations"] == ("bad", "1 of 3 expectations contradicted")
    assert marks["crosschecks"][0] == "bad"
    assert marks["calibration"][0] == "doubt"
    assert overview.ran.startswith("run 1, done, with failures")


def test_counts_of_nodes_without_a_result_are_those_of_the_run(written, toys):
    found = written.content.troubles
    counts = open_basis(ReportRequest(written.study)).run.counts
    for status in ("failed", "diverged"):
        own = {stage: n for stage, n in counts[status].items() if n}
        assert found.stages[status] == own
    assert found.stages["failed"] == {"fit": 3}
    assert found.stages["diverged"]["fit"] == 3
    assert found.stages["missing"]["last"] == 3
    reasons = {one.node: one.reason for one in found.nodes}
    assert "seed 13 is unlucky" in reasons["fit[seed=13,rule=slow]"]
    assert reasons["fit[seed=0,rule=huge]"] == "non-finite weight at epoch 2"
    assert "curvflow why" in found.traceback


def test_expectations_stand_with_z_and_verdict_the_contradicted_first(written):
    first, second, third = written.content.expectations.comparisons
    assert (first.verdict, second.verdict) == ("contradicted", "not measured")
    assert first.z == f"{(3.23456789 - 1.2) / 0.05:+.1f}"
    assert first.measured == "3.235"
    assert first.value == "1.2, sd 0.05"
    assert third.verdict == "agrees"
    assert third.source == "a book & its <b>table</b>"


def test_cross_checks_and_samplers_have_their_verdicts_the_doubtful_first(written):
    checks = written.content.crosschecks
    given = [one for one in checks.nodes if one.is_given]
    assert [one.word for one in given] == ["inconsistent"] * 2 + ["consistent"] * 2
    assert checks.given == 4
    assert {one.node for one in given[:2]} == {
        "apart[rule=slow]",
        f"apart[rule={MARKUP}]",
    }
    samplers = written.content.calibrations
    # No run of a sampler is hidden, not even where what it stands on diverged.
    assert len(samplers.nodes) == 12
    drifting = [one for one in samplers.nodes if one.word == "drifting"]
    assert drifting[0].reason == f"R-hat {MARKUP}"
    assert drifting[0].value == "2.235 \u00b1 0.012"


def test_each_sampler_has_its_verdict_though_nodes_are_named_alike(toys, tmp_path):
    study = tmp_path / "alike.yaml"
    study.write_text("""\
study: alike
axes:
  one: {"1": {lr: 0.25}, "1,two=2": {lr: 0.5}}
  two: {"3": {seed: 1}, "2,two=3": {seed: 2}}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${one.lr}"}
  llc: {use: toy.sample, weights: fit, seed: "${two.seed}"}
""")
    curvflow.run(study, workers=1)
    content = page_of(study)
    found = [(one.node, one.value[:5]) for one in content.calibrations.nodes]
    assert found == [
        ("llc[one=1,two=3]", "2.235"),
        ("llc[one=1,two=2,two=3]", "2.235"),
        ("llc[one=1,two=2,two=3]", "3.235"),
        ("llc[one=1,two=2,two=2,two=3]", "3.235"),
    ]
    assert len({one.origin for one in content.calibrations.nodes}) == 4


def test_numbers_have_the_digits_that_their_error_allows_and_all_of_them_as_well(
    written,
):
    (table, _) = stage_of(written.content, "llc").grids
    place = [head.field for head in table.heads].index("llc_mean")
    cell = table.rows[0].cells[place]
    assert (cell.text, cell.full) == ("1.235", "1.23456789")
    assert table.heads[place].about.startswith("the estimate")


def test_what_is_the_same_in_all_rows_is_said_once(small):
    curvflow.run(small, workers=1)
    (scalars, chains) = stage_of(page_of(small), "llc").grids
    said = {head.field: cell.full or cell.text for head, cell in scalars.same}
    assert said == {"llc_sem": "0.0123", "num_matvecs": "10", "num_backward": "0"}
    assert chains.name == "llc by chain"
    assert [head.units for head in chains.heads][-1] == "loss / parameter^2"
    assert len(chains.rows) == 6 * 3


def test_a_node_without_values_has_a_row_that_says_why(written):
    grid = stage_of(written.content, "last").grids[0]
    fields = [head.field for head in grid.heads]
    rows = [dict(zip(fields, row.cells, strict=True)) for row in grid.rows]
    assert len(rows) == 12
    by_status = [row["status"].text for row in rows]
    assert by_status.count("missing") == 3
    bare = rows[by_status.index("missing")]
    assert (bare["status"].look, bare["square"].look) == ("missing", "lacking")


def test_every_row_names_its_node_digest_run_and_seeds(written):
    content = written.content
    (grid, *_) = stage_of(content, "llc").grids
    node, kind, digest, run, seeds, cost, state = content.origins[grid.rows[0].origin]
    assert node == "llc[seed=0,rule=slow]"
    assert kind == "toy.sample, version 3"
    assert len(digest) == 12
    assert (run, seeds, state) == ("1", "seed 0", "")
    assert cost.endswith(" s on cpu")
    (table, *_) = stage_of(content, "table").grids
    assert content.origins[table.rows[0].origin][4] == "seed 0, 1, 2, 13"


def test_cost_sums_the_receipts_and_what_kinds_count(written, toys):
    basis = open_basis(ReportRequest(written.study))
    cost = written.content.cost
    assert cost.seconds == pytest.approx(sum(r.seconds for r in basis.receipts()))
    assert sum(one.share for one in cost.stages) == pytest.approx(1)
    by_stage = {one.stage: one for one in cost.stages}
    assert by_stage["llc"].work.endswith("products")
    assert "passes" not in by_stage["llc"].work  # of which there were none
    assert by_stage["llc"].executed == basis.run.counts["executed"]["llc"]


def test_many_nodes_are_summed_up_and_the_command_for_all_is_named(small, monkeypatch):
    curvflow.run(small, workers=1)
    monkeypatch.setattr("curvflow.flows.report.stages.MOST_NODES", 4)
    monkeypatch.setattr("curvflow.flows.report.grids.MOST_ROWS", 5)
    found = stage_of(page_of(small), "llc")
    scalars, chains = found.grids
    assert (len(scalars.rows), len(chains.rows), chains.more) == (4, 5, 7)
    assert found.notes[:2] == [
        "The first 4 of 6 nodes are shown; the others: 2 ok.",
        "llc by chain: the first 5 of 12 rows are shown.",
    ]
    assert found.command.startswith("curvflow show small.yaml llc --csv")


def test_an_earlier_run_is_reported_as_it_was(small):
    curvflow.run(small, workers=1)
    small.write_text(SMALL.replace("seed: 3", "seed: 2"))
    curvflow.run(small, workers=1)
    then, now = page_of(small, run=1), page_of(small)
    assert [axis.size for axis in then.overview.axes] == [3, 2]
    assert [axis.size for axis in now.overview.axes] == [2, 2]
    assert then.text.note.startswith("As resolved for run 1")
    assert "seed: 3" in then.text.text
    assert then.reproduction.digest != now.reproduction.digest
    assert then.reproduction.commands[-1].endswith("--run 1")
    file, _ = write_report(ReportRequest(small, run=1))
    assert file.name == "report-run-1.html"
    with pytest.raises(UnknownNameError):
        page_of(small, run=7)


def test_what_an_earlier_run_could_not_measure_is_reported_as_not_measured(small):
    text = SMALL.replace(", fast: {lr: 0.75}", "")
    small.write_text(text)
    curvflow.run(small, workers=1)
    expect = "{stage: llc, where: {seed: 0, rule: fast}, quantity: llc_mean, value: 1, "
    small.write_text(f"{SMALL}expect:\n  - {expect}within: 9}}\n")
    (then,), (now,) = (
        page_of(small, run=run).expectations.comparisons for run in (1, None)
    )
    assert (then.verdict, then.origin, now.verdict) == ("not measured", -1, now.verdict)
    curvflow.run(small, workers=1)
    assert page_of(small).expectations.comparisons[0].verdict == "agrees"
    expect = "{stage: further, where: {seed: 0}, quantity: final, value: 1, within: 9}"
    more = "  further: {use: toy.fit, data: data, lr: 1.5, seed: '${seed}'}\n"
    small.write_text(f"{SMALL}{more}expect:\n  - {expect}\n")
    (then,) = page_of(small, run=1).expectations.comparisons
    assert (then.node, then.verdict) == ("further[seed=0]", "not measured")


def test_a_kind_that_is_known_no_more_is_named(small):
    curvflow.run(small, workers=1)
    small.write_text(
        SMALL.replace("toy.sample", "toy.probe").replace(
            'weights: fit, seed: "${seed}"}', "weights: fit}"
        )
    )
    known = dict(kinds._added)
    with mock.patch.dict(kinds._added):
        del kinds._added["toy.sample"]
        found = stage_of(page_of(small, run=1), "llc")
    assert known.keys() == kinds._added.keys()
    assert found.notes == [
        "Kind toy.sample is not declared here, so its results cannot be shown."
    ]
    assert found.counts == [("ok", 6)]


def test_the_digest_of_all_results_is_that_of_the_same_study_elsewhere(small, tmp_path):
    curvflow.run(small, workers=1)
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "small.yaml").write_text(SMALL)
    curvflow.run(other / "small.yaml", workers=1)
    one, two = page_of(small), page_of(other / "small.yaml")
    assert one.reproduction.digest == two.reproduction.digest
    text = hashlib.sha256(small.read_bytes()).hexdigest()
    assert one.reproduction.text_digest == two.reproduction.text_digest == text


OWN = """\
study: own
axes:
  seed: 2
  points: [points.npz, "${seed}"]
stages:
  data: {use: data.array, path: points.npz}
  more: {use: data.factory, factory: "shapes.rings:make"}
  far: {use: data.array, path: ../far.npz}
  fit: {use: train, data: data, model: {factory: "nets:make", kwargs: {name: "%s"}}}
"""


def test_files_next_to_a_study_that_it_names_are_listed(tmp_path):
    folder = tmp_path / "study"
    (folder / "shapes").mkdir(parents=True)
    (folder / "data").mkdir()
    named = ("../far.npz", "nets.py", "points.npz", "shapes/rings.py")
    for name in (*named, "other.py", "seed"):
        (folder / name).write_text(name)
    found = _named(OWN % ("word " * 100), folder)
    assert [str(path.relative_to(folder)) for path in found] == list(named)


def test_the_page_shows_what_such_files_hold(small):
    (small.parent / "toy.points").write_text("of a kind's name, by chance")
    page = page_of(small)
    digest = hashlib.sha256(b"of a kind's name, by chance").hexdigest()
    assert page.reproduction.files == [("toy.points", digest)]
    assert f"<code>{digest}</code>" in render(page)


def test_the_commit_of_a_checkout_is_reported_and_whether_files_are_other(tmp_path):
    def git(*words):
        own = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        done = ["git", "-C", str(tmp_path), *own, *words]
        return subprocess.run(done, check=True, capture_output=True, text=True).stdout

    assert _commit(tmp_path) == ""
    git("init")
    assert _commit(tmp_path) == ""
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    git("tag", "-a", "v1", "-m", "one")
    commit = git("rev-parse", "HEAD").strip()
    assert _commit(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert _commit(tmp_path) == f"{commit} (changed)"


def test_methods_are_cited_by_the_sources_that_kinds_state(written):
    told = dict(written.content.reproduction.methods)
    assert "Welch (1947)" in told["probe.crosscheck"]
    assert not [name for name in told if name.startswith(("figure.", "toy."))]
    assert written.content.reproduction.sources == [
        "a book & its <b>table</b>",
        "another",
    ]


def test_a_damaged_result_hides_no_other(small):
    curvflow.run(small, workers=1)
    basis = open_basis(ReportRequest(small))
    lost = basis.results.view("llc").receipts[0].payload
    for path in (small.parent / ".curvflow").rglob(f"*{lost}*"):
        path.write_bytes(b"torn")
    content = page_of(small)
    assert content.unreadable
    assert content.overview.marks[1].text.endswith("cannot be read")
    assert stage_of(content, "table").grids[0].rows


def test_removed_arrays_are_reported_with_the_command_that_brings_them_back(small):
    curvflow.run(small, workers=1)
    basis = open_basis(ReportRequest(small))
    gone = {one.payload for one in basis.results.view("llc").receipts}
    basis.opened.store.evict(sorted(gone), "old")
    for payload in gone:
        for path in (small.parent / ".curvflow" / "payloads").rglob(f"*{payload}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    content = page_of(small)
    assert content.unreadable == []
    assert content.troubles.stages == {"removed": {"llc": 6}}
    assert content.troubles.revive == "curvflow run small.yaml --revive llc"
    (grid,) = stage_of(content, "llc").grids
    status = [head.field for head in grid.heads].index("status")
    assert {row.cells[status].look for row in grid.rows} == {"removed"}
    assert content.overview.marks[0].text == "6 removed of 15 nodes"


def test_a_study_that_never_ran_has_a_page_that_says_so(small):
    content = page_of(small)
    assert content.overview.ran == "no run yet"
    assert content.overview.cost == "nothing computed yet"
    assert content.troubles.count("missing") == 1 + 6 + 6 + 2
    assert not (small.parent / ".curvflow").exists()


def test_a_run_with_other_overrides_is_not_reported(small):
    curvflow.run(small, workers=1)
    curvflow.run(small, workers=1, overrides=["axes.seed=4"])
    for overrides, ran in ([], "run 1, "), (["axes.seed=4"], "run 2, "):
        assert page_of(small, overrides=overrides).overview.ran.startswith(ran)
    assert page_of(small, overrides=["axes.seed=5"]).overview.ran.startswith("run 2, ")


def test_results_of_several_environments_are_distinguished(small, monkeypatch):
    curvflow.run(small, workers=1)
    monkeypatch.setattr(
        "curvflow.flows.run.run.environment", lambda: {"python": "3.99", "torch": "9.9"}
    )
    curvflow.run(small, workers=1, overrides=["axes.seed=4"])
    content = page_of(small, overrides=["axes.seed=4"])
    assert not content.environment.is_uniform
    assert dict(content.environment.rows)["Python"][1] == "3.99"
    assert dict(content.environment.rows)["numpy"][1] == "not recorded"
    assert "Results from 2 environments" in [one.text for one in content.overview.marks]


def test_results_of_code_that_has_changed_are_reported(small, monkeypatch):
    curvflow.run(small, workers=1)
    assert open_basis(ReportRequest(small)).drifts == []
    drift = mock.Mock(kind="toy.fit", nodes=[None] * 6)
    monkeypatch.setattr("curvflow.flows.plan.plan.find_drifts", lambda *_: [drift])
    content = page_of(small)
    mark = {one.target: one for one in content.overview.marks}["code"]
    assert (mark.tone, mark.text) == ("doubt", "Code has changed for 6 results")
    assert "toy.fit (6)" in render(content)
    assert "curvflow plan small.yaml" in render(content)


def test_overrides_are_reported_with_the_resolved_study_and_in_every_command(small):
    asked = {"overrides": ["axes.seed=2"], "store": "/somewhere/of/mine/store"}
    content = page_of(small, **asked)
    assert content.text.note == "Resolved, with --set axes.seed=2."
    assert content.overview.modifications == "--set axes.seed=2"
    assert "seed: 2" in content.text.text
    (command,) = [one for one in content.reproduction.commands if " run " in one]
    assert command == "curvflow run small.yaml --store store --set axes.seed=2"


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([0, 1, 2, 3], "0\u20133"),
        ([0, 1], "0, 1"),
        ([1, 3, 5], "1, 3, 5"),
        ([True, False], "True, False"),
        (list("abcdefgh"), "a, b, c, d, e, f, ... (8)"),
    ],
)
def test_labels_are_listed_shortly(labels, told):
    assert compact(labels) == told


def test_passwords_and_folders_stay_out_of_commands(tmp_path):
    asked = ReportRequest(tmp_path / "s.yaml", store="s3://me:secret@bucket/x")
    assert asked.command("show", "a b") == (
        "curvflow show s.yaml 'a b' --store s3://bucket/x"
    )


def test_the_study_has_every_sort_of_trouble(written):
    assert STUDY.count("{use:") == len(written.content.overview.stages)
    assert {*written.content.troubles.stages} == {"failed", "diverged", "missing"}
