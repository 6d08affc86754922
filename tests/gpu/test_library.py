"""The library with a module on a GPU finds what it finds with the same on the CPU."""

import pytest
import torch
from torch import nn

import curvflow
from tests.gpu.cards import (
    DEVICE,
    assert_alike,
    assert_variables_alike,
    on_a_gpu,
)
from tests.tasks.llc.test_library import GIVEN, SHORT, Wrapped, mlp

pytestmark = on_a_gpu

CALLS = {
    "eigenvalues": lambda H, G: H.eigenvalues(2),
    "power": lambda H, G: H.eigenvalues(1, method="power"),
    "lobpcg": lambda H, G: H.eigenvalues(2, method="lobpcg", which="LA"),
    "trace": lambda H, G: H.trace(16),
    "xtrace": lambda H, G: H.trace(8, method="xtrace"),
    "hutch++": lambda H, G: H.trace(9, method="hutch++"),
    "diagonal": lambda H, G: H.diagonal(16),
    "squared_norm": lambda H, G: H.squared_norm(16),
    "spectrum": lambda H, G: H.spectrum(3, 5),
    "mass": lambda H, G: H.spectrum(3, 5).mass(low=0.0),
    "moments of runs": lambda H, G: H.spectrum(3, 5).moments(4),
    "moments": lambda H, G: H.moments(4, num_probes=2),
    "powers": lambda H, G: H.moments(4, num_probes=2, basis="power"),
    "effective_dimension": lambda H, G: G.effective_dimension(0.1, num_runs=2),
    "density": lambda H, G: H.density(num_runs=2),
    "functional": lambda H, G: H.functional(torch.exp, num_runs=2),
    "logdet": lambda H, G: G.logdet(damping=0.1, num_runs=2),
    "logdet dense": lambda H, G: G.logdet(damping=0.1, method="dense"),
}


def batch(device):
    inputs = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)).double()
    return inputs.to(device), (torch.arange(30) % 3).to(device)


def take(device):
    return mlp(4, 5, 3).to(device), "cross_entropy", batch(device)


def numbers(result):
    """Return the variables of a result that rounding does not decide."""
    unsure = {"residuals", "ritz_residuals", "seconds", "reason"}
    return {
        name: array.values
        for name, array in result.to_xarray().variables.items()
        if name not in unsure and array.dtype.kind in "fiub"
    }


def assert_found_alike(there, here, rtol=1e-7):
    found, expected = numbers(there), numbers(here)
    assert found.keys() == expected.keys()
    assert_variables_alike(found, expected, here.declared, rtol=rtol)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_methods_of_operators_find_the_same(call):
    there, here = (
        call(
            curvflow.hessian(*take(device), order="forward_over_reverse"),
            curvflow.ggn(*take(device)),
        )
        for device in (DEVICE, torch.device("cpu"))
    )
    assert_found_alike(there, here)


@pytest.mark.parametrize("make", [curvflow.hessian, curvflow.ggn])
def test_solutions_solve_the_systems_of_the_cpu(make):
    there, here = (make(*take(device)).shifted(0.1) for device in (DEVICE, "cpu"))
    b, tol = torch.ones(here.shape[0]).double(), 1e-6
    found = there.solve(b, tol=tol)
    assert found.converged
    # Of an ill-conditioned matrix the residual alone is sure, up to rounding.
    left = here @ torch.as_tensor(found.value) - b
    assert left.norm() < 1.001 * tol * b.norm()


@pytest.mark.parametrize("kind", ["type-2", "mc", "empirical"])
def test_fishers_have_the_same_trace(kind):
    there, here = (
        curvflow.fisher(*take(device), kind=kind).trace(8) for device in (DEVICE, "cpu")
    )
    assert_found_alike(there, here)


def test_matrices_may_be_there():
    A = torch.diag(torch.arange(6.0).double())
    A[0, 1] = A[1, 0] = 0.5
    there, here = curvflow.from_matrix(A.to(DEVICE)), curvflow.from_matrix(A)
    v = torch.arange(6.0).double()
    assert_alike(there @ v.to(DEVICE), here @ v)
    assert_found_alike(there.trace(8), here.trace(8))
    assert_found_alike(there.eigenvalues(2), here.eigenvalues(2))


@pytest.mark.parametrize(
    "how",
    [
        {"fisher_type": "type-2"},
        {"fisher_type": "mc", "mc_samples": 2},
        {"fisher_type": "empirical"},
        {"fisher_type": "type-2", "structure": "ekfac"},
        {"fisher_type": "type-2", "structure": "block"},
        {"fisher_type": "type-2", "structure": "kfoc"},
        {"fisher_type": "type-2", "structure": "diag"},
        {"fisher_type": "forward-only"},
    ],
    ids=lambda how: "-".join(map(str, how.values())),
)
def test_factors_are_the_same(how):
    there, here = (
        curvflow.kronecker(*take(device), **how) for device in (DEVICE, "cpu")
    )
    v = torch.linspace(-1, 1, here.operator.shape[0], dtype=torch.float64)
    assert there.operator.device == DEVICE
    assert_alike(there @ v.to(DEVICE), here @ v)
    assert_alike(there.solve(v.to(DEVICE), 0.1), here.solve(v, 0.1))
    assert there.logdet(0.1) == pytest.approx(here.logdet(0.1), rel=1e-8)


def test_factors_precondition_on_a_gpu():
    there, here = (
        curvflow.ggn(*take(device)).trace(
            16,
            preconditioner=curvflow.kronecker(*take(device)),
        )
        for device in (DEVICE, "cpu")
    )
    assert_found_alike(there, here)


@pytest.mark.parametrize("wrap", [lambda net: net, Wrapped], ids=["dense", "any"])
@pytest.mark.parametrize(
    "how",
    [
        GIVEN,
        GIVEN | {"batch_size": 8},
        GIVEN | {"sampling_method": "mala"},
        SHORT,
    ],
    ids=["sgld", "batches", "mala", "calibrated"],
)
def test_coefficients_are_the_same(wrap, how):
    there, here = (
        curvflow.llc(
            wrap(mlp(4, 5, 3)).to(device), "cross_entropy", batch(device), **how, seed=1
        )
        for device in (DEVICE, "cpu")
    )
    assert there.verdict == here.verdict
    assert_alike(there.loss_trace, here.loss_trace, rtol=1e-6)


def test_chains_in_single_precision_agree_with_double():
    there, here = (
        curvflow.llc(
            mlp(4, 5, 3).to(device),
            "cross_entropy",
            batch(device),
            **GIVEN,
            dtype=precise,
        )
        for device, precise in ((DEVICE, "float32"), ("cpu", "float64"))
    )
    assert_alike(there.loss_trace, here.loss_trace, rtol=1e-3)


def test_a_monitor_measures_a_module_that_trains_there():
    found = []
    for device in (DEVICE, "cpu"):
        net, loss, data = take(device)
        monitor = curvflow.Monitor(net, loss, data, probes=["sharpness", "trace"])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(data[0]), data[1]).backward()
            optimizer.step()
            monitor.step()
        monitor.measure()
        found.append(monitor.to_xarray())
    for name in ("sharpness", "trace"):
        assert_alike(found[0][name].values, found[1][name].values, name=name)
