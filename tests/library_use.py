"""A program that uses every method of the library; `make library` and a test run it."""

from typing import Any

import torch

import curvflow

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
data = torch.randn(20, 3).double(), torch.arange(20) % 2
take = net.double(), "cross_entropy", data
H, G = curvflow.hessian(*take), curvflow.ggn(*take)
runs = H.spectrum(3, 5)
results: list[Any] = [
    H.eigenvalues(2),
    H.trace(8, method="xtrace"),
    runs,
    runs.mass(low=0.0),
    runs.moments(4),
    H.moments(4, num_probes=2),
    H.effective_dimension(0.1, num_runs=2),
    H.density(num_runs=2),
    H.functional(torch.exp, num_runs=2),
    G.logdet(damping=0.1, num_runs=2),
    G.shifted(0.1).solve(torch.ones(G.shape[0]).double()),
    curvflow.fisher(*take, kind="mc").trace(4),
    curvflow.gradient_covariance(*take).trace(4),
    curvflow.from_matrix(torch.eye(3)).trace(4),
    curvflow.llc(*take, num_chains=2, num_draws=20),
    curvflow.wbic(*take, num_chains=2, num_draws=20),
]
top = float(torch.linalg.eigvalsh(H @ torch.eye(26).double())[-1])
assert abs(H.eigenvalues(1, which="LA").value[0] - top) < 1e-9 * top
results.append(curvflow.Monitor(*take, probes=["sharpness", "trace"]))
results[-1].measure()
for result in results:  # the last, for xarray imports dask where there is one
    assert len(result.to_xarray().variables) > 1, result
