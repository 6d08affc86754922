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


@pytest.mark.parametrize(("off", "code"), [(2.9, 0), (-2.9, 0), (3.1, 3), (-3.1, 3)])
def test_three_combined_standard_deviations_are_the_limit(curvflow, ran, off, code):
    mean, sem = measured(curvflow, ran)
    sd = 0.5 * sem
    value = mean + off * (sd**2 + sem**2) ** 0.5
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=f"sd: {sd}")
    said = curvflow("check", ran, "--json")
    assert said.code == code
    (finding,) = json.loads(said.out)
    assert finding["z"] == pytest.approx(-off, rel=1e-6)
    assert finding["measured"] == mean


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
    (finding,) = json.loads(curvflow("check", ran, "--json").out)
    assert finding["column"] == "count"
    assert finding["measured"] == 2
    assert finding["sem"] is None


@pytest.mark.parametrize(("off", "code"), [(1.9, 0), (-1.9, 0), (2.1, 3), (-2.1, 3)])
def test_so_many_standard_errors_are_enough_with_a_distance(curvflow, ran, off, code):
    mean, sem = measured(curvflow, ran)
    tolerance = f"within: {sem}, within_sems: 2"
    value = mean + off * sem
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=tolerance)
    said = curvflow("check", ran)
    assert said.code == code
    assert "or within 2 standard errors" in said.out
    tolerance = f"within: {3 * sem}, within_sems: 2"
    expecting(ran, stage="table", quantity="trace", value=value, tolerance=tolerance)
    assert curvflow("check", ran).code == 0


def test_axes_left_out_mean_every_label(curvflow, ran):
    expecting(
        ran, stage="trace", quantity="trace", value=0.0, tolerance="within: 1.0e+9"
    )
    findings = json.loads(curvflow("check", ran, "--json").out)
    assert [f["where"] for f in findings] == [
        {"seed": 0, "rule": "sgd"},
        {"seed": 1, "rule": "sgd"},
    ]
    assert all(f["sem"] > 0 for f in findings)


def test_a_quantity_without_a_standard_error_is_compared_as_well(curvflow, ran):
    expecting(
        ran, stage="eigen", quantity="iterations", value=0.0, tolerance="within: 1.0e+9"
    )
    said = curvflow("check", ran, "--json")
    findings = json.loads(said.out)
    assert [f["verdict"] for f in findings] == ["agrees", "agrees"]
    assert {f["sem"] for f in findings} == {None}


@pytest.mark.parametrize(("limits", "code"), [("[1.0, 1.0]", 0), ("[0.0, 0.5]", 3)])
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
    assert json.loads(said.out)[0]["measured"] == 1


def test_what_is_expected_stands_on_one_line(curvflow, study):
    expecting(
        study, stage="table", quantity="trace", value=1.0, tolerance="within: 0.25"
    )
    study.write_text(study.read_text().replace("table", "table_of_the_two_traces"))
    lines = curvflow("check", study).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == "expected 1 in [0.75, 1.25]"


def test_what_was_not_measured_is_not_passed_over(curvflow, study):
    expecting(
        study, stage="table", quantity="trace", value=1.0, tolerance="within: 1.0"
    )
    said = curvflow("check", study)
    assert said.code == 1
    assert said.out.startswith("not measured")


def test_a_study_may_expect_nothing(curvflow, ran):
    said = curvflow("check", ran)
    verdict, example = said.out.splitlines()
    assert (said.code, verdict.startswith("the study expects nothing; ")) == (0, True)
    assert len(verdict) <= 80
    ran.write_text(ran.read_text() + example)  # it can be pasted as it is
    said = curvflow("check", ran)
    assert said.code in (0, 3), said.err
    assert "table[rule=sgd] trace: " in " ".join(said.out.split())
