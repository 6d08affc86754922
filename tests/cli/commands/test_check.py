"""`curvflow check`: measured against expected."""

import json

import pytest

EXPECT = """
expect:
  - {{stage: {stage}, where: {{rule: sgd}}, quantity: {quantity}, value: {value},
     {tolerance}, source: "made up"}}
"""


@pytest.fixture
def ran(after, study):
    return after(study, ("run",))


def expecting(study, **entry):
    """Let the study expect something."""
    plain = study.read_text().partition("expect:")[0]
    study.write_text(plain + EXPECT.format(**entry))


def measured(curvflow, study):
    rows = json.loads(curvflow("show", study, "table", "--json").out)
    (row,) = [r for r in rows if r["rule"] == "sgd" and r["quantity"] == "trace"]
    return row["mean"], row["sem"]


def findings(said):
    return json.loads(said.out)["findings"]


@pytest.mark.parametrize(("off", "code"), [(2.9, 0), (-2.9, 0), (3.1, 3), (-3.1, 3)])
def test_without_runs_three_of_both_deviations_are_the_limit(curvflow, ran, off, code):
    mean, sem = measured(curvflow, ran)
    sd = 2 * sem
    value = mean + off * (sd**2 + sem**2) ** 0.5
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=f"sd: {sd}")
    said = curvflow("check", ran, "--json")
    assert said.code == code
    assert said.err == (
        "1 expectation with sd and without n: means are not compared. Add n, the runs "
        "of the source.\n"
    )
    (finding,) = findings(said)
    assert finding["scatter"] == pytest.approx((mean - value) / sd, rel=1e-6)
    assert finding["z"] is None
    assert finding["measured"] == mean


PLANTED = """
study: planted
axes: {seed: 12}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, epochs: 3, seed: "${seed}"}
  table: {use: aggregate.summary, of: fit, over: seed, quantities: final_train_loss}
expect:
"""
AT = "  - {stage: table, quantity: final_train_loss, "


@pytest.fixture
def planted_study(curvflow, tmp_path):
    """Return a study that was run, and the mean and its error that cases are off."""
    path = tmp_path / "planted.yaml"
    path.write_text(PLANTED.replace("expect:\n", ""))
    assert curvflow("run", path).code == 0
    (row,) = json.loads(curvflow("show", path, "table", "--json").out)
    return path, row["mean"], row["sem"]


def test_planted_cases_have_their_verdicts(curvflow, planted_study):
    path, mean, sem = planted_study
    sd = sem * 12**0.5
    cases = {  # by what is planted
        f"value: {mean + 0.1 * sem}, sd: {sd}, n: 12": "agrees",
        f"value: {mean + 6 * sem}, sd: {sd}, n: 12": "differs_in_mean",
        f"value: {mean + 4 * sd}, sd: {sd}, n: 12": "contradicted",
        f"value: {mean + 0.5 * sem}, sd: {0.5 * sem}, n: 12": "undecided",
        f"value: {mean + 1.8 * sem}, sd: {0.5 * sem}, n: 12": "undecided",
        f"value: {mean + 9 * sem}, sd: {0.5 * sem}, n: 12": "contradicted",
        f"value: {mean + sem}, se: {2 * sem}": "agrees",
        f"value: {mean + 9 * sem}, se: {2 * sem}": "contradicted",
        f"value: {mean + sem}, se: {0.1 * sem}": "undecided",
        f"at_least: {mean - 5 * sem}": "agrees",
        f"at_least: {mean - 0.5 * sem}": "undecided",
        f"at_least: {mean + 5 * sem}": "contradicted",
        f"at_least: {mean - 5 * sem}, at_most: {mean + 5 * sem}": "agrees",
        f"at_most: {mean - 5 * sem}": "contradicted",
        f"value: {mean + sem}, within: {2 * sem}": "agrees",
        f"value: {mean + 0.1 * sem}, within: {0.5 * sem}": "undecided",
        f"value: {mean + 9 * sem}, within: {2 * sem}": "contradicted",
    }
    path.write_text(PLANTED + "".join(f"{AT}{case}}}\n" for case in cases))
    said = curvflow("check", path, "--json")
    assert said.code == 3
    assert [one["verdict"] for one in findings(said)] == [*cases.values()]
    counted = json.loads(said.out)["counts"]
    expected = {verdict: [*cases.values()].count(verdict) for verdict in counted}
    assert counted == expected
    last = curvflow("check", path).out.splitlines()[-1]
    assert last == (
        "17 values: 6 contradicted, 1 differs_in_mean, 5 undecided, 5 agrees"
    )


def test_runs_that_diverged_are_told_beside_the_mean_without_them(curvflow, tmp_path):
    study = tmp_path / "diverging.yaml"
    rates = "[0.1, 0.2, 1.0e+9]"
    study.write_text(
        PLANTED.replace("{seed: 12}", f"{{rate: {rates}}}")
        .replace("lr: 0.1", 'lr: "${rate}"')
        .replace('seed: "${seed}"', "seed: 0")
        .replace("over: seed", "over: rate")
        + f"{AT}value: 0.7, within: 1.0}}\n"
    )
    assert curvflow("run", study).code == 0
    said = curvflow("check", study)
    assert "made without 1 diverged" in " ".join(said.out.split())
    (row,) = findings(curvflow("check", study, "--json"))
    assert (row["diverged"], row["nonfinite"], row["missing"]) == (1, 0, 0)


