"""A program that uses every method of the library; `make library` and a test run it.

A test compares what is called here with the classes.
"""

from typing import Any

import torch

import curvflow

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
data = torch.randn(20, 3).double(), torch.arange(20) % 2
take = net.double(), "cross_entropy", data
H, G, K = curvflow.hessian(*take), curvflow.ggn(*take), curvflow.kronecker(*take)
ones = torch.ones(G.shape[0]).double()
runs = H.spectrum(3, 5)
path = torch.diag(torch.ones(3), 1) + torch.diag(torch.ones(3), -1)
chains: dict[str, Any] = {"num_chains": 2, "num_draws": 20}
fit = curvflow.llc(*take, **chains)
results: list[Any] = [
    H.eigenvalues(2),
    H.eigenvalues(2, method="lobpcg", which="LA", preconditioner=K),
    H.trace(8, method="xtrace"),
    G.trace(8, preconditioner=K),
    H.diagonal(8),
    H.squared_norm(8),
    runs,
    runs.eigenvalues(2),
    runs.mass(low=0.0),
    runs.moments(4),
    runs.effective_dimension(0.1),
    runs.logdet(damping=1.0),
    runs.density(),
    runs.functional(torch.exp),
    H.moments(4, num_probes=2),
    H.effective_dimension(0.1, num_runs=2),
    H.density(num_runs=2),
    H.functional(torch.exp, num_runs=2),
    G.logdet(damping=0.1, num_runs=2),
    G.logdet(damping=0.1, num_runs=2, preconditioner=K),
    G.shifted(0.1).solve(ones),
    H.block("0.*").trace(4),
    K.operator.trace(4),
    curvflow.fisher(*take, kind="mc").trace(4),
    curvflow.gradient_covariance(*take).trace(4),
    curvflow.from_matrix(torch.eye(3)).trace(4),
    curvflow.from_graph(path.numpy()).trace(4),
    fit,
    curvflow.llc(*take, **chains, preconditioner=K),
    curvflow.wbic(*take, **chains),
]
assert H.adjoint() is H
assert (H.to_scipy() @ ones.numpy()).shape == (26,)
assert K.logdet(damping=0.1) < 0
assert abs((K @ K.solve(ones, 0.1) + 0.1 * K.solve(ones, 0.1) - ones).max()) < 1e-9
top = float(torch.linalg.eigvalsh(H @ torch.eye(26).double())[-1])
assert abs(H.eigenvalues(1, which="LA").value[0] - top) < 1e-9 * top
results.append(curvflow.Monitor(*take, probes=["sharpness", "trace"]))
results[-1].measure()
for result in results:  # the last, for xarray imports dask where there is one
    assert len(result.to_xarray().variables) > 1, result
assert "posterior" in fit.to_arviz()
