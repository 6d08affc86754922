"""Seconds until a trace and a squared norm are known to 1 %.

    python -m benchmarks.accuracy [--nets mlp,lenet,resnet18] [--rel 0.01] [--threads N]
        [--quantities trace,norm] [--quick]

Whole data sets: 60,000 images of MNIST for 784-256-256-10 and LeNet-5, trained for two
epochs; ResNet-18 on 4,096 of them scaled to 3 by 32 by 32, trained a little. curvflow
runs to the error asked, or to the most vectors allowed, with vectors of their own for
each batch, and is timed; the peers are to reach the same error.

The peers multiply each vector with all data. Seconds of one such product are measured
on a part of the data and scaled up by its share, in their favour the least of three.
How many products they need is measured by curvflow on that part of the data: those of
each method of theirs (plain vectors, Hutch++, XTrace) until the same error, or by the
spread of as many vectors as are allowed; the fewest count. One process, one number of
threads, float32; seconds are those of the process, so that other load is not in them.
Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers_curvature import images, lenet, mlp, resnet18
from curvflow.flows.library import hessian
from curvflow.tasks.library.operators import SymmetricOperator
from curvflow.tasks.numerics.derivatives import modules
from curvflow.tasks.numerics.estimators.sketched_traces import traces
from curvflow.tasks.numerics.estimators.squared_norms import squared_norms

# Samples that a peer's product is measured on.
PART = 2048
# Samples and vectors at most, for how many products a method needs.
NEEDED_PART, MOST = 1024, 256
QUANTITIES = ("trace", "norm")
# What each peer offers for a trace; all have plain vectors alone for the norm.
METHOD_NAMES = ("hutchinson", "hutch++", "xtrace")
METHODS = {
    "PyHessian": ("hutchinson",),
    "curvlinops": METHOD_NAMES,
    "hessian-eigenthings": ("hutchinson", "hutch++"),
}


@dataclass(frozen=True)
class Case:
    """A network, all of its data, and its batches.

    Attributes:
        batch_size: samples of a batch that has vectors of its own.
        most: vectors at most.
        needed_most: vectors at most, for how many products a method needs.
        pass_size: samples of a batch of products over all data.
    """

    name: str
    module: nn.Module
    inputs: Tensor
    targets: Tensor
    batch_size: int
    most: int
    needed_most: int
    pass_size: int

    def batches(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Return the first samples in batches that fit into memory."""
        most = min(count, self.pass_size)
        inputs, targets = self.part(count)
        return list(zip(inputs.split(most), targets.split(most), strict=True))

    def part(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the first samples, which are in random order."""
        return self.inputs[:count], self.targets[:count]


def cases(names: list[str], *, quick: bool) -> list[Case]:
    """Build the networks asked for, and train them."""
    made = {"mlp": mlp, "lenet": lenet, "resnet18": resnet18}
    found = []
    for name in names:
        torch.manual_seed(0)
        count = {"resnet18": 256 if quick else 4096}.get(name, 2000 if quick else 60000)
        inputs, targets = images(count)
        targets = targets.long()
        if name == "resnet18":
            inputs = nn.functional.interpolate(inputs, 32).repeat(1, 3, 1, 1)
        module = made[name]()
        rate = 0.01 if name == "resnet18" else 0.05
        optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
        for _ in range(1 if name == "resnet18" else 2):
            for rows in torch.randperm(count).split(128):
                optimizer.zero_grad()
                outputs = module(inputs[rows])
                nn.functional.cross_entropy(outputs, targets[rows]).backward()
                optimizer.step()
        module.zero_grad()
        limits = (128, 1 << 16, MOST, 1024)
        if name == "resnet18":
            limits = (16, 1 << 10, 16, 64)
        found.append(Case(name, module.eval(), inputs, targets, *limits))
    return found


def ours(case: Case, quantity: str, rel: float) -> tuple[Any, float]:
    """Return curvflow's estimate to the error asked, and its seconds."""
    begun = time.process_time()
    H = hessian(case.module, "cross_entropy", case.batches(len(case.inputs)))
    given: dict[str, Any] = {
        "rel_sem": rel,
        "max_probes": case.most,
        "probes_per": "batch",
        "batch_size": case.batch_size,
    }
    found = H.trace(**given) if quantity == "trace" else norm(H, given)
    return found, time.process_time() - begun


def norm(operator: SymmetricOperator, given: Mapping[str, Any]) -> Any:
    """Estimate the squared norm, by fewer samples for each vector."""
    return operator.squared_norm(num_batches=4, **given)


def needed(case: Case, quantity: str, rel: float, count: int) -> dict[str, float]:
    """Return the products that each method needs to reach the error, on a part."""
    part = case.part(count)
    H = modules.hessian(
        case.module, "cross_entropy", part, num_products=case.needed_most
    )
    given: dict[str, Any] = {
        "num_probes": 16,
        "distribution": "rademacher",
        "block": 4,
        "rel_sem": rel,
        "max_probes": case.needed_most,
    }
    if quantity == "norm":
        return {"hutchinson": _extrapolated(squared_norms(H, [0], **given)[0], rel)}
    drawn = {
        m: traces(H, [H.shape[0]], [0], method=m, **given)[0] for m in METHOD_NAMES
    }
    return {method: _extrapolated(of, rel) for method, of in drawn.items()}


def _extrapolated(drawn: Any, rel: float) -> float:
    """Scale the products by the square of the error that is left."""
    left = float(drawn.sem / drawn.draws.sum(0).mean().abs()) / rel
    return drawn.num_matvecs * max(1.0, left) ** 2


Product = Callable[[], object]


def pyhessian(case: Case, batches: list[Any], vectors: list[Tensor]) -> Product:
    """Multiply by PyHessian."""
    library = import_module("pyhessian")
    of = library.hessian(
        case.module, nn.CrossEntropyLoss(), dataloader=batches, cuda=False
    )
    return lambda: of.dataloader_hv_product(vectors)


def curvlinops(case: Case, batches: list[Any], vectors: list[Tensor]) -> Product:
    """Multiply by curvlinops."""
    of = import_module("curvlinops").HessianLinearOperator(
        case.module,
        nn.CrossEntropyLoss(),
        [p for p in case.module.parameters() if p.requires_grad],
        batches,
        check_deterministic=False,
    )
    return lambda: of @ vectors


def eigenthings(case: Case, batches: list[Any], vectors: list[Tensor]) -> Product:
    """Multiply by hessian-eigenthings."""
    of = import_module("hessian_eigenthings.operators").HessianOperator(
        case.module,
        batches,
        lambda module, batch: nn.functional.cross_entropy(module(batch[0]), batch[1]),
    )
    flat = torch.cat([vector.flatten() for vector in vectors])
    return lambda: of.matvec(flat)


PEERS = {
    "PyHessian": ("pyhessian", pyhessian),
    "curvlinops": ("curvlinops", curvlinops),
    "hessian-eigenthings": ("hessian_eigenthings", eigenthings),
}


def product_seconds(case: Case, count: int) -> dict[str, float | str]:
    """Return each peer's seconds per product over all data, or why there are none."""
    batches = case.batches(count)
    vectors = [torch.randn_like(p) for p in case.module.parameters()]
    products: dict[str, Product] = {}
    found: dict[str, float | str] = {}
    for name, (module, make) in PEERS.items():
        if find_spec(module) is None:
            found[name] = "not installed"
            continue
        try:
            products[name] = make(case, batches, vectors)
            products[name]()
        except Exception as error:  # a peer may fail in any way; it is listed
            found[name] = f"{type(error).__name__}: {str(error)[:100]}"
            products.pop(name, None)
    times: dict[str, list[float]] = {name: [] for name in products}
    for _ in range(3):
        for name, multiply in products.items():
            begun = time.process_time()
            multiply()
            times[name].append(time.process_time() - begun)
    scale = len(case.inputs) / count
    found.update({name: min(of_peer) * scale for name, of_peer in times.items()})
    case.module.zero_grad()
    return found


def report(case: Case, rel: float, quantities: list[str], *, quick: bool) -> None:
    """Measure one network and print its rows."""
    count = min(len(case.inputs), PART // (64 if quick else 1))
    if case.name == "resnet18":
        count = min(count, 64)
    size = sum(p.numel() for p in case.module.parameters())
    print(f"\n{case.name}: {size} parameters, {len(case.inputs)} images\n", flush=True)
    seconds = product_seconds(case, count)
    for quantity in quantities:
        estimate, own = ours(case, quantity, rel)
        told = float(estimate.sem / abs(estimate.value))
        # All to one error, also where ours has come to its most vectors before.
        products = needed(case, quantity, max(rel, told), min(count, NEEDED_PART))
        cells = [f"{own:.3g} s, {told:.2%}, {estimate.num_matvecs} products"]
        for name, of_peer in seconds.items():
            if isinstance(of_peer, str):
                cells.append("failed")
                print(f"- {name}: {of_peer}")
                continue
            methods = METHODS[name] if quantity == "trace" else ("hutchinson",)
            best = min(methods, key=products.__getitem__)
            whole = of_peer * math.ceil(products[best])
            cells.append(
                f"{whole:.3g} s, {whole / own:.0f} x ({products[best]:.0f} of {best})"
            )
        print(f"| {case.name} | {quantity} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="show that it works")
    parser.add_argument("--nets", default="mlp,lenet,resnet18")
    parser.add_argument("--quantities", default=",".join(QUANTITIES))
    parser.add_argument("--rel", type=float, default=0.01)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    np.seterr(all="ignore")
    print(f"PyTorch {torch.__version__}, {options.threads} threads, {options.rel:.1%}")
    print(f"| network | quantity | curvflow | {' | '.join(PEERS)} |")
    print("|---" * (3 + len(PEERS)) + "|")
    rel = 0.1 if options.quick else options.rel
    for case in cases(options.nets.split(","), quick=options.quick):
        report(case, rel, options.quantities.split(","), quick=options.quick)


if __name__ == "__main__":
    main()
