"""The trace of curvature operators."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.trace import TraceParams
from curvflow.schemas.nodes import Matrix
from curvflow.tasks.probes.trace import member_bytes
from tests.tasks.probes.checks import probes
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.trace"
METHODS = ["hutchinson", "hutch++", "xtrace"]


def matrix(A_DD) -> Matrix:
    none = np.zeros(0)
    arrays = {
        "form": np.array("dense"),
        "dense": np.asarray(A_DD),
        "indptr": none.astype(np.int64),
        "indices": none.astype(np.int64),
        "values": none,
        "points": np.zeros((0, 0)),
        "kernel": np.array(""),
        "size": np.array(len(A_DD)),
    }
    return Matrix("m", "data.random_matrix", {}, arrays, f"m{hash(A_DD)}")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_traces_are_within_five_standard_errors_of_the_dense_trace(method, seed):
    members = probes(KIND, "tanh-ce", 2, num_probes=20, method=method, seed=seed)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays, diagonal = outcome.arrays, dense_of(probed).diagonal()
        error = abs(arrays["trace"] - diagonal.sum().item())
        assert error < 5 * arrays["trace_sem"]
        exact = np.array([part.sum().item() for part in diagonal.split([18, 6, 18, 3])])
        layer_error = np.abs(arrays["layer_trace"] - exact)
        assert (layer_error < 5 * arrays["layer_trace_sem"] + 1e-10).all()
        assert arrays["layer_trace"].sum() == pytest.approx(arrays["trace"], rel=1e-10)
        assert arrays["reached"]


def test_plain_vectors_give_the_draws_of_the_hessian_trace():
    ours = compute(KIND, probes(KIND, "tanh-ce", 2, num_probes=6))[1].arrays
    kind = "probe.hessian_trace"
    theirs = compute(kind, probes(kind, "tanh-ce", 2, num_probes=6))[1].arrays
    for name in ("trace", "trace_sem", "trace_draws", "layer_trace", "num_matvecs"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)


@pytest.mark.parametrize("operator", ["ggn", "residual"])
def test_gauss_newton_and_residual_add_up_to_the_hessian(operator):
    whole, part = (
        compute(KIND, probes(KIND, "tanh-ce", 2, num_probes=6, operator=name))[0].arrays
        for name in ("hessian", operator)
    )
    assert part["trace"] != whole["trace"]
    other = "residual" if operator == "ggn" else "ggn"
    rest = compute(KIND, probes(KIND, "tanh-ce", 2, num_probes=6, operator=other))[0]
    total = part["trace_draws"] + rest.arrays["trace_draws"]
    np.testing.assert_allclose(total, whole["trace_draws"], rtol=1e-8, atol=1e-10)


def test_a_single_layer_is_probed_exactly_as_a_block():
    members = probes(KIND, "tanh-ce", 2, method="xtrace", num_probes=40)
    layers = compute(KIND, members)[0].arrays["layer"].tolist()
    (of_one,) = compute(
        KIND, probes(KIND, "tanh-ce", 1, num_probes=60, layers=[layers[0]])
    )
    block = dense_of(members[0])[:18, :18]
    assert of_one.arrays["layer"].tolist() == layers[:1]
    error = abs(of_one.arrays["trace"] - block.trace().item())
    assert error < 5 * of_one.arrays["trace_sem"]


@pytest.mark.parametrize("method", METHODS)
def test_vectors_are_doubled_until_the_requested_error(method):
    members = probes(
        KIND, "tanh-ce", 3, method=method, num_probes=8, rel_sem=0.05, max_probes=2048
    )
    for outcome in compute(KIND, members):
        arrays = outcome.arrays
        assert arrays["reached"]
        assert arrays["trace_sem"] <= 0.05 * abs(arrays["trace"])
        draws = arrays["num_draws"] * (2 if method == "hutch++" else 1)
        assert np.log2(draws / 8) % 1 == 0
        assert arrays["trace_draws"].shape == (arrays["num_draws"],)


def test_an_error_out_of_reach_is_flagged():
    members = probes(KIND, "tanh-ce", 2, num_probes=4, rel_sem=1e-5, max_probes=8)
    arrays = compute(KIND, members)[0].arrays
    assert not arrays["reached"]
    assert arrays["num_matvecs"] == 8


@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_the_width_of_the_tile(method):
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(
            probes(KIND, "tanh-ce", 5, method=method, num_probes=8, rel_sem=0.2)
        )
    ]
    reference = compute(KIND, members)
    for result, expected in zip(compute(KIND, members[:2]), reference, strict=False):
        for name in ("trace_draws", "layer_trace", "layer_trace_sem", "num_matvecs"):
            np.testing.assert_allclose(
                result.arrays[name], expected.arrays[name], rtol=1e-8, atol=1e-10
            )


def test_a_matrix_of_low_rank_is_exact():
    of = matrix(with_spectrum([4, -2, 1, *[0] * 17], 0))
    members = [member(KIND, {"method": "xtrace", "num_probes": 8}, matrix=of)] * 2
    arrays = compute(KIND, members)[0].arrays
    assert arrays["trace"] == pytest.approx(3, abs=1e-12)
    assert arrays["layer"].tolist() == ["matrix"]


@pytest.mark.parametrize(
    "given", [{"max_probes": 100}, {"rel_sem": 0.1, "max_probes": 8}]
)
def test_a_limit_that_makes_no_sense_is_refused(given):
    with pytest.raises(ValueError, match="max_probes"):
        TraceParams.model_validate(given)


def test_layers_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="layers: expected names of parameter tensors"):
        compute(KIND, probes(KIND, "tanh-ce", 2, layers=["nothing"]))


def test_memory_grows_with_the_vectors_that_are_kept():
    def grown(**given):
        few, many = (
            member_bytes(probes(KIND, "tanh-ce", 1, num_probes=n, **given)[0])
            for n in (16, 116)
        )
        return many - few

    assert grown(method="xtrace") == 100 * 45 * 8 * 16
    assert grown() == 0


@pytest.mark.parametrize("operator", ["hessian", "ggn", "fisher_empirical"])
@pytest.mark.parametrize("probes_made", [8, 16, 200])
def test_vectors_of_batches_agree_with_the_dense_trace(operator, probes_made):
    given = {"operator": operator, "batch_size": 4, "num_probes": probes_made}
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(
            probes(KIND, "tanh-ce", 5, probes_per="batch", **given)
        )
    ]
    everything = probes("probe.dense", "tanh-ce", 5, operator=operator)
    exact = [o.arrays["eigenvalues"].sum() for o in compute("probe.dense", everything)]
    scores, unseen = [], []
    for outcome, trace in zip(compute(KIND, members), exact, strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        scores.append((arrays["trace"] - trace) / arrays["trace_sem"])
        parts = np.hypot(arrays["trace_vectors"], arrays["trace_batches"])
        assert arrays["trace_sem"] == pytest.approx(parts)
        unseen.append(arrays["trace_batches"])
        assert arrays["trace_draws"].mean() == pytest.approx(arrays["trace"])
    assert np.sqrt(np.mean(np.square(scores))) < 2.5
    assert np.any(unseen) == (probes_made == 8)  # 30 samples are 7 batches, and a rest


def test_a_layer_by_batches_is_its_block():
    given = {"probes_per": "batch", "batch_size": 4, "num_probes": 400}
    members = probes(KIND, "tanh-ce", 2, **given)
    layers = compute(KIND, members)[0].arrays["layer"].tolist()
    (of_one,) = compute(KIND, probes(KIND, "tanh-ce", 1, layers=layers[:1], **given))
    block = dense_of(members[0])[:18, :18]
    error = abs(of_one.arrays["trace"] - block.trace().item())
    assert error < 5 * of_one.arrays["trace_sem"]


@pytest.mark.parametrize(
    "given",
    [
        {"method": "xtrace"},
        {"operator": "fisher_mc"},
        {"operator": "gradient_covariance"},
    ],
)
def test_what_batches_cannot_be_combined_with_is_refused(given):
    with pytest.raises(ValueError, match="probes_per batch cannot be combined with"):
        TraceParams.model_validate({"probes_per": "batch", **given})


def test_a_matrix_has_no_batches():
    of = matrix(with_spectrum([1, 2], 0))
    with pytest.raises(InputError, match="expected a mean over samples"):
        compute(KIND, [member(KIND, {"probes_per": "batch"}, matrix=of)] * 2)


@pytest.mark.parametrize(
    ("given", "skewed"),
    [
        ({"operator": "ggn"}, False),
        ({"operator": "ggn", "probes_per": "batch", "batch_size": 4}, True),
        ({"operator": "ggn", "method": "xtrace"}, False),
        ({"operator": "hessian"}, False),
    ],
)
def test_the_interval_of_positive_draws_of_batches_reaches_further_up(given, skewed):
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2, num_probes=8, **given))[0].arrays
    up = arrays["trace_high"] - arrays["trace"]
    down = arrays["trace"] - arrays["trace_low"]
    assert up > 0
    assert (up > 1.1 * down) == skewed
    if not skewed:
        assert up == pytest.approx(down)


ROUTES = [
    *({"method": method} for method in [*METHODS, "auto"]),
    {"probes_per": "batch", "batch_size": 4},
]


@pytest.mark.parametrize("given", ROUTES)
def test_layers_have_intervals_that_hold_their_traces(given):
    rel_sem = {"rel_sem": 0.9} if given.get("method") == "auto" else {}
    members = probes(KIND, "tanh-ce", 1, num_probes=14, **given, **rel_sem)
    seeded = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for m in members
        for seed in range(40)
    ]
    diagonal = dense_of(members[0]).diagonal()
    exact_L = np.array([part.sum().item() for part in diagonal.split([18, 6, 18, 3])])
    slack, held = 1e-9 * np.abs(exact_L).max(), []
    for outcome in compute(KIND, seeded):
        low_L, mean_L, high_L = (
            outcome.arrays[f"layer_trace{end}"] for end in ("_low", "", "_high")
        )
        assert (low_L < mean_L).all()
        assert (mean_L < high_L).all()
        held.append((low_L <= exact_L + slack) & (exact_L - slack <= high_L))
    assert np.mean(held) > 0.89


@pytest.mark.parametrize("kind", [KIND, "probe.hessian_trace"])
def test_few_signs_state_no_intervals_of_layers(kind):
    for count in (4, 8):
        arrays = compute(kind, probes(kind, "tanh-ce", 2, num_probes=count))[0].arrays
        for end in ("low", "high"):
            assert np.isnan(arrays[f"layer_trace_{end}"]).all() == (count < 6)


def test_the_intervals_of_layers_are_those_of_the_hessian_trace():
    kind = "probe.hessian_trace"
    ours, theirs = (
        compute(one, probes(one, "tanh-ce", 2, num_probes=16))[1].arrays
        for one in (KIND, kind)
    )
    for name in ("layer_trace_sem", "layer_trace_low", "layer_trace_high"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-10)
    assert (theirs["layer_trace_low"] < theirs["layer_trace_high"]).all()
