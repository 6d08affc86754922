"""The library without a study: the bits of a study, dense twins, and refusals."""

import inspect
from typing import get_type_hints

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from torch import nn

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.probes.densities.spectrum import SpectrumParams
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.kinds.probes.logdet import LogdetParams
from curvflow.tasks.library import arguments
from curvflow.tasks.numerics.operators.matrices import KernelMatrix


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Take one thread: sums of several are other sums, and other last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


LANCZOS = {"num_runs": 4, "num_steps": 20}
CALLS = {
    "eigenvalues": ({"method": "lanczos", "k": 4}, lambda H: H.eigenvalues(4)),
    "trace": ({"num_probes": 8}, lambda H: H.trace(8)),
    "diagonal": ({"num_probes": 8}, lambda H: H.diagonal(8)),
    "squared_norm": ({"num_probes": 8}, lambda H: H.squared_norm(8)),
    "spectrum": (LANCZOS, lambda H: H.spectrum(4, 20)),
    "moments": ({"num_probes": 5}, lambda H: H.moments(num_probes=5)),
    "effective_dimension": (
        LANCZOS | {"prior_precision": [0.01, 0.1]},
        lambda H: H.effective_dimension((0.01, 0.1), **LANCZOS),
    ),
    "logdet": (
        LANCZOS | {"damping": 20.0, "rank": 10},
        lambda H: H.logdet(damping=20.0, rank=10, **LANCZOS),
    ),
}
APART = {"batch_size": 7, "num_probes": 8}
BY_BATCHES = {
    "trace": (APART, lambda H: H.trace(probes_per="batch", **APART)),
    "diagonal": (APART, lambda H: H.diagonal(probes_per="batch", **APART)),
    "squared_norm": (
        APART | {"num_batches": 3},
        lambda H: H.squared_norm(probes_per="batch", num_batches=3, **APART),
    ),
}
# What is read from the runs of `spectrum`, in the study and in the library.
READ = {
    "eigenvalues": (
        {"k": 2, "which": "LA", "method": "lanczos"},
        lambda s: s.eigenvalues(2, which="LA"),
    ),
    "moments": (
        {"num_moments": 9, "basis": "power"},
        lambda s: s.moments(9, basis="power"),
    ),
    "effective_dimension": (
        {"prior_precision": [0.5]},
        lambda s: s.effective_dimension((0.5,)),
    ),
    "logdet": ({"damping": 20.0}, lambda s: s.logdet(damping=20.0)),
}
# Which do not converge, however many iterations there are.
SMALLEST = {"method": "lobpcg", "which": "SA", "tol": 1e-2, "max_iterations": 10}
# Beside factors of the same network, by their name.
BESIDE = {
    "trace": ({"num_probes": 8}, lambda G, K: G.trace(8, preconditioner=K)),
    "logdet": (
        LANCZOS | {"damping": 0.1},
        lambda G, K: G.logdet(damping=0.1, preconditioner=K, **LANCZOS),
    ),
    "eigenvalues": (
        SMALLEST | {"k": 2},
        lambda G, K: G.eigenvalues(2, preconditioner=K, **SMALLEST),
    ),
}
OPERATORS = {
    "hessian": lambda *of: curvflow.hessian(*of, order="forward_over_reverse"),
    "ggn": curvflow.ggn,
    "fisher_type2": lambda *of: curvflow.fisher(*of, kind="type-2"),
    "fisher_mc": lambda *of: curvflow.fisher(*of, kind="mc"),
    "fisher_empirical": lambda *of: curvflow.fisher(*of, kind="empirical"),
    "gradient_covariance": curvflow.gradient_covariance,
}