def test_a_deviation_that_is_next_to_nothing_makes_no_long_number(
    curvflow, planted_study
):
    path, mean, _ = planted_study
    path.write_text(f"{PLANTED}{AT}value: {mean + 1}, sd: 1.0e-12, n: 12}}\n")
    said = curvflow("check", path).out
    assert "-1.0e+12 sd of a run" in " ".join(said.split())


@pytest.mark.parametrize(
    ("planted", "code"),
    [
        ("value: {mean}, sd: {sd}, n: 12", 0),
        ("value: {far}, sd: {sd}, n: 12", 4),
        ("at_least: {mean}", 5),
        ("at_least: {far}", 3),
    ],
)
def test_each_verdict_has_an_exit_code(curvflow, planted_study, planted, code):
    path, mean, sem = planted_study
    facts = {"mean": mean, "sd": sem * 12**0.5, "far": mean + 6 * sem}
    path.write_text(f"{PLANTED}{AT}{planted.format(**facts)}}}\n")
    assert curvflow("check", path).code == code


def test_many_cells_are_corrected_on_request(curvflow, planted_study):
    path, mean, sem = planted_study
    # Two means that are 3.4 standard errors of both apart, among many that agree.
    near = f"value: {mean + 3.4 * sem}, sd: {sem * 12**0.5}, n: 12"
    same = f"value: {mean}, sd: {sem * 12**0.5}, n: 12"
    path.write_text(PLANTED + "".join(f"{AT}{one}}}\n" for one in [near, *[same] * 9]))
    alone, together = curvflow("check", path), curvflow("check", path, "--holm")
    assert (alone.code, together.code) == (4, 0)
    first, *_ = findings(curvflow("check", path, "--holm", "--json"))
    assert first["p_corrected"] == pytest.approx(10 * first["p_means"])


@pytest.mark.parametrize(
    ("limits", "code", "verdict"),
    [("[-1.0e+9, 1.0e+9]", 0, "agrees"), ("[1.0e+9, 2.0e+9]", 3, "contradicted")],
)
def test_limits_hold_without_a_standard_deviation(curvflow, ran, limits, code, verdict):
    expecting(
        ran, stage="table", quantity="trace", value=0.0, tolerance=f"within: {limits}"
    )
    said = curvflow("check", ran)
    assert said.code == code
    assert said.out.startswith(verdict)
    assert "table[rule=sgd] trace: " in said.out


def test_a_column_that_is_named_is_compared_without_an_error(curvflow, ran):
    expecting(
        ran,
        stage="table",
        quantity="trace",
        value=0.0,
        tolerance="within: 1.0e+9, column: count",
    )
    said = curvflow("check", ran)
    assert "table[rule=sgd] trace count: " in said.out
    (finding,) = findings(curvflow("check", ran, "--json"))
    assert finding["column"] == "count"
    assert finding["measured"] == 2
    assert finding["sem"] is None


# Student's interval of two values reaches 12.7 standard errors to either side.
@pytest.mark.parametrize(
    ("off", "code"), [(1.9, 0), (-1.9, 0), (2.1, 5), (-2.1, 5), (13.6, 5), (13.8, 3)]
)
def test_so_many_standard_errors_are_enough_with_a_distance(curvflow, ran, off, code):
    mean, sem = measured(curvflow, ran)
    tolerance = f"within: {sem}, within_sems: 2"
    value = mean + off * sem
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=tolerance)
    said = curvflow("check", ran)
    assert said.code == code
    assert "or within 2 standard errors" in said.out
    tolerance = f"within: {20 * sem}, within_sems: 2"
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=tolerance)
    assert curvflow("check", ran).code == 0


def test_axes_left_out_mean_every_label(curvflow, ran):
    expecting(
        ran, stage="trace", quantity="trace", value=0.0, tolerance="within: 1.0e+9"
    )
    found = findings(curvflow("check", ran, "--json"))
    assert [f["where"] for f in found] == [
        {"seed": 0, "rule": "sgd"},
        {"seed": 1, "rule": "sgd"},
    ]
    assert all(f["sem"] > 0 for f in found)


def test_a_quantity_without_a_standard_error_is_compared_as_well(curvflow, ran):
    expecting(
        ran, stage="eigen", quantity="iterations", value=0.0, tolerance="within: 1.0e+9"
    )
    said = curvflow("check", ran, "--json")
    found = findings(said)
    assert [f["verdict"] for f in found] == ["agrees", "agrees"]
    assert {f["sem"] for f in found} == {None}


