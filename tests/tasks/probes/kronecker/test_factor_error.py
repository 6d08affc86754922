"""Errors of factors, against matrices written out."""

import numpy as np
import pytest
import torch

from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study
from tests.tasks.probes.kronecker.nets import as_factors, probed, trained
from tests.tasks.probes.kronecker.test_factors import matrix, of_network
from tests.tasks.toys import assert_declared, compute, member

DAMPING = 0.05


def told(factors, **others):
    return of_seeds((0, 0), factors, **others)[0]


def of_seeds(seeds, factors, exact=None, **params):
    """Return the outcome of each seed; they are computed together."""
    data, (weights, _) = trained("labels")
    settings = {"dampings": [DAMPING], **params}
    given = {"factors": factors, "weights": weights, "data": data}
    given |= {} if exact is None else {"exact": exact}
    members = [
        member("probe.factor_error", {**settings, "seed": seed}, **given)
        for seed in seeds
    ]
    return compute("probe.factor_error", members)


def truths(factors_outcome, operator="ggn"):
    """Return what a probe's main numbers truly are."""
    blocks, K = matrix(factors_outcome)
    G = of_network("labels", operator=operator)
    inside = torch.zeros_like(G, dtype=torch.bool)
    for block in blocks.blocks:
        inside[block.columns[:, None], block.columns] = True
    square = G.square().sum()
    first = blocks.blocks[0].columns
    G_l, K_l = (A[first][:, first] for A in (G, K))
    eye = DAMPING * torch.eye(len(G), dtype=torch.float64)
    values = torch.linalg.eigvals(torch.linalg.solve(K + eye, G + eye)).real
    return {
        "rel_error": (G - K).norm() / G.norm(),
        "outside": G[~inside].square().sum() / square,
        "within": (G - K)[inside].square().sum() / square,
        "cosine": (G * K).sum() / G.norm() / K.norm(),
        "trace_error": G.trace() - K.trace(),
        "block_rel_error": (G_l - K_l).norm() / G_l.norm(),
        "block_cosine": (G_l * K_l).sum() / G_l.norm() / K_l.norm(),
        "block_trace_error": G_l.trace() - K_l.trace(),
        "logdet_error": torch.logdet(G + eye) - torch.logdet(K + eye),
        "least": values.min(),
        "greatest": values.max(),
    }


def test_intervals_hold_the_truth():
    outcome = probed("labels")
    repeated = told(as_factors(outcome))
    assert_declared("probe.factor_error", repeated)
    expected = truths(outcome)
    held = dict.fromkeys(set(expected) - {"least", "greatest"}, 0)
    for one in of_seeds(range(20), as_factors(outcome), num_probes=24, num_steps=15):
        for name in held:
            low, high = (
                np.ravel(one.arrays[f"{name}_{end}"])[0] for end in ("low", "high")
            )
            held[name] += low <= float(expected[name]) <= high
    # 20 trials at 95 %: fewer than 16 happen once in four hundred.
    assert min(held.values()) >= 16, held


SPLIT = ("factorisation", "departure", "interplay")


def split(factors_outcome, exact_outcome):
    """Return what the parts of `within` truly are, in all and of the first block."""
    blocks, K = matrix(factors_outcome)
    _, E = matrix(exact_outcome)
    G = of_network("labels", operator="ggn")
    inside = torch.zeros_like(G, dtype=torch.bool)
    for block in blocks.blocks:
        inside[block.columns[:, None], block.columns] = True
    first = blocks.blocks[0].columns
    B, whole = torch.where(inside, G, 0.0), G.square().sum()
    parts = {}
    for start, at in (("", slice(None)), ("block_", first)):
        B_l, E_l, K_l = (A[at][:, at] for A in (B, E, K))
        size = whole if not start else B_l.square().sum()
        parts |= {
            f"{start}factorisation": (B_l - E_l).square().sum() / size,
            f"{start}departure": (E_l - K_l).square().sum() / size,
            f"{start}interplay": 2 * ((B_l - E_l) * (E_l - K_l)).sum() / size,
        }
    return {name: float(value) for name, value in parts.items()}


