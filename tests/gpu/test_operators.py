"""Operators of studies on a GPU: products, and what solvers make of them."""

from typing import Any

import numpy as np
import pytest
import torch

from curvflow.schemas.kinds import find_kind
from curvflow.tasks.curvature.operators import tile_operator
from curvflow.tasks.numerics import lanczos
from curvflow.tasks.registry import find
from tests.gpu.cards import GPU, assert_alike, assert_variables_alike, on_a_gpu
from tests.tasks.curvature.test_operators import members
from tests.tasks.probes.checks import probes
from tests.tasks.toys import CPU, compute

pytestmark = on_a_gpu

OPERATORS = {
    "hessian": {},
    "hessian-retained": {"order": "retained"},
    "hessian-auto": {"order": "auto"},
    "ggn": {"operator": "ggn"},
    "residual": {"operator": "residual"},
    "mc": {"operator": "fisher_mc"},
    "empirical": {"operator": "fisher_empirical"},
    "covariance": {"operator": "gradient_covariance"},
    "layers": {"layers": ["*.bias"]},
}


def dense(several, machine):
    operator = tile_operator(several, machine, columns=4).operator
    eye = torch.eye(operator.shape[1], dtype=operator.dtype, device=operator.device)
    return operator @ eye.expand(len(several), -1, -1)


@pytest.mark.parametrize("case", ["tanh-ce", "relu-sse"])
@pytest.mark.parametrize("how", OPERATORS.values(), ids=OPERATORS)
def test_products_are_those_of_the_cpu(case, how):
    several = members(case, **how)
    there = dense(several, GPU)
    assert str(there.device) == GPU.device
    assert_alike(there, dense(several, CPU), rtol=1e-11)


@pytest.mark.parametrize("name", ["tanh-ce", "relu-sse"])
def test_products_are_the_same_at_each_call(name):
    operator = tile_operator(members(name), GPU, columns=3).operator
    columns = torch.ones(2, operator.shape[1], 3).to(operator.device, operator.dtype)
    assert torch.equal(operator @ columns, operator @ columns)


def test_single_precision_is_no_less_than_that():
    exact = dense(members("tanh-ce"), CPU)
    assert_alike(dense(members("tanh-ce", dtype="float32"), GPU), exact, rtol=1e-5)


def test_a_spectrum_is_that_of_the_cpu():
    found = []
    for machine in (GPU, CPU):
        operator = tile_operator(members(), machine, columns=2).operator
        start = torch.ones(2, operator.shape[1], 2, dtype=torch.float64)
        start[:, ::2, 1] = -1
        found.append(lanczos(operator, start.to(operator.device), num_steps=8))
    there, here = found
    assert_alike(there.values, here.values)
    assert_alike(there.weights, here.weights)


# Probes whose example has one setting, with others that take ways of their own.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "probe.trace": [{"method": m, "num_probes": 12} for m in ("hutch++", "xtrace")],
    "probe.logdet": [
        {"operator": "ggn", "damping": 0.1, "method": method}
        for method in ("slq", "chebyshev", "meme", "dense")
    ],
    "probe.eigenvalues": [
        {"method": "lobpcg", "which": "SA"},
        {"method": "power"},
        {"method": "lanczos", "which": "SA", "eigenvectors": True},
    ],
    "probe.moments": [{"basis": "power"}, {"basis": "chebyshev"}],
    "probe.spectrum": [{"num_runs": 2, "num_steps": 6, "dtype": "float32"}],
}
WAYS = [(kind, how) for kind, ways in SETTINGS.items() for how in ways]


@pytest.mark.parametrize(
    ("kind", "how"),
    WAYS,
    ids=[f"{k}-{'-'.join(map(str, h.values()))}" for k, h in WAYS],
)
def test_probes_find_what_they_find_on_the_cpu(kind, how):
    several = probes(kind, "tanh-ce", 3, **how)
    rtol = 1e-3 if how.get("dtype") == "float32" else 1e-6
    for a, b in zip(
        find(kind).compute(several, GPU), compute(kind, several), strict=True
    ):
        assert (a.status, a.reason) == (b.status, b.reason)
        sure = {
            name: value
            for name, value in b.arrays.items()
            if value.dtype.kind == "f" and name not in ("eigenvectors", "residuals")
        }
        assert_variables_alike(a.arrays, sure, find_kind(kind).outputs, rtol=rtol)
        for name, value in b.arrays.items():
            assert np.shape(a.arrays[name]) == np.shape(value)
