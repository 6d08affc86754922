"""Modules whose layers lack derivatives: what is computed, and what is told."""

from functools import cache

import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks.rules.examples import EXAMPLES
from tests.tasks.toys import (
    Cut,
    Rounded,
    blobs,
    compute,
    make_rounded,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)


def factory(name, **kwargs):
    return {"factory": f"tests.tasks.toys:{name}", "kwargs": kwargs}


@cache
def fits(name, **kwargs):
    model = factory(name, **kwargs)
    return train_all([train_member(blobs(), model=model, seed=s) for s in (0, 1)])


def probed(several, kind, **params):
    return compute(
        kind,
        [member(kind, params, weights=weights_of(f), data=blobs()) for f in several],
    )


def test_an_old_function_trains_as_what_it_computes():
    for old, new in zip(
        fits("make_old_way"), fits("make_old_way", old=False), strict=True
    ):
        for name in ("weights", "train_loss", "test_loss"):
            np.testing.assert_allclose(
                old.arrays[name], new.arrays[name], rtol=1e-12, atol=1e-14
            )


OF_CURVATURE = ("gauss_newton", "kfac", "lanczos_newton", "spectral_sgd")


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": rule} | settings
        for rule in OF_CURVATURE
        for settings in EXAMPLES[rule]
        if settings.get("matrix") != "hessian"
    ],
)
def test_rules_of_an_old_function_train_as_those_of_its_twin(rule):
    old, new = (
        train_all(
            [
                train_member(
                    blobs(), model=factory("make_old_way", old=old), rule=rule, seed=s
                )
                for s in (0, 1)
            ]
        )
        for old in (True, False)
    )
    for ours, theirs in zip(old, new, strict=True):
        np.testing.assert_allclose(
            ours.arrays["weights"], theirs.arrays["weights"], rtol=1e-6, atol=1e-9
        )


FEW = {"num_draws": 8, "num_steps_bw_draws": 1}


@pytest.mark.parametrize(
    ("kind", "params", "name"),
    [
        ("probe.hessian_trace", {}, "trace"),
        ("probe.eigenvalues", {"k": 2}, "eigenvalues"),
        ("probe.gradient_variance", {}, "gradient_variance"),
        ("probe.hessian_variance", {"num_probes": 2}, "hessian_variance"),
        ("probe.landscape", {"num_points": 3}, "train_loss"),
        ("probe.llc", {"num_burnin_steps": 20, **FEW}, "loss_trace"),
    ],
)
def test_probes_of_an_old_function_find_what_they_find_of_its_twin(kind, params, name):
    for old, new in zip(
        probed(fits("make_old_way"), kind, **params),
        probed(fits("make_old_way", old=False), kind, **params),
        strict=True,
    ):
        np.testing.assert_allclose(old.arrays[name], new.arrays[name], rtol=1e-7)