def stages():
    data = {"use": "data.digits", "num_train": 60, "seed": 1}
    fit = {
        "use": "train",
        "data": "data",
        "model": {"kind": "mlp", "hidden": [5], "activation": "tanh"},
        "rule": {"rule": "sgd", "lr": 0.1},
        "epochs": 1,
    }
    made = {
        "data": data,
        "fit": fit,
        "matrix": {"use": "data.random_matrix", "size": 50, "ensemble": "outliers"},
    }
    for probe, (params, _) in CALLS.items():
        shared = {"use": f"probe.{probe}", **params}
        made[f"{probe}_matrix"] = {**shared, "matrix": "matrix"}
        made[f"{probe}_net"] = {**shared, "weights": "fit"}
    for name in OPERATORS:
        trace = {"use": "probe.trace", "weights": "fit", "num_probes": 4}
        made[name] = {**trace, "operator": name}
    made["factors"] = {"use": "probe.factors", "weights": "fit"}
    for probe, (params, _) in BESIDE.items():
        given = {"weights": "fit", "operator": "ggn", "preconditioner": "factors"}
        made[f"{probe}_beside"] = {"use": f"probe.{probe}", **given, **params}
    for probe, (params, _) in BY_BATCHES.items():
        made[f"{probe}_batches"] = {
            "use": f"probe.{probe}",
            "weights": "fit",
            "probes_per": "batch",
            **params,
        }
    for probe, (params, _) in READ.items():
        made[f"read_{probe}"] = {
            "use": f"probe.{probe}",
            "ritz": "spectrum_net",
            **params,
        }
    return made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    store = tmp_path_factory.mktemp("library") / "store"
    return curvflow.run(curvflow.Study(stages=stages()), store=store, workers=1)


@pytest.fixture(scope="module")
def problem(results):
    """Return the network of the study as a module, the loss and the data."""
    net = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)).double()
    weights = torch.as_tensor(results["fit"]["weights"].values[-1])
    nn.utils.vector_to_parameters(weights, net.parameters())
    x, y = (torch.as_tensor(results["data"][n].values) for n in ("inputs", "targets"))
    return net, "cross_entropy", (x.double(), y.long())


def assert_same_bits(result, expected):
    dataset = result.to_xarray()
    assert len(dataset.variables) > 4
    for name, variable in dataset.variables.items():
        got, wanted = variable.values, expected[name].values
        assert got.dtype == wanted.dtype or got.dtype.kind in "UTO", name
        assert got.tobytes() == wanted.tobytes() or got.tolist() == wanted.tolist(), (
            name
        )


@pytest.mark.parametrize("probe", CALLS)
def test_a_matrix_is_measured_with_the_bits_of_a_study(probe, results):
    A = curvflow.from_matrix(results["matrix"]["dense"].values)
    assert_same_bits(CALLS[probe][1](A), results[f"{probe}_matrix"])


@pytest.mark.parametrize("probe", CALLS)
def test_a_network_is_measured_with_the_bits_of_a_study(probe, results, problem):
    H = OPERATORS["hessian"](*problem)
    assert_same_bits_but_layers(CALLS[probe][1](H), results[f"{probe}_net"])


@pytest.mark.parametrize("probe", BY_BATCHES)
def test_batches_give_the_numbers_of_a_study_up_to_rounding(probe, results, problem):
    got = BY_BATCHES[probe][1](OPERATORS["hessian"](*problem)).to_xarray()
    expected = results[f"{probe}_batches"]
    assert len(got.data_vars) >= 5
    for name in got.data_vars:
        if got[name].dtype.kind == "f":
            np.testing.assert_allclose(got[name], expected[name], rtol=1e-9)
        else:
            assert (got[name].values == expected[name].values).all()


@pytest.mark.parametrize("probe", BESIDE)
def test_factors_beside_a_network_give_the_bits_of_a_study(probe, results, problem):
    G, K = curvflow.ggn(*problem), curvflow.kronecker(*problem)
    expected = results[f"{probe}_beside"]
    assert_same_bits_but_layers(BESIDE[probe][1](G, K), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda G, K: G.trace(4, preconditioner=K, method="xtrace"), "^method cannot"),
        (
            lambda G, K: G.trace(4, preconditioner=K, probes_per="batch"),
            "^probes_per c",
        ),
        (lambda G, K: G.logdet(preconditioner=K), "^damping: .*Set damping above 0"),
        (lambda G, K: G.logdet(preconditioner=K, damping=0.1, rank=3), "^rank cannot"),
        (lambda G, K: G.eigenvalues(preconditioner=K), "^method: .*Take lobpcg"),
        (lambda G, K: G.block("0.*").trace(4, preconditioner=K), "others: 2.bias, 2.w"),
        (
            lambda G, _: G.trace(4, preconditioner=G),
            "^preconditioner: expected factors",
        ),
    ],
)
def test_factors_that_do_not_fit_are_refused(call, message, problem):
    G, K = curvflow.ggn(*problem), curvflow.kronecker(*problem)
    with pytest.raises(InputError, match=message):
        call(G, K)