FORMS = [
    {"fisher_type": "mc"},
    {"fisher_type": "recursive"},
    {"fisher_type": "projection", "mc_samples": 2},
    {"fisher_type": "mc", "structure": "ekfac"},
    {"fisher_type": "mc", "structure": "block"},
    {"fisher_type": "mc", "structure": "diag"},
]


@pytest.mark.parametrize(
    "form", FORMS, ids=lambda form: "-".join(map(str, form.values()))
)
def test_what_lies_within_blocks_is_split_with_exact_factors(form):
    structure = form.get("structure", "kron")
    outcome, exact = probed("labels", **form), probed("labels", structure=structure)
    expected = split(outcome, exact)
    arrays = told(as_factors(outcome), exact=as_factors(exact), num_probes=400).arrays
    for name, value in expected.items():
        found, sem = (np.ravel(arrays[n])[0] for n in (name, f"{name}_sem"))
        assert abs(found - value) <= 5 * sem + 1e-12, name
    # Departures are exact, and all else is of vectors.
    parts = sum(arrays[name] for name in SPLIT)
    sem = sum(arrays[f"{name}_sem"] for name in (*SPLIT, "within"))
    assert parts == pytest.approx(float(arrays["within"]), abs=5 * float(sem))


def test_intervals_of_the_parts_hold_the_truth():
    outcome, exact = probed("labels", fisher_type="recursive"), probed("labels")
    given, expected = as_factors(exact), split(outcome, exact)
    assert_declared("probe.factor_error", told(as_factors(outcome), exact=given))
    held = dict.fromkeys(expected, 0)
    how = {"exact": given, "num_probes": 24, "num_steps": 2}
    for one in of_seeds(range(20), as_factors(outcome), **how):
        for name, value in expected.items():
            low, high = (
                np.ravel(one.arrays[f"{name}_{end}"])[0] for end in ("low", "high")
            )
            held[name] += low <= value <= high
    assert min(held.values()) >= 16, held


def test_exact_factors_have_nothing_left_out():
    outcome = probed("labels")
    arrays = told(as_factors(outcome), exact=as_factors(outcome)).arrays
    assert arrays["departure"] == pytest.approx(0, abs=1e-12)
    assert arrays["interplay"] == pytest.approx(0, abs=1e-12)
    assert arrays["factorisation"] == pytest.approx(float(arrays["within"]))


def test_factors_without_exact_ones_are_not_split():
    assert "departure" not in told(as_factors(probed("labels"))).arrays


@pytest.mark.parametrize(
    ("exact", "word"),
    [
        ("fisher_type: mc", "fisher_type type-2 of 'exact', got mc"),
        ("structure: ekfac", "structure"),
        ("layers: [layer1.weight]", "layers"),
    ],
)
def test_other_factors_than_exact_ones_of_the_same_blocks_are_refused(exact, word):
    text = f"""\
study: bound
stages:
  digits: {{use: data.digits, num_train: 50}}
  fit: {{use: train, data: digits, model: {{kind: linear}}, epochs: 1,
        rule: {{rule: sgd, lr: 0.1}}}}
  factors: {{use: probe.factors, weights: fit, fisher_type: mc}}
  exact: {{use: probe.factors, weights: fit, {exact}}}
  far: {{use: probe.factor_error, factors: factors, exact: exact}}
"""
    with pytest.raises(StudyError, match=word) as caught:
        load_study(text, file="study.yaml")
    assert "stages.far" in str(caught.value)


def test_extremes_are_those_of_the_preconditioned_matrix():
    outcome = probed("labels")
    arrays = told(as_factors(outcome), num_steps=40).arrays
    expected = truths(outcome)
    for name in ("least", "greatest"):
        error = max(arrays[f"{name}_residual"][0], 1e-8)
        assert abs(arrays[name][0] - float(expected[name])) <= error
    assert bool(arrays["converged"][0])
    assert arrays["logdet_error"][0] == pytest.approx(
        float(expected["logdet_error"]), abs=5 * arrays["logdet_error_sem"][0] + 1e-9
    )


