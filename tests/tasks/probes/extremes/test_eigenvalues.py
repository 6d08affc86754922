"""The largest Hessian eigenvalues of networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.extremes.eigenvalues import EigenvaluesParams
from curvflow.schemas.nodes import Ritz
from curvflow.tasks.curvature.eigensolvers import (
    num_columns,
    random_columns,
    solve,
    solver_bytes,
)
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.probes.extremes.eigenvalues import member_bytes
from curvflow.tasks.registry import Machine, find
from tests.tasks.probes.checks import DATA, probes
from tests.tasks.toys import assert_declared, compute, dense_of, member

KIND = "probe.eigenvalues"


def exact(probed, k):
    values = np.linalg.eigvalsh(dense_of(probed).numpy())
    return values[np.abs(values).argsort()[::-1]][:k]


@pytest.mark.parametrize("case", DATA)
def test_converged_eigenvalues_are_those_of_the_dense_hessian(case):
    members = probes(KIND, case, 3, k=3, max_iterations=3000)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        assert arrays["converged"].all()
        np.testing.assert_allclose(arrays["eigenvalues"], exact(probed, 3), rtol=1e-6)
        assert arrays["rank"].tolist() == [1, 2, 3]
        bound = 1e-6 * np.abs(arrays["eigenvalues"])
        assert (arrays["residuals"] <= bound).all()


def test_negative_eigenvalues_keep_their_sign():
    members = probes(KIND, "tanh-xor", 5, k=12, oversampling=12, max_iterations=3000)
    result = compute(KIND, members)
    assert any((o.arrays["eigenvalues"] < 0).any() for o in result)
    for probed, outcome in zip(members, result, strict=True):
        good = outcome.arrays["converged"]
        values = outcome.arrays["eigenvalues"]
        np.testing.assert_allclose(values[good], exact(probed, 12)[good], rtol=1e-6)


def test_too_few_iterations_are_flagged():
    members = probes(KIND, "relu-ce", 2, k=4, oversampling=0, max_iterations=3)
    arrays = compute(KIND, members)[0].arrays
    assert not arrays["converged"].all()
    assert arrays["iterations"] == 3
    assert arrays["num_matvecs"] == 12
    loose = arrays["residuals"][~arrays["converged"]]
    assert (loose > 1e-6 * np.abs(arrays["eigenvalues"][~arrays["converged"]])).all()


def test_results_do_not_depend_on_the_width_of_the_tile():
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(probes(KIND, "tanh-ce", 5))
    ]
    reference = compute(KIND, members)
    for width in (2, 3):
        for result, expected in zip(
            compute(KIND, members[:width]), reference, strict=False
        ):
            assert result.arrays["iterations"] == expected.arrays["iterations"]
            np.testing.assert_allclose(
                result.arrays["eigenvalues"], expected.arrays["eigenvalues"], rtol=1e-10
            )


def test_two_calls_are_bitwise_equal():
    first, second = (compute(KIND, probes(KIND, "relu-ce", 3))[1] for _ in range(2))
    for name, array in first.arrays.items():
        assert np.array_equal(array, second.arrays[name])


def test_more_eigenvalues_than_parameters_are_refused():
    with pytest.raises(
        InputError, match="k: expected at most the 45 parameters, got 46"
    ):
        compute(KIND, probes(KIND, "tanh-ce", 2, k=46))


def test_all_eigenvalues_sum_to_the_trace():
    members = probes(KIND, "tanh-ce", 2, k=45, max_iterations=1)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        trace = dense_of(probed).trace().item()
        assert outcome.arrays["eigenvalues"].sum() == pytest.approx(trace, rel=1e-10)


def test_golden_numbers():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2))[0].arrays
    np.testing.assert_allclose(arrays["eigenvalues"], GOLDEN, rtol=1e-7)


GOLDEN = [1.8494213543824372, 1.2277151580563954, 0.835071422777516]


def test_memory_is_estimated_above_the_blocks_alone():
    (probed,) = probes(KIND, "tanh-ce", 1)
    assert 11 * 45 * 8 < member_bytes(probed) < 10**7


def test_memory_holds_the_data_twice():
    (probed,) = probes(KIND, "tanh-ce", 1, k=1)
    data = probed.one("data")
    tall = np.repeat(data["inputs"], 1000, axis=1)
    inputs = {
        **probed.inputs,
        "data": [replace(data, arrays={**data.arrays, "inputs": tall})],
    }
    more = member_bytes(replace(probed, inputs=inputs)) - member_bytes(probed)
    assert more == 2 * (tall.nbytes - data["inputs"].nbytes)


@pytest.mark.parametrize(
    ("method", "which"),
    [
        ("lanczos", "LM"),
        ("lanczos", "LA"),
        ("lanczos", "SA"),
        ("lobpcg", "LA"),
        ("lobpcg", "SA"),
    ],
)
def test_every_method_finds_the_eigenvalues_of_the_dense_hessian(method, which):
    settings = {"method": method, "which": which, "k": 2, "oversampling": 2, "block": 2}
    members = probes(KIND, "relu-ce", 3, eigenvectors=True, **settings)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays, H = outcome.arrays, dense_of(probed).numpy()
        values = np.linalg.eigvalsh(H)
        key = {"LM": -np.abs(values), "LA": -values, "SA": values}[which]
        assert arrays["converged"].all()
        np.testing.assert_allclose(
            arrays["eigenvalues"], values[key.argsort()[:2]], rtol=1e-6
        )
        U = arrays["eigenvectors"].T
        gaps = np.linalg.norm(H @ U - U * arrays["eigenvalues"], axis=0)
        assert (gaps <= 1e-6 * np.abs(arrays["eigenvalues"])).all()


def stored(settings):
    spectra = compute(
        "probe.spectrum", probes("probe.spectrum", "tanh-ce", 3, **settings)
    )
    for spectrum in spectra:
        arrays = {name: spectrum.arrays[name] for name in Ritz.takes}
        yield Ritz("s", "probe.spectrum", {}, arrays, "r")


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
def test_stored_ritz_data_give_eigenvalues_without_a_product(which):
    params = {"method": "lanczos", "which": which, "k": 2}
    members = [
        member(KIND, params, ritz=node)
        for node in stored({"num_runs": 3, "num_steps": 30})
    ]
    dense = probes(KIND, "tanh-ce", 3)
    for probed, outcome in zip(dense, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays, values = outcome.arrays, np.linalg.eigvalsh(dense_of(probed).numpy())
        key = {"LM": -np.abs(values), "LA": -values, "SA": values}[which]
        error = np.abs(arrays["eigenvalues"] - values[key.argsort()[:2]])
        assert (error <= arrays["residuals"] + 1e-12).all()
        assert arrays["converged"].all() or which == "SA"
        assert arrays["num_matvecs"] == 0


def test_too_short_runs_are_flagged_not_trusted():
    (node, *_) = stored({"num_runs": 2, "num_steps": 2})
    (outcome,) = compute(KIND, [member(KIND, {"k": 2}, ritz=node)])
    assert not outcome.arrays["converged"].any()
    with pytest.raises(InputError, match="k: expected at most the 2 steps, got 3"):
        compute(KIND, [member(KIND, {"k": 3}, ritz=node)])
    with pytest.raises(InputError, match="eigenvectors: true cannot be combined"):
        compute(KIND, [member(KIND, {"k": 1, "eigenvectors": True}, ritz=node)])


@pytest.mark.parametrize(("method", "which"), [("power", "SA"), ("lobpcg", "LM")])
def test_a_method_that_cannot_find_what_is_requested_is_refused(method, which):
    message = f"which {which} cannot be combined with method {method}. Take lanczos"
    with pytest.raises(ValueError, match=message):
        EigenvaluesParams(method=method, which=which)


class _Diagonal:
    """A matrix of each of two models that takes no memory."""

    def __init__(self, dtype, models=2):
        self.shape, self.dtype, self.device = (models, 3000, 3000), dtype, "cpu"
        self.entries = torch.linspace(0.1, 1, 3000, dtype=dtype).pow(3).unsqueeze(1)

    def __matmul__(self, columns):
        return torch.mul(columns, self.entries)

    def select(self, models):
        return _Diagonal(self.dtype, len(models))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "asked",
    [
        {"method": "power"},
        {"method": "lanczos"},
        {"method": "lanczos", "block": 1},
        {"method": "lanczos", "k": 20},
        {"method": "lobpcg", "which": "LA", "k": 6},
    ],
    ids=str,
)
def test_memory_of_a_method_is_estimated_within_a_tenth(asked, dtype):
    params = EigenvaluesParams(**asked, dtype=dtype, max_iterations=40)
    operator = _Diagonal(getattr(torch, dtype))
    columns = num_columns(params, 3000)

    def compute_all():
        start = torch.stack([random_columns(seed, 3000, columns) for seed in (0, 1)])
        solve(operator, start, params)

    taken = peak_bytes(compute_all) / 2
    estimate = solver_bytes(params, 3000, products=0, data=0)
    assert estimate == pytest.approx(taken, rel=0.1)


def test_memory_is_of_a_product_and_what_is_held_or_of_what_is_held_alone():
    params = EigenvaluesParams(method="power", k=1, oversampling=0)
    alone, small, large = (
        solver_bytes(params, 1000, products=products, data=100)
        for products in (100, 200, 10**6)
    )
    assert alone == small == 100 + 8 * 1000 * 8
    assert large == 10**6 + 8 * 1000 * 5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("method", "which"), [("power", "LM"), ("lanczos", "LM"), ("lobpcg", "LA")]
)
def test_a_gpu_finds_the_same_eigenvalues(method, which):
    settings = {"method": method, "which": which, "oversampling": 2, "block": 2}
    members = probes(KIND, "relu-ce", 3, **settings)
    on_gpu = find(KIND).compute(members, Machine("cuda:0"))
    for a, b in zip(on_gpu, compute(KIND, members), strict=True):
        np.testing.assert_allclose(
            a.arrays["eigenvalues"], b.arrays["eigenvalues"], rtol=1e-8
        )
