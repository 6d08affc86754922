"""Cross-checks: agreement of independent routes within their errors."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member, Numbers, Ritz
from curvflow.tasks.probes.crosscheck import Route, agreement
from tests.tasks.probes.checks import probes
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.crosscheck"


def node(stage, **arrays):
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    return Numbers(stage, "probe.trace", {}, plain, stage)


def checked(*nodes, **params):
    given = member(KIND, params)
    (outcome,) = compute(KIND, [Member(given.params, {"of": list(nodes)})])
    return outcome


@cache
def once(kind, *params):
    return compute(kind, probes(kind, "tanh-ce", 1, **dict(params)))[0]


def measured(stage, kind, factor=1.0, **params):
    """Measure one network; a planted factor multiplies all results."""
    result = once(kind, *params.items())
    names = ("trace", "trace_sem", "layer_trace", "num_draws")
    arrays = {name: result.arrays[name] for name in names if name in result.arrays}
    planted = {k: v if k == "num_draws" else factor * v for k, v in arrays.items()}
    return node(stage, **planted)


def routes(factor=1.0, planted="probes"):
    kinds = {
        "probes": ("probe.trace", {"num_probes": 200, "seed": 1}),
        "crossed": ("probe.trace", {"method": "xtrace", "num_probes": 24, "seed": 2}),
        "moments": ("probe.moments", {"num_probes": 100, "seed": 3}),
        "exact": ("probe.dense", {}),
    }
    return [
        measured(name, kind, factor if name == planted else 1.0, **params)
        for name, (kind, params) in kinds.items()
    ]


def test_routes_to_the_trace_of_a_network_agree():
    outcome = checked(*routes())
    assert_declared(KIND, outcome)
    arrays = outcome.arrays
    assert arrays["consistent"]
    names = ["probes", "probes by layer", "crossed", "crossed by layer"]
    assert arrays["route"].tolist() == [*names, "moments", "exact"]
    assert arrays["largest_z"] <= arrays["limit"]
    assert arrays["largest_z"] == np.abs(arrays["z"]).max()
    assert arrays["resolution"] < 0.9
    assert arrays["route_sem"][-1] == 0


@pytest.mark.parametrize("planted", ["probes", "crossed", "moments", "exact"])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_planted_factor_of_two_turns_it_red(planted, factor):
    assert not checked(*routes(factor, planted)).arrays["consistent"]


def test_a_lost_layer_turns_it_red():
    estimate = measured("probes", "probe.trace", num_probes=200)
    broken = {**estimate.arrays, "layer_trace": estimate["layer_trace"][:-2]}
    assert not checked(node("probes", **broken)).arrays["consistent"]


def test_parts_that_add_up_are_one_route():
    parts = [
        measured(name, "probe.trace", operator=name, num_probes=200)
        for name in ("ggn", "residual")
    ]
    exact = measured("exact", "probe.dense")
    sums = {"ggn + residual": ["ggn", "residual"]}
    arrays = checked(*parts, exact, sums=sums).arrays
    assert arrays["route"].tolist() == ["exact", "ggn + residual"]
    assert arrays["consistent"]
    doubled = node("residual", **{k: 2 * v for k, v in parts[1].arrays.items()})
    ggn = node("ggn", **{k: 2 * v for k, v in parts[0].arrays.items()})
    assert not checked(ggn, doubled, exact, sums=sums).arrays["consistent"]


def test_densities_of_ritz_data_are_a_route():
    (of,) = compute("probe.dense", probes("probe.dense", "tanh-ce", 1))
    ritz = Ritz("ritz", "probe.dense", {}, of.arrays, "r")
    given = {"num_moments": 2, "basis": "power"}
    (moments,) = compute("probe.moments", [member("probe.moments", given, ritz=ritz)])
    ends = node("density", trace=moments.arrays["trace"])
    assert checked(ends, measured("exact", "probe.dense")).arrays["consistent"]


def test_stated_values_and_other_names_are_routes():
    logdet = node("slq", logdet=-3.1, logdet_sem=0.1)
    other = node("meme", log_det=-3.0, log_det_sem=0.05)
    arrays = checked(
        logdet,
        other,
        quantity="logdet",
        variables={"meme": "log_det"},
        stated={"closed form": {"value": -3.05}},
    ).arrays
    assert arrays["route"].tolist() == ["slq", "meme", "closed form"]
    assert arrays["consistent"]


def test_errors_of_few_draws_are_wider_if_one_says_so():
    of = [node("slq", trace=1.0, trace_sem=0.1), node("exact", trace=1.6)]
    assert not checked(*of).arrays["consistent"]
    assert checked(*of, draws={"slq": 4}).arrays["consistent"]


def test_an_unknown_value_is_red():
    arrays = checked(
        node("a", trace=np.nan, trace_sem=0.1), node("b", trace=1.0)
    ).arrays
    assert not arrays["consistent"]
    assert np.isnan(arrays["largest_z"])


def test_a_diverged_route_makes_it_diverge():
    lost = Numbers("a", "probe.trace", {}, {}, "a", "diverged", "NaN in step 3")
    outcome = checked(lost, node("b", trace=1.0))
    assert (outcome.status, outcome.reason) == ("diverged", "a: NaN in step 3")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "expected at least two routes"),
        ({"quantity": "trac"}, "single number of a, got trac"),
        ({"variables": {"c": "trace"}}, "expected all stages"),
        ({"sums": {"both": ["a", "c"]}}, "expected all stages"),
    ],
    ids=["one route", "misspelt", "variables", "sums"],
)
def test_what_cannot_be_compared_is_refused(params, message):
    with pytest.raises(InputError, match=message):
        checked(node("a", trace=1.0), **params)


def compared(*routes, confidence=0.999, rounding=0.0):
    return agreement(routes, confidence=confidence, rounding=rounding)


def test_known_errors_give_normal_deviates():
    result = compared(Route("a", 10.0, 0.3), Route("b", 11.0, 0.4))
    assert result.z[1, 0] == pytest.approx(2, rel=1e-6)
    assert result.z[0, 1] == -result.z[1, 0]
    assert np.isnan(result.z[0, 0])
    assert result.consistent
    assert result.limit == pytest.approx(stats.norm.isf(0.0005), rel=1e-9)
    assert result.resolution[0, 1] == pytest.approx(result.limit * 0.5 / 11, rel=1e-5)


def test_errors_of_few_draws_have_the_tails_of_welch():
    a, b = Route("a", 0.0, 0.3, 5), Route("b", 1.0, 0.4, 9)
    freedom = 0.25**2 / (0.09**2 / 4 + 0.16**2 / 8)
    expected = stats.norm.isf(stats.t.sf(2.0, freedom))
    assert compared(a, b).z[1, 0] == pytest.approx(expected, rel=1e-6)


def test_a_planted_factor_of_two_is_seen():
    right = [Route("probes", 10.1, 0.4, 50), Route("density", 9.8, 0.3, 20)]
    assert compared(*right, Route("dense", 10.0), rounding=1e-6).consistent
    wrong = compared(*right, Route("dense", 20.0), rounding=1e-6)
    assert not wrong.consistent
    assert (np.abs(wrong.z[2, :2]) > wrong.limit).all()


def test_exact_routes_agree_up_to_rounding_alone():
    close = [Route("a", 1.0), Route("b", 1 + 1e-8)]
    assert compared(*close, rounding=1e-6).consistent
    assert not compared(*close).consistent
    assert compared(Route("a", 0.0), Route("b", 0.0)).consistent


@pytest.mark.parametrize(
    "bad",
    [Route("c", np.nan, 0.1), Route("c", 1.0, np.nan), Route("c", 1.0, np.inf)],
)
def test_what_is_not_known_is_not_consistent(bad):
    result = compared(Route("a", 1.0, 0.1), Route("b", 1.0, 0.1), bad)
    assert not result.consistent
    assert result.judged.sum() == 2


def test_sound_routes_are_consistent_as_often_as_requested():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1500, 3, 8))
    means, sems = draws.mean(2), draws.std(2, ddof=1) / 8**0.5
    ok = [
        compared(
            *(
                Route(str(r), m, s, 8)
                for r, (m, s) in enumerate(zip(*row, strict=True))
            ),
            confidence=0.9,
        ).consistent
        for row in zip(means, sems, strict=True)
    ]
    assert 0.88 <= np.mean(ok) <= 0.97