def test_few_steps_are_told_not_to_suffice():
    outcome = probed("labels")
    few, many = (
        told(as_factors(outcome), num_steps=steps, dampings=[1e-6], num_probes=4).arrays
        for steps in (2, 40)
    )
    assert not few["converged"][0]
    assert many["converged"][0]
    assert few["num_matvecs"] == 4 * 2 + 4 * 2
    assert many["num_matvecs"] <= 4 * 2 + 4 * 31  # parameters bound the steps


def test_exact_blocks_are_off_by_what_lies_outside_alone():
    outcome = probed("labels", structure="block")
    arrays = told(as_factors(outcome)).arrays
    np.testing.assert_allclose(arrays["block_rel_error"], 0, atol=1e-12)
    np.testing.assert_allclose(arrays["block_cosine"], 1, rtol=1e-12)
    np.testing.assert_allclose(arrays["block_trace_error"], 0, atol=1e-12)
    assert arrays["within"] == pytest.approx(0, abs=1e-20)
    assert arrays["rel_error"] == pytest.approx(float(arrays["outside"]) ** 0.5)


def test_one_layer_alone_has_nothing_outside():
    outcome = probed("labels", layers=["layer2.*"], structure="block")
    arrays = told(as_factors(outcome)).arrays
    assert arrays["outside"] == pytest.approx(0, abs=1e-14)
    np.testing.assert_allclose([arrays["least"][0], arrays["greatest"][0]], 1)
    assert arrays["logdet_error"][0] == pytest.approx(0, abs=1e-9)


def test_other_weights_than_those_of_the_factors_are_refused(tmp_path):
    text = """\
study: bound
stages:
  digits: {use: data.digits, num_train: 50}
  fit: {use: train, data: digits, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 1}
  other: {use: train, data: digits, model: {kind: linear},
          rule: {rule: sgd, lr: 0.2}, epochs: 1}
  factors: {use: probe.factors, weights: fit}
  far: {use: probe.factor_error, factors: factors, weights: other}
"""
    with pytest.raises(StudyError, match=r"^study.yaml:9:\d+: stages.far"):
        load_study(text, file="study.yaml")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("of_factors", ["float32", "float64"])
def test_products_in_single_precision_say_the_same(of_factors, dtype):
    settings = {"dtype": of_factors, "structure": "ekfac"}
    factors = as_factors(probed("labels", **settings), settings)
    data, (weights, _) = trained("labels")
    given = {"factors": factors, "exact": factors, "weights": weights, "data": data}
    found, expected = (
        compute(
            "probe.factor_error",
            [member("probe.factor_error", {"dtype": each}, **given)],
        )[0].arrays
        for each in (dtype, "float64")
    )
    for name in ("rel_error", "outside", "cosine", "logdet", "least", "greatest"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_is_relative_to_a_block_of_rounding(dtype):
    data, (weights, _) = trained("tokens")
    settings = {"separate_weight_and_bias": True, "fisher_type": "mc"}
    drawn = as_factors(probed("tokens", **settings), settings)
    exact = as_factors(probed("tokens", separate_weight_and_bias=True))
    given = {"factors": drawn, "exact": exact, "weights": weights, "data": data}
    one = member("probe.factor_error", {"dtype": dtype, "num_probes": 8}, **given)
    arrays = compute("probe.factor_error", [one])[0].arrays
    # The bias of keys adds the same to all scores of a query.
    is_key = np.array(["key.bias" in name for name in arrays["block"].tolist()])
    assert is_key.sum() == 1
    for name in ("rel_error", "cosine", "factorisation", "departure", "interplay"):
        numbers = arrays[f"block_{name}"]
        assert np.isfinite(numbers[~is_key]).all()
        assert not np.isfinite(numbers[is_key]).any()
        assert np.isfinite(arrays[name])
