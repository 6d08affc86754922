"""Modules whose layers lack derivatives: what is computed, and what is told."""

from functools import cache

import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
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


FEW = {"num_draws": 8, "num_steps_bw_draws": 1}


@pytest.mark.parametrize(
    ("kind", "params", "name"),
    [
        ("probe.hessian_trace", {}, "trace"),
        ("probe.eigenvalues", {"k": 2}, "eigenvalues"),
        ("probe.gradient_variance", {}, "gradient_variance"),
        ("probe.hessian_variance", {"num_probes": 2}, "hessian_variance"),
        ("probe.landscape", {"num_points": 3}, "train_loss"),
        ("probe.llc", FEW, "loss_trace"),
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


def test_without_forward_derivatives_there_is_no_ggn():
    with pytest.raises(InputError, match=r"got OldWay at '1' without. Take operator h"):
        probed(fits("make_old_way"), "probe.trace", operator="ggn")


@pytest.mark.parametrize("order", ["auto", "reverse_over_reverse", "retained"])
def test_the_library_refuses_what_torch_would_leave_out_without_a_word(order):
    net, x = make_rounded().double(), torch.ones(4, 3).double()
    operator = curvflow.hessian(net, torch.nn.MSELoss(), (x, x), order=order)
    with pytest.raises(InputError, match="marked as once_differentiable"):
        operator @ torch.ones(operator.shape[0], dtype=torch.float64)
