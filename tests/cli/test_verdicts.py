"""Estimates that are not converged are told wherever results are summed up."""

import json

import pytest

STUDY = """\
study: chains
axes: {seed: 2, rate: {small: 1.0e-9, wild: 1.0e+6}}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [2]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 2}
  llc: {use: probe.llc, weights: fit, seed: "${seed}", calibrate: none,
        sampling_method: sgld, lr: "${rate}", localization: 1.0, num_burnin_steps: 0,
        num_draws: 16, num_chains: 2}
  wbic: {use: probe.wbic, draws: llc}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: llc, over: seed, quantities: llc_mean}
"""
COMPARED = """\
study: compared
axes: {seed: 3, hold: {weak: 1.0, strong: 50.0}}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [2]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 2}
  llc: {use: probe.llc, weights: fit, seed: "${seed}", calibrate: none,
        sampling_method: sgld, lr: 1.0e-9, localization: "${hold}",
        num_burnin_steps: 0, num_draws: 16, num_chains: 2}
  compared: {use: aggregate.compare, of: llc, along: hold, baseline: weak, over: seed,
             quantities: llc_mean, num_resamples: 100}
  norms: {use: probe.norms, weights: fit}
expect:
  - {stage: compared, quantity: "llc_mean: strong - weak", value: 0, within: 1000}
  - {stage: llc, where: {hold: weak}, quantity: llc_mean, value: 0, within: 1000}
  - {stage: norms, quantity: norm_l2, value: 0, within: 1000}
"""
ASSUMED = """\
study: assumed
axes: {floor: {unknown: null, known: 1.0e-5}}
stages:
  matrix: {use: data.random_matrix, size: 200, ensemble: marchenko_pastur, q: 0.9}
  logdet: {use: probe.logdet, matrix: matrix, method: slq, floor: "${floor}",
           num_runs: 4, num_steps: 20}
expect:
  - {stage: logdet, quantity: logdet, value: 0, within: 100000}
  - {stage: logdet, quantity: smallest, value: 0, within: 100000}
"""
LINES = [
    "4 of 4 estimates of llc unconverged: 2 drifting, 2 failed",
    "4 of 4 estimates of wbic unconverged: 2 drifting, 2 failed",
]


@pytest.fixture
def chains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chains.yaml"
    path.write_text(STUDY)
    return path


def test_run_and_show_count_them_by_verdict(curvflow, chains):
    for command in ("run", "run", "show"):
        lines = curvflow(command, chains).out.splitlines()
        assert [line for line in lines if "unconverged" in line] == LINES
        assert max(map(len, lines)) <= 80
    earlier = curvflow("show", chains, "--run", "1").out
    assert earlier.splitlines()[-2:] == LINES


def test_json_has_them_next_to_what_was_there(curvflow, chains):
    said = json.loads(curvflow("run", chains, "--json").out)
    assert said["unconverged"] == {"llc": 4, "wbic": 4}
    assert said["verdicts"]["llc"] == {"drifting": 2, "failed": 2}
    assert said["diverged"]["llc"] == 2
    shown = json.loads(curvflow("show", chains, "--json").out)
    assert shown["llc"]["unconverged"] == 4
    assert shown["llc"]["verdicts"] == {"drifting": 2, "failed": 2}
    assert (shown["llc"]["ok"], shown["llc"]["diverged"]) == (2, 2)
    assert "unconverged" not in shown["norms"]


def test_what_stands_on_failed_chains_says_so_in_its_rows(curvflow, chains):
    curvflow("run", chains)
    rows = json.loads(curvflow("show", chains, "wbic", "--json").out)
    wild = [row for row in rows if row["rate"] == "wild"]
    assert len(wild) == 2
    for row in wild:
        assert (row["status"], row["verdict"]) == ("diverged", "failed")
        assert "2 of 2 chains left the finite numbers" in row["reason"]
    alone = ("--variable", "wbic", "--json")
    rows = json.loads(curvflow("show", chains, "wbic", *alone).out)
    assert all("verdict" not in row for row in rows)


def test_the_page_says_of_failed_chains_that_they_failed_and_why(curvflow, chains):
    curvflow("run", chains)
    curvflow("report", chains, "-o", "page.html")
    page = chains.with_name("page.html").read_text()
    stages = page[page.index('id="stages"') :]
    for stage in ("llc", "wbic"):
        start = stages.index(f'data-name="{stage}"')
        assert stages[start : stages.index("</table>", start)].count("<td>failed") == 2
    assert "2 nodes diverged: input probe.llc diverged: 2 of 2 chains left" in stages


@pytest.fixture
def compared(chains, after):
    chains.write_text(COMPARED)
    return after(chains, ("run",))


def test_a_table_says_what_it_is_made_of(curvflow, compared):
    said = curvflow("show", compared, "compared")
    assert said.err == (
        "compared: made with 6 of 6 estimates of llc unconverged: 6 drifting\n"
    )
    row = json.loads(curvflow("show", compared, "compared", "--json").out)[0]
    assert row["differing_settings"] == "localization 1 to 50"
    assert row["unconverged"] == row["count"] == 3
    assert curvflow("show", compared, "norms").err == ""


def test_what_is_expected_says_what_of_it_is_in_doubt(curvflow, compared):
    lines = " ".join(curvflow("check", compared).out.split())
    assert lines.count("1 unconverged estimate") == 3
    assert (
        "; 3 unconverged pairs; made at different settings, localization 1 to 50"
    ) in lines
    rows = json.loads(curvflow("check", compared, "--json").out)["findings"]
    assert [row["unconverged"] for row in rows] == [3, 1, 1, 1, None, None, None]
    assert rows[0]["verdict"] == "agrees"
    assert rows[0]["differing_settings"] == "localization 1 to 50"


def test_the_page_says_so_next_to_the_verdict_and_the_table(curvflow, compared):
    curvflow("report", compared, "-o", "page.html")
    page = compared.with_name("page.html").read_text()
    assert "7 of 7 expectations agree, 4 of them from estimates in doubt" in page
    assert page.count("1 unconverged estimate</td>") == 3
    assert "Made with 6 of 6 estimates of llc unconverged: 6 drifting." in page
    assert '<p class="note">Localization of llc: 1 to 50 in 6 estimates.</p>' in page
    assert (
        "Settings differ between the estimates compared in 1 of 1 row, which may "
        "explain differences."
    ) in page


def test_what_rests_on_an_assumption_says_which(curvflow, chains):
    chains.write_text(ASSUMED)
    curvflow("run", chains)
    rows = json.loads(curvflow("check", chains, "--json").out)["findings"]
    assert [row["assumed"] for row in rows] == ["definite", "", "", ""]
    lines = " ".join(curvflow("check", chains).out.split())
    assert lines.count("assumed, not shown: definite") == 1
    curvflow("report", chains, "-o", "page.html")
    page = chains.with_name("page.html").read_text()
    assert page.count("assumed, not shown: definite") == 1
