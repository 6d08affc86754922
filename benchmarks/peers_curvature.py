"""Hessians of four networks through curvflow and its peers: trace, spectrum, top ten.

    python -m benchmarks.peers_curvature [--quick] [--turns N] [--threads N]
        [--nets mlp,lenet,resnet18,decoder] [--tasks trace,spectrum,top]
        [--device cpu|cuda] [--without PyHessian]

Asked of each: the trace by 20 Rademacher vectors; a spectrum by one Lanczos run of 100
steps; the ten eigenvalues of largest magnitude to a relative error of 1e-3; of
ResNet-18, whose products take long, fewer of each. Its batch norms are in evaluation
mode; the decoder is a transformer of two blocks on 256 windows of a book. The same
network, loss, samples and precision, float32, one process, one number of threads; the
systems take turns, so that other load on the machine hits all alike, and the median of
the turns counts, on a CPU of the seconds of the process. What is done once per process
is done before. curvflow's answers are checked by single products in double precision,
made by plain double backward, and all others by its: one outside 5 standard errors of a
trace, 1 % of the largest value of a spectrum or the 1e-3 asked of the top ten is
marked. Times of traces are also given in gradient equivalents: the time of a product
over that of one gradient, whose floor is about 2. Peers are installed beforehand, by
requirements-peers-curvature.txt; what is missing or fails is listed with the reason.
Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import copy
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.decoders import Decoder, windows
from curvflow.flows.published.arrays import published_arrays
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.tasks.numerics.derivatives.modules import hessian
from curvflow.tasks.numerics.derivatives.over_batches import CACHED_BYTES, Curvature
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.krylov.restarted_lanczos import restarted_lanczos

PROBES, STEPS, TOP, TOL = 20, 100, 10, 1e-3
# Columns whose products are measured; the last are those of a trace on a GPU.
BLOCKS = (1, 4, 16)
# What a CPU multiplies fastest: more columns leave its caches.
CPU_BLOCK = 4
TASKS = ("trace", "spectrum", "top")


@dataclass(frozen=True)
class Case:
    """A network and the batch its loss is averaged over."""

    name: str
    module: nn.Module
    inputs: Tensor
    targets: Tensor
    probes: int = PROBES
    steps: int = STEPS
    top: int = TOP

    @property
    def block(self) -> int:
        """Vectors of a trace multiplied at once."""
        if self.inputs.is_cuda:
            return BLOCKS[-1]
        fitting = CACHED_BYTES // (self.inputs.element_size() * self.size)
        return max(1, min(CPU_BLOCK, self.probes, fitting))

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        return self.inputs, self.targets

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.module.parameters())


def lenet() -> nn.Module:
    """LeNet-5 with rectified linear units, for one channel of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, 10),
    )


def mlp() -> nn.Module:
    """A network 784-256-256-10 with hyperbolic tangents."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 256), nn.Tanh()),
        *(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)),
    )


class Skip(nn.Module):
    """Two convolutions beside a shortcut, with batch norms."""

    def __init__(self, come: int, go: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(nn.Conv2d(come, go, 3, stride, 1, bias=False), nn.BatchNorm2d(go)),
            nn.ReLU(),
            *(nn.Conv2d(go, go, 3, 1, 1, bias=False), nn.BatchNorm2d(go)),
        )
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(come, go, 1, stride, bias=False), nn.BatchNorm2d(go)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the sum of both."""
        return nn.functional.relu(self.path(inputs) + self.shortcut(inputs))


def resnet18() -> nn.Module:
    """ResNet-18 of He et al. (2015), as for large images, with ten classes."""
    widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
        *(s for i, o, n in widths for s in (Skip(i, o, n), Skip(o, o, 1))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)),
    )


def images(count: int) -> tuple[Tensor, Tensor]:
    """Return images of MNIST and their labels."""
    arrays = published_arrays(
        cast("ImageParams", find_kind("data.mnist").params()), Path.cwd()
    )
    inputs = torch.as_tensor(arrays["inputs"][:count], dtype=torch.float32) / 255
    return inputs.reshape(count, 1, 28, 28), torch.as_tensor(arrays["targets"][:count])