@pytest.mark.parametrize(
    ("limits", "code"),  # 3 of 3: the interval is 0.29 to 1
    [("[0.0, 1.0]", 0), ("[1.0, 1.0]", 5), ("[0.0, 0.5]", 5), ("[0.0, 0.2]", 3)],
)
def test_a_coverage_is_compared_by_the_share_that_is_held(
    curvflow, tmp_path, limits, code
):
    study = tmp_path / "covered.yaml"
    study.write_text(f"""
study: covered
axes: {{seed: 3}}
stages:
  matrix: {{use: data.random_matrix, size: 6, seed: "${{seed}}"}}
  spectrum: {{use: probe.spectrum, matrix: matrix, num_runs: 1, num_steps: 3}}
  exact: {{use: probe.dense, matrix: matrix}}
  cover: {{use: aggregate.coverage, of: spectrum, truth: exact, quantities: zero_mass,
          repetitions: seed}}
expect:
  - {{stage: cover, quantity: zero_mass, value: 1, within: {limits}, source: "one run"}}
""")
    assert curvflow("run", study).code == 0
    said = curvflow("check", study, "--json")
    assert said.code == code
    assert findings(said)[0]["measured"] == 1


def test_what_is_expected_stands_on_one_line(curvflow, study):
    expecting(
        study, stage="table", quantity="trace", value=1.0, tolerance="within: 0.25"
    )
    study.write_text(study.read_text().replace("table", "table_of_the_two_traces"))
    lines = curvflow("check", study).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "expected 1 in [0.75, 1.25]; its node has no result" in map(str.strip, lines)
    assert lines[-2:] == [
        "1 value: 0 contradicted, 0 differs_in_mean, 1 not measured, 0 undecided, 0",
        "  agrees",
    ]


def test_what_was_not_measured_is_not_passed_over(curvflow, study):
    expecting(
        study, stage="table", quantity="trace", value=1.0, tolerance="within: 1.0"
    )
    said = curvflow("check", study)
    assert said.code == 1
    assert said.out.startswith("not measured")


EPOCHS = """
study: epochs
axes: {rule: {a: {kept: {every: 2}}, b: {kept: {every: 3}}}, seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 7, checkpoints: "${rule.kept}"}
  norms: {use: probe.norms, weights: fit, at: all}
  table: {use: aggregate.summary, of: norms, over: seed}
expect:
"""


@pytest.mark.parametrize(
    ("stage", "where", "verdicts"),
    [
        ("norms", "{rule: a, epoch: 2}", ["agrees", "agrees"]),
        ("table", "{rule: a, epoch: 2}", ["agrees"]),
        ("norms", "{rule: a, epoch: 3}", ["not measured"]),
        ("table", "{rule: a, epoch: 3}", ["not measured"]),
        ("norms", "{epoch: 3}", ["agrees", "agrees"]),
    ],
)
def test_labels_that_no_node_has_together_are_not_passed_over(
    curvflow, tmp_path, stage, where, verdicts
):
    study = tmp_path / "epochs.yaml"
    expected = f"{{stage: {stage}, where: {where}, quantity: norm_l2, at_least: 0}}"
    study.write_text(f"{EPOCHS}  - {expected}\n")
    assert curvflow("run", study).code == 0
    said = curvflow("check", study, "--json")
    found = findings(said)
    assert [one["verdict"] for one in found] == verdicts
    assert json.loads(said.out)["counts"]["not measured"] == said.code
    assert {"no node" in one["reason"] for one in found} == {bool(said.code)}


def test_a_row_that_is_not_there_is_named_beside_the_nearest(curvflow, planted_study):
    path, *_ = planted_study
    path.write_text(
        f"{PLANTED}  - {{stage: table, quantity: fti.final_train_loss, at_least: 0}}\n"
    )
    said = curvflow("check", path)
    words = " ".join(said.out.split())
    assert said.code == 1
    assert "no such row (Did you mean 'final_train_loss'?)" in words


@pytest.mark.parametrize(
    ("stage", "quantity", "message"),
    [
        ("fit", "final_train_loss of it", "expected a quantity of 'fit'"),
        ("joined", "final_train_loss", "expected a table of quantities"),
    ],
)
def test_what_can_never_be_measured_is_refused(
    curvflow, tmp_path, stage, quantity, message
):
    study = tmp_path / "refused.yaml"
    joined = "  joined: {use: aggregate.join, of: fit, rows: seed}\n"
    text = PLANTED.replace("expect:", f"{joined}expect:")
    study.write_text(f"{text}  - {{stage: {stage}, quantity: {quantity}, at_least: 0}}")
    said = curvflow("check", study)
    assert (said.code, message in said.err) == (2, True)


def test_a_study_may_expect_nothing(curvflow, ran):
    said = curvflow("check", ran)
    verdict, example, total = said.out.splitlines()
    assert total == "0 values: 0 contradicted, 0 differs_in_mean, 0 undecided, 0 agrees"
    assert (said.code, verdict.startswith("the study expects nothing; ")) == (0, True)
    assert len(verdict) <= 80
    ran.write_text(ran.read_text() + example)  # it can be pasted as it is
    said = curvflow("check", ran)
    assert said.code in (0, 3, 4, 5), said.err
    assert "table[rule=sgd] trace: " in " ".join(said.out.split())
