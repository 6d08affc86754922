"""Power laws: against SciPy, closed forms and known laws."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.scaling import ScalingParams
from curvflow.schemas.study.study import load_study
from curvflow.tasks.statistics.power_laws import crossover, power_law, resampled_laws
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.scaling"
GIVEN = {"y": "trace", "along": "size", "over": "seed", "num_resamples": 400}
SIZES = (50, 100, 200, 400, 800)
LAWS = {"sgd": (3.0, -0.5), "adam": (1.0, -0.25)}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(laws=LAWS, seeds=6, noise=0.05, seed=0, diverged=()):
    random = np.random.default_rng(seed)
    return [
        node(
            {"size": size, "rule": rule, "seed": s},
            trace=factor * size**exponent * np.exp(noise * random.normal()),
            steps=size,
            diverged=(rule, size, s) in diverged,
        )
        for rule, (factor, exponent) in laws.items()
        for size in SIZES
        for s in range(seeds)
    ]


def tables(of, **params):
    """Return the laws and the crossings by name."""
    arrays = compute(KIND, of, **{**GIVEN, **params}).arrays
    result = []
    for dim in ("quantity", "crossing"):
        outputs = [v for v in find_kind(KIND).outputs if not v.optional]
        fields = [v.name for v in outputs if v.dims == (dim,)]
        names = arrays[dim].tolist()
        assert len(set(names)) == len(names)
        result.append(
            {
                n: {f: arrays[f][row].item() for f in fields}
                for row, n in enumerate(names)
            }
        )
    return result


ONE = {"sgd": LAWS["sgd"]}


def test_the_law_is_the_regression_of_scipy():
    of = nodes(ONE)
    (row,) = tables(of)[0].values()
    u, v = (np.log([n.coords["size"] for n in of]), np.log([n["trace"] for n in of]))
    known = stats.linregress(u, v)
    assert row["exponent"] == pytest.approx(known.slope, rel=1e-10)
    assert row["sem"] == pytest.approx(known.stderr, rel=1e-10)
    assert row["r_squared"] == pytest.approx(known.rvalue**2, rel=1e-10)
    t = stats.t.ppf(0.975, len(u) - 2)
    ends = known.slope + t * known.stderr * np.array([-1, 1])
    assert [row["low"], row["high"]] == pytest.approx(ends, rel=1e-10)
    factor = np.exp(known.intercept + t * known.intercept_stderr * np.array([-1, 0, 1]))
    results = [row[f"prefactor{end}"] for end in ("_low", "", "_high")]
    assert results == pytest.approx(factor, rel=1e-9)
    assert (row["count"], row["num_x"], row["x_units"]) == (30, 5, "1")
    assert row["y_units"] == "loss / parameter^2"


def test_a_law_without_noise_is_found_exactly_and_leaves_no_curve():
    (row,) = tables(nodes(ONE, noise=0.0))[0].values()
    result = [row["exponent"], row["prefactor"], row["r_squared"]]
    assert result == pytest.approx([-0.5, 3.0, 1.0], rel=1e-9)
    assert np.isnan(row["p_curved"]) or row["p_curved"] > 0.01


def test_intervals_hold_the_exponent_as_often_as_they_say():
    tries, held = 200, {"": 0, "bootstrap_": 0}
    for seed in range(tries):
        (row,) = tables(nodes(ONE, seeds=12, seed=seed))[0].values()
        for kind in held:
            held[kind] += row[f"{kind}low"] < -0.5 < row[f"{kind}high"]
    spread = 5 * (0.95 * 0.05 / tries) ** 0.5
    assert abs(held[""] / tries - 0.95) < spread
    assert held["bootstrap_"] / tries > 0.91 - spread  # percentiles of twelve seeds


def test_points_off_a_straight_line_are_seen():
    of = nodes(ONE, noise=0.01)
    for run in of:
        run.arrays["trace"] = run["trace"] * np.exp(
            0.1 * np.log(run.coords["size"]) ** 2
        )
    assert next(iter(tables(of)[0].values()))["p_curved"] < 1e-6
    p = [
        next(iter(tables(nodes(ONE, seed=s, seeds=3))[0].values()))["p_curved"]
        for s in range(200)
    ]
    below = np.mean(np.array(p) < 0.05)
    assert abs(below - 0.05) < 5 * (0.05 * 0.95 / 200) ** 0.5


def test_two_laws_cross_where_they_are_equal():
    laws, crossings = tables(nodes(noise=0.0), label="rule")
    assert list(laws) == ["trace against size: sgd", "trace against size: adam"]
    row = crossings["sgd / adam"]
    assert row["crossover"] == pytest.approx(3.0**4, rel=1e-9)
    assert row["inside"]


def test_one_repetition_has_no_bootstrap_of_its_crossing():
    laws, crossings = tables(nodes(seeds=1), label="rule")
    (row,) = crossings.values()
    assert row["crossover_low"] < row["crossover"] < row["crossover_high"]
    ends = [row["crossover_bootstrap_low"], row["crossover_bootstrap_high"]]
    ends += [law["bootstrap_low"] for law in laws.values()]
    assert np.isnan(ends).all()


def test_equal_y_have_no_slope_that_differs_from_zero():
    for y in (0.3, 0.7, 1.1):
        law = power_law(np.repeat([10.0, 20.0, 40.0], 7), np.full(21, y))
        assert (law.exponent, law.sem) == (0, 0)
        assert np.exp(law.intercept) == pytest.approx(y)


def test_the_interval_of_the_crossing_holds_it_as_often_as_it_says():
    tries, held = 200, {"": 0, "bootstrap_": 0}
    for seed in range(tries):
        row = tables(nodes(seeds=8, seed=seed), label="rule")[1]["sgd / adam"]
        for kind in held:
            ends = (row[f"crossover_{kind}{end}"] for end in ("low", "high"))
            low, high = ends
            held[kind] += low < 81.0 < high
    spread = 5 * (0.95 * 0.05 / tries) ** 0.5
    assert abs(held[""] / tries - 0.955) < spread
    assert held["bootstrap_"] / tries > 0.88 - spread


def test_exponents_that_are_not_distinguished_leave_the_crossing_without_an_end():
    laws = {"sgd": (3.0, -0.5), "adam": (3.1, -0.5001)}
    row = tables(nodes(laws, noise=0.2), label="rule")[1]["sgd / adam"]
    assert np.isfinite(row["crossover"])
    for kind in ("", "bootstrap_"):
        ends = [row[f"crossover_{kind}{end}"] for end in ("low", "high")]
        assert ends == [0, np.inf]
    law = power_law(np.array([1.0, 2, 4]), np.array([1.0, 2, 4]))
    assert np.isnan(crossover(law, law, 0.95)[0])


def test_resamples_in_which_both_laws_are_one_leave_the_crossing_its_interval():
    # Both rules agree at seed 0; one in 256 resamples holds nothing else.
    of = [
        adam if adam.coords["seed"] else replace(adam, arrays=sgd.arrays)
        for sgd, adam in zip(2 * nodes(ONE, seeds=4), nodes(seeds=4), strict=True)
    ]
    row = tables(of, label="rule", num_resamples=2000)[1]["sgd / adam"]
    low, high = (row[f"crossover_bootstrap_{end}"] for end in ("low", "high"))
    assert 0 < low < row["crossover"] < high < np.inf


def test_parallel_laws_seldom_have_a_bounded_interval_for_their_crossing():
    laws = {"sgd": (3.0, -0.5), "adam": (3.3, -0.5)}
    tries, unbounded = 100, {"": 0, "bootstrap_": 0}
    for seed in range(tries):
        of = nodes(laws, seeds=20, seed=seed)
        row = tables(of, label="rule")[1]["sgd / adam"]
        for kind in unbounded:
            unbounded[kind] += np.isinf(row[f"crossover_{kind}high"])
    spread = 5 * (0.95 * 0.05 / tries) ** 0.5
    assert all(hits / tries > 0.93 - spread for hits in unbounded.values())


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_limits_of_the_exponent_are_student_s_for_three_points_and_more(count):
    x = np.geomspace(1, 50, count)
    y = 2 * x**-0.7 * np.exp(0.1 * np.random.default_rng(count).normal(size=count))
    law, fit = power_law(x, y), stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.95, count - 2) * fit.stderr if count > 2 else np.nan
    expected = [fit.slope - half, fit.slope + half]
    assert law.limits(0.9) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_fieller_s_limits_are_the_roots_of_its_test():
    random = np.random.default_rng(0)
    x = np.repeat([1.0, 2.0, 4.0, 8.0], 5)
    laws = [
        power_law(x, x**a * np.exp(0.1 * random.normal(size=20))) for a in (1.0, 0.5)
    ]
    t = stats.t.ppf(0.975, 18)
    for end in crossover(*laws, 0.95)[1]:
        u = np.array([1.0, np.log(end)])
        apart = np.log(laws[0].at(np.array([end])) / laws[1].at(np.array([end])))[0]
        error = np.sqrt(u @ (laws[0].covariance + laws[1].covariance) @ u)
        assert abs(apart) == pytest.approx(t * error, rel=1e-9)


def test_resamples_are_fits_to_repetitions_drawn_anew():
    random = np.random.default_rng(0)
    x, y = np.tile([1.0, 2.0, 5.0], 4), random.lognormal(size=12)
    places = np.repeat(np.arange(4), 3)
    weights = random.multinomial(4, np.full(4, 0.25), 20)
    slopes, heights = resampled_laws(places.tolist(), x, y, weights.astype(float))
    for weight, slope, height in zip(weights, slopes, heights, strict=True):
        drawn = np.concatenate(
            [np.flatnonzero(places == s) for s in np.repeat(np.arange(4), weight)]
        )
        known = stats.linregress(np.log(x[drawn]), np.log(y[drawn]))
        assert (slope, height) == pytest.approx((known.slope, known.intercept))


def test_what_has_no_logarithm_is_counted_and_left_out():
    of = nodes(ONE, diverged={("sgd", 50, 0), ("sgd", 50, 1)})
    of[2].arrays["trace"] = np.array(-1.0)
    of[3].arrays["trace"] = np.array(0.0)
    of[4].arrays["trace"] = np.array(np.nan)
    (row,) = tables(of)[0].values()
    names = ("count", "nonpositive", "diverged", "nonfinite", "num_x")
    assert [row[name] for name in names] == [25, 2, 2, 1, 5]


def test_where_all_diverged_the_row_stays_and_holds_nan():
    of = [node({"size": s, "seed": 0}, diverged=True) for s in SIZES]
    (row,) = tables(of)[0].values()
    assert (row["count"], row["diverged"]) == (0, 5)
    names = ["exponent", "low", "bootstrap_low", "prefactor", "r_squared", "p_curved"]
    assert np.isnan([row[name] for name in names]).all()


@pytest.mark.parametrize("sizes", [1, 2])
def test_one_point_has_no_law_and_two_have_no_interval(sizes):
    of = [n for n in nodes(ONE, seeds=1) if n.coords["size"] in SIZES[:sizes]]
    (row,) = tables(of)[0].values()
    assert np.isnan(row["exponent"]) == (sizes == 1)
    assert np.isnan([row["low"], row["bootstrap_low"]]).all()


def test_x_may_be_a_variable_with_an_axis_of_points():
    (by_axis,) = tables(nodes(ONE))[0].values()
    rows = tables(nodes(ONE), along=None, x="steps", each="size")[0]
    row = rows["trace against steps"]
    assert row["exponent"] == pytest.approx(by_axis["exponent"], rel=1e-12)
    assert row["bootstrap_low"] == pytest.approx(by_axis["bootstrap_low"])
    assert row["x_units"] == "epoch"


def test_the_order_of_the_nodes_changes_no_bit():
    assert tables(nodes(ONE)) == tables(nodes(ONE)[::-1])


@pytest.mark.parametrize("laws", [ONE, LAWS])
def test_every_declared_column_is_there_in_its_type(laws):
    arrays = compute(KIND, nodes(laws), **GIVEN, label="rule").arrays
    outputs = [v for v in find_kind(KIND).outputs if not v.optional]
    assert set(arrays) == {v.name for v in outputs}
    for variable in outputs:
        array = arrays[variable.name]
        assert array.shape == arrays[variable.dims[0]].shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


def test_labels_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match="along: expected an axis whose labels are nu"):
        tables(nodes(), along="rule", each="size")


@pytest.mark.parametrize("wrong", [{"along": None}, {"x": "steps"}, {"confidence": 0}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        ScalingParams(**{**GIVEN, **wrong})


STUDY = """
study: scaled
axes: {{seed: 3, size: [10, 20, 40], rule: {{sgd: 0.1, adam: 0.2}}}}
stages:
  data: {{use: data.teacher, dim: 4, hidden: [3], num_train: "${{size}}", num_test: 5}}
  fit: {{use: train, data: data, model: {{kind: linear}}, seed: "${{seed}}", epochs: 2,
        rule: {{rule: sgd, lr: "${{rule}}"}}}}
  law: {{use: aggregate.scaling, of: fit, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "y: final_test_los, along: size, over: seed",
            r"study.yaml:\d+:\d+: stages.law.y: expected a variable of the stages "
            "taken, got 'final_test_los'. Did you mean 'final_test_loss'",
        ),
        (
            "y: final_test_loss, along: siz, over: seed",
            r"law.along: expected a dimension of 'fit', got 'siz'. Did you mean",
        ),
        (
            "y: final_test_loss, over: seed",
            r"law: expected one of 'along', an axis, and 'x', a variable, got neither",
        ),
        (
            "y: train_loss, along: size, over: seed",
            r"law.y: expected a single number per node, got 'train_loss' with epoch",
        ),
        (
            "y: final_test_loss, along: rule, over: seed",
            r"law.along: expected an axis whose labels are numbers, got 'rule' with",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")