def test_a_layer_by_reverse_mode_has_the_dense_hessian():
    (fit, _) = fits("make_old_way")
    probe = member("probe.trace", {}, weights=weights_of(fit), data=blobs())
    problem = pose(parse_model(factory("make_old_way")), "auto", blobs())
    assert problem.network.derivatives == "reverse"
    assert "by reverse mode, for OldWay at '1'" in problem.network.note
    x, y = (torch.as_tensor(blobs()[name]) for name in ("inputs", "targets"))
    twin = torch.autograd.functional.hessian(
        lambda w: problem.losses(w[None], x[None], y.long()[None]).mean(),
        torch.as_tensor(fit.arrays["weights"][-1]),
    )
    torch.testing.assert_close(matrix_of(probe), twin, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_a_weight_norm_is_derived_as_it_is_written(dim):
    # Second derivatives by torch's own kernel lack a term (2.13).
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4), dim=dim)
    net, x, y = layer.double(), torch.randn(6, 3).double(), torch.randn(6, 4).double()
    named = dict(net.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(w):
        parts = zip(named, w.split(sizes), named.values(), strict=True)
        bias, g, v = (part.view_as(p) for _, part, p in parts)
        rest = {0: [1], 1: [0], None: [0, 1]}[dim]
        weight = v * g / v.square().sum(rest, keepdim=True).sqrt()
        return (x @ weight.T + bias - y).square().mean()

    assert next(iter(named)) == "bias"
    at = torch.cat([p.detach().flatten() for p in named.values()])
    twin = torch.autograd.functional.hessian(loss, at)
    for order in ("forward_over_reverse", "reverse_over_reverse"):
        operator = curvflow.hessian(net, torch.nn.MSELoss(), (x, y), order=order)
        found = operator @ torch.eye(len(at)).double()
        torch.testing.assert_close(found, twin, rtol=1e-9, atol=1e-12)


def test_a_weight_norm_is_computed_for_all_models_at_once():
    problem = pose(parse_model(factory("make_weight_norm")), "auto", blobs())
    assert problem.network.derivatives == "all"
    assert not problem.network.note


@pytest.mark.parametrize("name", ["make_rounded", "make_cut"])
def test_what_has_first_derivatives_alone_trains_and_is_named_where_it_lacks_more(name):
    layer = {"make_rounded": Rounded, "make_cut": Cut}[name].__name__
    several = fits(name)
    assert np.isfinite(several[0].arrays["train_loss"]).all()
    given = {"calibrate": "none", "sampling_method": "sgld", "lr": 1e-4}
    given |= {"localization": 1.0, "num_burnin_steps": 0}
    probed(several, "probe.llc", **given, **FEW)
    probed(several, "probe.gradient_variance")
    problem = pose(parse_model(factory(name)), "auto", blobs())
    assert f"no second derivatives, for {layer} at '1' has none" in problem.network.note
    for kind, params in (
        ("probe.trace", {}),
        ("probe.trace", {"operator": "ggn"}),
        ("probe.landscape", {}),
        ("probe.llc", {}),
    ):
        with pytest.raises(InputError, match=f"got {layer} at '1' with first ones"):
            probed(several, kind, **params)
    rule = {"rule": "lanczos_newton", "lr": 0.1}
    with pytest.raises(InputError, match=f"got {layer} at '1' with first ones"):
        train_all([train_member(blobs(), model=factory(name), rule=rule)])


SECOND_MOMENTS = ("fisher_empirical", "gradient_covariance")
OPERATORS = ("residual", "ggn", "fisher_type2", "fisher_mc", *SECOND_MOMENTS)


def matrices_of(several, **params):
    probes = [
        member("probe.trace", params, weights=weights_of(f), data=blobs())
        for f in several
    ]
    return [matrix_of(probe) for probe in probes]


@pytest.mark.parametrize(
    ("operator", "mode"),
    [(name, "eval") for name in OPERATORS]
    + [(name, "train") for name in OPERATORS if name not in SECOND_MOMENTS],
)
def test_operators_of_an_old_function_are_those_of_its_twin(operator, mode):
    old, new = (
        matrices_of(fits("make_old_way", **way), operator=operator, mode=mode)
        for way in ({}, {"old": False})
    )
    torch.testing.assert_close(old, new, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("operator", SECOND_MOMENTS)
def test_second_moments_take_first_derivatives_alone(operator):
    # It is derived once, to the same weights.
    several, twins = fits("make_cut"), fits("make_old_way", old=False)
    assert pose(parse_model(factory("make_cut")), "auto", blobs()).network.lacking
    found = matrices_of(several, operator=operator)
    expected = matrices_of(twins, operator=operator)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)


def test_a_probe_of_second_moments_runs_on_first_derivatives():
    for operator in SECOND_MOMENTS:
        old, new = (
            probed(several, "probe.trace", operator=operator)
            for several in (fits("make_cut"), fits("make_old_way", old=False))
        )
        for ours, theirs in zip(old, new, strict=True):
            np.testing.assert_allclose(
                ours.arrays["trace"], theirs.arrays["trace"], rtol=1e-7
            )


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("operator", ["hessian", "residual", "ggn", "fisher_type2"])
def test_what_lacks_derivatives_in_training_alone_is_derived_back(operator, mode):
    (fit, _) = fits("make_spectral")
    problem = pose(parse_model(factory("make_spectral")), "auto", blobs())
    x, y = (torch.as_tensor(blobs()[name])[None] for name in ("inputs", "targets"))
    size = problem.network.num_parameters
    whole = torch.as_tensor(fit.arrays["weights"][-1])
    weights, fixed = whole[:size], whole[size:]
    draw = {"draw": lambda shape: torch.zeros(1, *shape)} if mode == "train" else {}

    def outputs(w):
        return problem.network.outputs(torch.cat([w, fixed])[None], x, **draw)[0]

    def loss(found):
        return torch.nn.functional.cross_entropy(found, y[0].long())

    H, at = torch.autograd.functional.hessian, outputs(weights)
    J = torch.autograd.functional.jacobian(outputs, weights).flatten(0, 1)
    ggn = J.T @ H(loss, at).reshape(len(J), len(J)) @ J
    expected = ggn
    if operator in ("hessian", "residual"):
        expected = H(lambda w: loss(outputs(w)), weights)
        expected = expected - ggn if operator == "residual" else expected
    (found, _) = matrices_of([fit, fit], operator=operator, mode=mode)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_layer_that_rescales_its_weights_is_named():
    words = "model: .*Embedding at '0' with max_norm 1, .* max_norm to None"
    with pytest.raises(InputError, match=words):
        pose(parse_model(factory("make_limited")), "auto", blobs())


@pytest.mark.parametrize("order", ["auto", "reverse_over_reverse", "retained"])
def test_the_library_refuses_what_torch_would_leave_out_without_a_word(order):
    net, x = make_rounded().double(), torch.ones(4, 3).double()
    operator = curvflow.hessian(net, torch.nn.MSELoss(), (x, x), order=order)
    with pytest.raises(InputError, match="marked as once_differentiable"):
        operator @ torch.ones(operator.shape[0], dtype=torch.float64)