def cases(names: list[str], *, quick: bool, device: str) -> list[Case]:
    """Build the networks asked for, trained a little so that they have a spectrum."""
    sizes = {"mlp": 1024, "lenet": 256, "resnet18": 16, "decoder": 256}
    makers = {"mlp": mlp, "lenet": lenet, "resnet18": resnet18}
    # Of probes, steps and eigenvalues.
    asked = {"resnet18": (4, 10, 2)}
    found = []
    for name in names:
        torch.manual_seed(0)
        count = sizes[name] // (4 if quick else 1)
        if name == "decoder":
            inputs, targets, vocabulary = windows(count)
            module: nn.Module = Decoder(vocabulary).to(device)
        else:
            inputs, targets = images(count)
            module = makers[name]().to(device)
        if name == "resnet18":
            inputs = nn.functional.interpolate(inputs, 32).repeat(1, 3, 1, 1)
        inputs, targets = inputs.to(device), targets.long().to(device)
        _train(module, inputs, targets)
        counts = (4, 5, 2) if quick else asked.get(name, (PROBES, STEPS, TOP))
        found.append(Case(name, module.eval(), inputs, targets, *counts))
    return found


def _train(module: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    module.zero_grad()


System = Callable[[Case, str], Any]


# What curvflow found, by network and task: what its answers are checked by.
_evidence: dict[tuple[str, str], Any] = {}


def curvflow(case: Case, task: str) -> Any:
    """Answer by blocks of columns and one retained graph or record."""
    count = {"trace": case.probes, "spectrum": case.steps}.get(task, math.inf)
    operator = hessian(
        case.module, nn.functional.cross_entropy, case.batch, num_products=count
    )
    batched = operator.batched
    if task == "trace":
        return _trace_draws(case, operator).mean().item()
    start = random_vectors([0], case.size, range(1), "rademacher", operator.dtype)
    if task == "spectrum":
        found = lanczos(batched, start.to(operator.device), num_steps=case.steps)
        _evidence[case.name, task] = found
        return found.values[0, 0].cpu().numpy()
    pairs = restarted_lanczos(
        batched, start.double(), k=case.top, tol=TOL, max_iterations=1000
    )
    _evidence[case.name, task] = pairs
    return pairs.values[0].cpu().numpy()


def _trace_draws(case: Case, operator: Curvature) -> Tensor:
    draws = []
    for first in range(0, case.probes, case.block):
        rows = range(first, min(first + case.block, case.probes))
        drawn = random_vectors([0], case.size, rows, "rademacher", operator.dtype)
        z_DS = drawn[0].to(operator.device)
        draws.append(torch.einsum("ds,ds->s", z_DS, operator @ z_DS))
    draws_S = torch.cat(draws).double()
    _evidence[case.name, "trace"] = z_DS[:, -1], draws_S
    return draws_S


def pyhessian(case: Case, task: str) -> Any:
    """Answer by PyHessian, which keeps one graph of the gradient."""
    device = "cuda" if case.inputs.is_cuda else "cpu"
    # Its spectrum calls what torch no longer has, and is given it for symmetric ones.
    cast("Any", torch).eig = _symmetric_eig
    of = import_module("pyhessian").hessian(
        case.module,
        nn.CrossEntropyLoss(),
        data=case.batch,
        cuda=device == "cuda",
    )
    try:
        if task == "trace":
            # It stops at any tolerance once a mean is negative, but for this.
            return float(np.mean(of.trace(maxIter=case.probes, tol=-math.inf)))
        if task == "spectrum":
            values, _ = of.density(iter=case.steps, n_v=1)
            return np.sort(np.real(values[0]))
        return np.array(of.eigenvalues(maxIter=100, tol=TOL, top_n=case.top)[0])
    finally:
        case.module.zero_grad()


def _symmetric_eig(matrix: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    assert eigenvectors
    return torch.stack([values, torch.zeros_like(values)], dim=1), vectors


def curvlinops(case: Case, task: str) -> Any:
    """Answer by curvlinops, forward over reverse."""
    library = import_module("curvlinops")
    params = [p for p in case.module.parameters() if p.requires_grad]
    of = library.HessianLinearOperator(
        case.module,
        nn.CrossEntropyLoss(),
        params,
        [case.batch],
        check_deterministic=False,
    )
    from scipy.sparse.linalg import eigsh

    if task == "trace":
        return float(library.hutchinson_trace(of, num_matvecs=case.probes))
    if task == "spectrum":
        # Its spectrum is ARPACK's, of as many vectors as there are steps.
        spectrum = import_module("curvlinops.papyan2020traces.spectrum")
        values, _ = spectrum.fast_lanczos(of, case.steps)
        return np.sort(np.asarray(values))
    return eigsh(of.to_scipy(), k=case.top, tol=TOL, return_eigenvectors=False)


def eigenthings(case: Case, task: str) -> Any:
    """Answer by hessian-eigenthings, one vector at a time."""
    library = import_module("hessian_eigenthings")
    algorithms = import_module("hessian_eigenthings.algorithms")
    of = import_module("hessian_eigenthings.operators").HessianOperator(
        case.module,
        [case.batch],
        lambda module, batch: nn.functional.cross_entropy(module(batch[0]), batch[1]),
    )
    if task == "trace":
        found = library.trace(of, num_matvecs=case.probes, method="hutchinson", seed=0)
        return float(found.estimate)
    if task == "spectrum":
        found = algorithms.spectral_density(
            of, num_runs=1, lanczos_steps=case.steps, seed=0
        )
        return found.raw_eigenvalues[0].double().cpu().numpy()
    # It makes as many steps as it is told, found or not: the fewest tens that find all
    # are looked for before, in a turn that does not count.
    asked = {"k": case.top, "tol": TOL, "seed": 0, "reorthogonalize": True}
    if case.name in _enough:
        found = library.lanczos(of, max_iter=_enough[case.name], **asked)
    else:
        for steps in range(2 * TOP, 20 * TOP, TOP):
            found = library.lanczos(of, max_iter=steps, **asked)
            if found.converged.all():
                break
        _enough[case.name] = steps
    return found.eigenvalues.cpu().numpy()


# Steps that hessian-eigenthings needs, by network.
_enough: dict[str, int] = {}


SYSTEMS: Mapping[str, System] = {
    "curvflow": curvflow,
    "PyHessian": pyhessian,
    "curvlinops": curvlinops,
    "hessian-eigenthings": eigenthings,
}


def exact_product(case: Case, vector: Tensor) -> Tensor:
    """Return a product in double precision, by plain double backward."""
    module = copy.deepcopy(case.module).double()
    params = list(module.parameters())
    is_real = case.inputs.is_floating_point()
    inputs = case.inputs.double() if is_real else case.inputs
    loss = nn.functional.cross_entropy(module(inputs), case.targets)
    slopes = torch.autograd.grad(loss, params, create_graph=True)
    parts = vector.double().split([p.numel() for p in params])
    along = sum((s.flatten() * p).sum() for s, p in zip(slopes, parts, strict=True))
    found = torch.autograd.grad(along, params)
    return torch.cat([part.flatten() for part in found])


def is_proven(case: Case, task: str) -> bool:
    """Tell whether curvflow's own answer holds, by products in double precision."""
    evidence = _evidence[case.name, task]
    if task == "trace":
        vector, draws = evidence
        exact = vector.double() @ exact_product(case, vector)
        return bool((draws[-1] / exact - 1).abs() < TOL)
    if task == "spectrum":
        largest = evidence.values[0, 0].abs().argmax()
        share = evidence.residuals[0, 0, largest] / evidence.values[0, 0, largest]
        return bool(share.abs() < 0.01)
    values, vectors = evidence.values[0], evidence.vectors[0]
    gaps = [
        (exact_product(case, vectors[:, n]) - values[n] * vectors[:, n]).norm()
        / values[n].abs()
        for n in (0, case.top - 1)
    ]
    return bool(max(gaps) < 0.01)


def is_like(case: Case, task: str, answer: Any, own: Any) -> bool:
    """Tell whether an answer is curvflow's, within its errors."""
    if task == "trace":
        _, draws = _evidence[case.name, task]
        error = draws.std().item() * math.sqrt(2 / case.probes)
        return bool(abs(answer - own) <= 5 * error)
    found, expected = (np.sort(np.abs(values))[::-1] for values in (answer, own))
    if task == "spectrum":
        return bool(abs(found[0] / expected[0] - 1) < 0.01)
    return bool(np.allclose(found, expected, rtol=TOL))


def gradient_seconds(case: Case) -> float:
    """Return the least time of five gradients."""
    params = list(case.module.parameters())
    times = []
    for _ in range(5):
        begun = _now(case)
        loss = nn.functional.cross_entropy(case.module(case.inputs), case.targets)
        torch.autograd.grad(loss, params)
        times.append(_now(case) - begun)
    return min(times)


def product_seconds(case: Case, block: int) -> float:
    """Return the least time per product of three blocks."""
    operator = hessian(case.module, nn.functional.cross_entropy, case.batch)
    columns = torch.randn(case.size, block).to(case.inputs.device)
    _ = operator @ columns
    times = []
    for _ in range(3):
        begun = _now(case)
        _ = operator @ columns
        times.append(_now(case) - begun)
    return min(times) / block


def _is_there(module: str) -> bool:
    return find_spec(module) is not None


def _now(case: Case) -> float:
    """Return seconds: on a CPU those of this process, which other load is not in."""
    if case.inputs.is_cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


Measured = dict[str, tuple[float, Any] | str]


def measure(case: Case, task: str, turns: int, systems: list[str]) -> Measured:
    """Return of each system the median time and the last answer, or why it failed."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    answers: dict[str, Any] = {}
    failed: dict[str, str] = {}
    is_asked = "hessian-eigenthings" in systems and _is_there("hessian_eigenthings")
    if task == "top" and is_asked:
        eigenthings(case, task)
    for turn in range(-1, turns):
        for name in systems:
            if name in failed:
                continue
            begun = _now(case)
            try:
                # Before the first turn, a trace of two: what is done once per process.
                warm = replace(case, probes=2)
                answer = SYSTEMS[name](*((warm, "trace") if turn < 0 else (case, task)))
            except Exception as error:  # a peer may fail in any way; it is listed
                failed[name] = f"{type(error).__name__}: {str(error)[:120]}"
                continue
            if turn >= 0:
                answers[name] = answer
                times[name].append(_now(case) - begun)
    return {
        name: failed.get(name) or (statistics.median(times[name]), answers[name])
        for name in systems
    }


def report(case: Case, tasks: list[str], turns: int, systems: list[str]) -> None:
    """Measure one network and print its rows."""
    gradient = gradient_seconds(case)
    products = ", ".join(
        f"{product_seconds(case, block) / gradient:.2f} in blocks of {block}"
        for block in BLOCKS
        if block <= max(CPU_BLOCK, case.probes)
    )
    print(
        f"\n{case.name}: {case.size} parameters, {len(case.inputs)} samples; "
        f"a gradient {1e3 * gradient:.1f} ms, a product in gradients: {products}; "
        f"{case.probes} vectors, {case.steps} steps, {case.top} eigenvalues\n",
        flush=True,
    )
    for task in tasks:
        found = measure(case, task, turns, systems)
        own = found["curvflow"]
        cells = []
        for name, result in found.items():
            if isinstance(result, str):
                cells.append("failed")
                print(f"- {name}, {task}: {result}")
                continue
            seconds, answer = result
            cell = f"{seconds:.3g} s"
            if not isinstance(own, str):
                cell += f", {seconds / own[0]:.2f} x"
                is_own = name == "curvflow"
                is_right = is_like(case, task, answer, own[1])
                if not (is_proven(case, task) if is_own else is_right):
                    cell += " (off)"
            if task == "trace":
                cell += f", {seconds / gradient / case.probes:.2f} gradients"
            cells.append(cell)
        print(f"| {case.name} | {task} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="show that it works")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nets", default="mlp,lenet,resnet18,decoder")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--without", default="", help="systems to leave out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    on = (
        torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    )
    print(f"PyTorch {torch.__version__}, {on}, {options.threads} threads")
    systems = [name for name in SYSTEMS if name not in options.without.split(",")]
    print(f"| network | task | {' | '.join(systems)} |")
    print("|---" * (2 + len(systems)) + "|")
    for case in cases(
        options.nets.split(","), quick=options.quick, device=options.device
    ):
        turns = 1 if options.quick else options.turns
        report(case, options.tasks.split(","), turns, systems)


if __name__ == "__main__":
    main()