def test_what_is_kept_beside_factors_is_known_by_their_content(problem, tmp_path):
    G = curvflow.ggn(*problem, store=tmp_path / "store")
    kron, ekfac = (curvflow.kronecker(*problem, structure=s) for s in ("kron", "ekfac"))
    draws = [
        G.trace(8, preconditioner=K).draws for K in (None, kron, ekfac, kron, ekfac)
    ]
    for one, other in ((1, 3), (2, 4)):
        np.testing.assert_array_equal(draws[one], draws[other])
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[1], draws[2])


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_the_bits_of_a_study(name, results, problem):
    got = OPERATORS[name](*problem).trace(4)
    assert got.draws.tolist() == results[name]["trace_draws"].values.tolist()
    assert got.num_matvecs == 4


def assert_same_bits_but_layers(result, expected):
    """The names of layers are the module's own: `0.weight`, not `layer1.weight`."""
    expected = expected.load()
    if "layer" in expected:
        layers = np.array(["0.weight", "0.bias", "2.weight", "2.bias"], object)
        expected = expected.assign_coords(layer=layers)
    assert_same_bits(result, expected)


@pytest.mark.parametrize("probe", READ)
def test_what_is_read_from_a_spectrum_has_the_bits_of_a_study(probe, results, problem):
    runs = OPERATORS["hessian"](*problem).spectrum(4, 20)
    got = READ[probe][1](runs)
    assert_same_bits(got, results[f"read_{probe}"])
    assert got.num_matvecs == 0


def dense(H):
    return H @ torch.eye(H.shape[0], dtype=H.dtype)


@pytest.fixture(scope="module")
def small():
    """Return a network of 23 parameters, a loss of its own, and batches."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2), nn.Softplus())
    x, y = torch.randn(12, 3).double(), torch.rand(12, 2).double()
    batches = [(x[:5], y[:5]), (x[5:], y[5:])]
    return net.double(), lambda f, t: (f - t).abs().pow(3).mean(), batches


def test_numbers_of_a_module_agree_with_its_dense_hessian(small):
    H = curvflow.hessian(*small)
    values = torch.linalg.eigvalsh(dense(H))
    positive = values.clamp_min(0)
    runs = H.spectrum(num_runs=60, num_steps=20)
    checks = {
        "trace": (H.trace(200, method="hutch++"), values.sum()),
        "norm": (H.squared_norm(200), values.square().sum()),
        "moment": (runs.functional(torch.square), values.square().sum()),
        "functional": (H.functional(torch.exp, num_runs=60), values.exp().sum()),
        "dimension": (
            runs.effective_dimension(0.1),
            (positive / (positive + 0.1)).sum(),
        ),
        "logdet": (
            H.shifted(1.0).logdet(num_runs=60, num_steps=20),
            (values + 1).log().sum(),
        ),
        "mass": (runs.mass(low=1e-6), (values > 1e-6).double().mean()),
    }
    for name, (got, exact) in checks.items():
        assert abs(float(got) - float(exact)) <= 5 * got.sem + 1e-9, name
        assert got.sem < 0.5 * max(1.0, abs(float(exact))), name
    diagonal = H.diagonal(200)
    away = np.abs(diagonal.value - dense(H).diagonal().numpy())
    assert np.all(away <= 5 * diagonal.sem + 1e-9)
    assert {name: len(part) for name, part in diagonal.layers.items()} == H.sizes
    top = H.eigenvalues(k=2, which="LA")
    torch.testing.assert_close(torch.as_tensor(top.value), values.flip(0)[:2])
    assert top.converged.all()


def test_the_density_is_the_smoothed_spectrum(small):
    H = curvflow.hessian(*small)
    values = torch.linalg.eigvalsh(dense(H))
    got = H.density(sigma=0.3, num_runs=80, num_steps=20)
    z = (torch.as_tensor(got.grid)[:, None] - values) / 0.3
    exact = torch.exp(-z.square() / 2).mean(1) / (0.3 * (2 * torch.pi) ** 0.5)
    assert np.all(np.abs(got.value - exact.numpy()) <= 6 * got.sem + 1e-6)
    assert np.trapezoid(got.value, got.grid) == pytest.approx(1, abs=1e-3)
    assert got.num_matvecs == 80 * 20
    points = [1e-50, 0.1, 0.7, 1e39]
    assert H.density(points, sigma=0.3, num_steps=5).grid.tolist() == points


def test_a_block_is_measured_by_itself(small):
    H = curvflow.hessian(*small)
    block = H.block("2.*")
    assert (type(block), block.sizes) == (type(H), {"2.weight": 6, "2.bias": 2})
    exact = torch.linalg.eigvalsh(dense(H)[12:, 12:])
    torch.testing.assert_close(
        torch.as_tensor(block.eigenvalues(1, which="LA").value), exact[-1:]
    )
    layers = H.trace(1000).layers
    assert list(layers) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    value, sem = layers["2.weight"]
    assert abs(value - float(dense(H).diagonal()[12:18].sum())) < 5 * sem


def test_sums_and_multiples_are_measured_too(small):
    H, G = curvflow.hessian(*small), curvflow.ggn(*small)
    mixed = (2 * H - G).shifted(0.5)
    exact = 2 * dense(H) - dense(G) + 0.5 * torch.eye(H.shape[0], dtype=H.dtype)
    top = torch.linalg.eigvalsh(exact)[-1:]
    got = mixed.eigenvalues(1, which="LA").value
    torch.testing.assert_close(torch.as_tensor(got), top)


def test_systems_are_solved_and_the_method_is_said(small):
    H = curvflow.hessian(*small)
    b = torch.linspace(-1, 1, 2 * H.shape[0], dtype=H.dtype).view(-1, 2)
    low = float(torch.linalg.eigvalsh(dense(H))[0])
    damped = H.shifted(0.1 - low)
    got = damped.solve(b, tol=1e-10)
    assert (got.method, got.converged, got.x.shape) == ("cg", True, b.shape)
    torch.testing.assert_close(got.x, torch.linalg.solve(dense(damped), b))
    indefinite = H.shifted(0.013)
    assert torch.linalg.eigvalsh(dense(indefinite))[0] < 0
    got = indefinite.solve(b[:, 0], tol=1e-9)
    assert (got.method, got.converged, got.x.shape) == ("minres", True, b[:, 0].shape)
    expected = torch.linalg.solve(dense(indefinite), b[:, 0])
    torch.testing.assert_close(got.x, expected, rtol=1e-5, atol=1e-6)
    assert got.residual < 1.1e-9
    tracked = indefinite.solve(b[:, 0].clone().requires_grad_(), tol=1e-9)
    assert torch.equal(tracked.x, got.x)
    short = indefinite.solve(b, method="cg", max_iterations=2)
    assert not short.converged


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
def test_a_system_without_solution_is_solved_by_least_squares(matrix):
    # Of a softmax the outputs' sum is free: the Hessian of every such net is singular.
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = torch.randn(50, 4).double(), torch.arange(50) % 3
    H = getattr(curvflow, matrix)(net, nn.CrossEntropyLoss(), (x, y))
    b = torch.ones(H.shape[0]).double()
    inverse = torch.linalg.pinv(dense(H), rtol=1e-10, hermitian=True)
    least = float((b - dense(H) @ (inverse @ b)).norm() / b.norm())
    got = H.solve(b)
    assert got.method == "minres"
    assert least <= got.residual < 1.001 * least
    assert (got.converged, got.least_squares) == (False, True)
    assert "least squares by minres" in repr(got)
    assert got.iterations < 500
    assert got.x.norm() < 100 * (inverse @ b).norm()
    inside = H.solve(dense(H) @ b, tol=1e-8)
    assert (inside.converged, inside.least_squares) == (True, False)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64]
)
def test_a_solution_is_as_precise_as_its_residual_says(dtype):
    A = torch.diag(torch.arange(1.0, 6.0).double())
    got = curvflow.from_matrix(A).solve(torch.ones(5, dtype=dtype), tol=1e-10)
    assert got.x.dtype == (torch.float32 if dtype == torch.float32 else torch.float64)
    expected = 1 / torch.arange(1.0, 6.0).double()
    torch.testing.assert_close(got.x.double(), expected, rtol=1e-6, atol=0)
    assert got.value.tolist() == got.x.tolist()


def test_products_that_are_symmetric_but_for_rounding_are_taken():
    G = torch.randn(300, 300, generator=torch.Generator().manual_seed(1))
    A = (G @ G.T).numpy()  # single precision
    assert curvflow.from_matrix(aslinearoperator(A)).dtype == torch.float32
    double = aslinearoperator(A.astype(np.float64) / 3)
    assert curvflow.from_matrix(double).dtype == torch.float64


@pytest.mark.parametrize("size", [2, 40, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_map_that_differs_from_its_transpose_is_refused(size, dtype):
    diagonal = sparse.diags_array(np.arange(1.0, size + 1), dtype=dtype)
    upper = sparse.diags_array([np.full(size - 1, 2.0)], offsets=[1], dtype=dtype)
    with pytest.raises(InputError, match=r"^matrix: .*asymmetry of [0-9.e-]+ relative"):
        curvflow.from_matrix(aslinearoperator(diagonal + upper))


def test_the_nodes_at_which_a_function_is_not_finite_are_counted():
    A = torch.diag(torch.tensor([-2.0, -0.5, 1.0, 3.0, 4.0]).double())
    runs = curvflow.from_matrix(A).spectrum(num_runs=2, num_steps=5)
    with pytest.raises(InputError, match=r"at 4 of 10, from -2 to -0\.5"):
        runs.functional(torch.log)
    assert runs.functional(torch.exp).value > 0


def test_steps_that_do_not_resolve_a_functional_are_in_its_error():
    values = torch.logspace(-6, 0, 120, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(120, 120, dtype=torch.float64)).Q
    A = curvflow.from_matrix(Q @ torch.diag(values) @ Q.T)
    rough, fine = (A.spectrum(num_runs=8, num_steps=k) for k in (6, 110))
    for found in (
        rough.functional(lambda x: x / (x + 1e-4)),
        rough.effective_dimension(1e-4),
    ):
        truth = float((values / (values + 1e-4)).sum())
        low, high = found.interval
        assert low < truth < high
        assert found.converged is False
        assert found.quadrature_error > 0.01 * truth
        assert abs(found.value - truth) < 3 * found.sem
    assert fine.functional(lambda x: x / (x + 1e-4)).converged is True
    dimension = fine.effective_dimension(1e-4)
    assert dimension.converged is True
    assert dimension.prior_precision.tolist() == [1e-4]
    assert fine.effective_dimension((1e-4, 1.0)).converged.tolist() == [True, True]


def test_all_kinds_of_matrices_are_taken():
    points = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).double()
    kernel = KernelMatrix(points, "matern32", 0.5, 1e-2)
    A = kernel.dense()
    top = torch.linalg.eigvalsh(A)[-1].item()
    given = {
        "tensor": A,
        "array": A.numpy(),
        "integers": torch.eye(3, dtype=torch.int64),
        "sparse": sparse.csr_array(A.numpy()),
        "coo": sparse.coo_matrix(A.numpy()),
        "sparse tensor": A.to_sparse_coo(),
        "linear": aslinearoperator(A.numpy()),
        "operator": kernel,
    }
    for name, matrix in given.items():
        largest = curvflow.from_matrix(matrix).eigenvalues(1, which="LA").value[0]
        assert largest == pytest.approx(1 if name == "integers" else top), name
    single = curvflow.from_matrix(A.float())
    assert (single.dtype, single.eigenvalues(1).converged.all()) == (
        torch.float32,
        True,
    )
    half = curvflow.from_matrix(torch.eye(3, dtype=torch.bfloat16, requires_grad=True))
    assert (half.dtype, half.trace(4).value) == (torch.float64, 3.0)
    pairs = (np.ones(4), (np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1])))
    assert curvflow.from_graph(pairs).shape == (3, 3)
    slq = curvflow.from_matrix(kernel).logdet(method="slq", num_runs=40)
    exact = torch.logdet(A).item()
    assert abs(slq.value - exact) < 5 * slq.sem
    preconditioned = curvflow.from_matrix(A).logdet(
        method="preconditioned_meme", floor=1e-2
    )
    assert preconditioned.value == pytest.approx(exact, abs=0.2)
    assert preconditioned.variables["rank"] == 30


def test_arrays_have_labels_units_and_descriptions(small):
    dataset = curvflow.hessian(*small).trace(4).to_xarray()
    assert dataset["layer_trace"].dims == ("layer",)
    assert dataset["layer"].values.tolist()[0] == "0.weight"
    assert dataset["trace"].attrs["units"] == "loss / parameter^2"
    assert "standard error" in dataset["trace_sem"].attrs["description"]


def test_a_standard_error_requested_is_reached(small):
    H = curvflow.hessian(*small)
    got = H.trace(4, rel_sem=0.1)
    assert got.reached
    assert got.sem <= 0.1 * abs(got.value)
    assert got.num_matvecs > 4


def test_seeds_change_numbers_and_equal_seeds_do_not(small):
    H = curvflow.ggn(*small)
    assert H.trace(8, seed=1).draws.tolist() == H.trace(8, seed=1).draws.tolist()
    assert H.trace(8, seed=1).value != H.trace(8, seed=2).value


def test_results_read_as_one_line(small):
    H = curvflow.ggn(*small)
    assert repr(H) == "SymmetricOperator(ggn, 20 by 20, float64, cpu)"
    results = [H.trace(4), H.spectrum(2, 5), H.eigenvalues(2), H.solve(torch.ones(20))]
    for result in results:
        assert "\n" not in repr(result)
        assert f"{result.num_matvecs} products" in repr(result)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda H: H.eigenvalues(k=0), r"^k: expected .*got 0\."),
        (lambda H: H.eigenvalues(k=99), r"^k: expected at most the 20"),
        (lambda H: H.eigenvalues(method="power", which="LA"), "which LM"),
        (lambda H: H.trace(method="bekas"), r"^method: expected .*'hutch\+\+'"),
        (lambda H: H.spectrum(num_stepz=3), r"^num_stepz: expected one of .*num_steps"),
        (lambda H: H.density(kappa=0.1, sigma=0.1), "cannot be combined"),
        (lambda H: H.density(sigma=-1), r"^sigma: expected .*above 0"),
        (lambda H: H.shifted(-99).logdet(num_runs=2), r"^damping: expected a positive"),
        (lambda H: H.solve(torch.ones(3)), r"^b: expected vectors of 20"),
        (lambda H: H.solve(torch.ones(1, 20, 2)), r"^b: .*\(1, 20, 2\)"),
        (lambda H: H.solve(torch.ones(20, 0)), r"^b: expected one vector"),
        (lambda H: H.solve(torch.ones(20) * 1j), r"^b: expected real"),
        (lambda H: H.density([0.0, np.nan], num_runs=2), r"^grid: .*finite"),
        (lambda H: H.density([], num_runs=2), r"^grid: "),
        (lambda H: H.spectrum(2, 5).mass(low=np.nan), r"^low: "),
        (lambda H: H.functional(torch.sum, num_runs=2), r"^f: "),
        (lambda H: H.shifted(-1e3).functional(torch.log, num_runs=2), r"^f: .*finite"),
        (lambda H: H.solve(torch.ones(20), tol=2.0), r"^tol: expected"),
        (lambda H: H.solve(torch.ones(20), method="lu"), r"^method: expected auto"),
        (lambda H: H.solve(torch.ones(20), max_iterations=0), r"^max_iterations: "),
        (lambda H: H.effective_dimension(-1.0), r"^prior_precision.*above|greater"),
        (lambda H: H.effective_dimension("a"), r"^prior_precision: .*'a'"),
        (lambda H: H.effective_dimension(()), r"^prior_precision: expected at least"),
        (lambda H: H.logdet(operator="ggn"), r"^operator cannot be combined"),
        (lambda _: curvflow.from_matrix(torch.ones(2, 3)), r"^matrix: .*square"),
        (lambda _: curvflow.from_matrix([[1.0]]), r"^matrix: .* list"),
        (lambda _: curvflow.from_matrix(torch.ones(0, 0)), r"^matrix: .*none"),
        (lambda _: curvflow.from_matrix(np.eye(2) * 1j), r"^matrix: .*real"),
        (lambda _: curvflow.from_matrix(np.tri(3)), r"^matrix: .*symmetric"),
        (lambda _: curvflow.from_matrix(sparse.csr_array(np.tri(3))), "symmetric"),
        (lambda _: curvflow.from_matrix(torch.ones(3, 3).tril().to_sparse()), "symm"),
        (lambda _: curvflow.from_matrix(torch.ones(2, 2, 2).to_sparse()), "square"),
        (
            lambda _: curvflow.from_matrix(
                torch.eye(2).to(torch.complex64).to_sparse()
            ),
            "real",
        ),
        (lambda _: curvflow.from_matrix(aslinearoperator(np.tri(3))), "asymmetry of"),
        (lambda _: curvflow.from_matrix(aslinearoperator(np.ones((2, 3)))), "square"),
        (lambda _: curvflow.from_matrix(np.full((2, 2), np.nan)), r"^matrix: .*finite"),
    ],
)
def test_what_is_wrong_is_named(call, message, small):
    with pytest.raises(InputError, match=message) as caught:
        call(curvflow.ggn(*small))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("settings", "params"),
    [
        (arguments.SpectrumSettings, SpectrumParams),
        (arguments.FitSettings, LogdetParams),
        (arguments.LogdetSettings, LogdetParams),
        (arguments.FactorsSettings, FactorsParams),
    ],
)
def test_hints_of_settings_are_the_types_of_the_parameters(settings, params):
    hints = get_type_hints(settings)
    fields = {name: params.model_fields[name].annotation for name in hints}
    if "layers" in hints:  # of which a list is taken too
        del hints["layers"], fields["layers"]
        assert set(settings.__annotations__) == set(params.model_fields)
    assert hints == fields


# Defaults that are not those of a study: docs/library.md names them.
OTHER_DEFAULTS = {
    ("eigenvalues", "method", "lanczos"),
    ("logdet", "preconditioner", None),  # factors, which a study gives as an input
    ("moments", "basis", "power"),  # of a spectrum, and so the next
    ("logdet", "method", "slq"),
    ("llc", "dtype", None),
}


def test_defaults_are_those_of_a_study_but_for_a_few():
    H = curvflow.from_matrix(torch.eye(3).double())
    runs = H.spectrum(2, 2)
    methods = [getattr(H, name) for name in CALLS] + [curvflow.llc, curvflow.kronecker]
    methods += [getattr(runs, name) for name in CALLS if hasattr(runs, name)]
    different, compared = set(), 0
    for method in methods:
        name = method.__name__
        kind = find_kind("probe." + {"kronecker": "factors"}.get(name, name))
        fields = kind.params.model_fields
        for parameter in inspect.signature(method).parameters.values():
            if parameter.default is not parameter.empty and parameter.name in fields:
                compared += 1
                usual = fields[parameter.name].get_default(call_default_factory=True)
                if parameter.default != usual:
                    different.add((name, parameter.name, parameter.default))
    assert different == OTHER_DEFAULTS
    assert compared > 50
