"""Kronecker factors through curvflow and its peers: do they agree, and how fast.

    python -m benchmarks.peers_kronecker --agree
    python -m benchmarks.peers_kronecker [--nets mlp,lenet,resnet,vit] [--tasks ...]
        [--turns N] [--threads N] [--samples N] [--resnet-width N]
        [--without NAME,...] [--no-costs] [--device cpu|cuda]

With `--agree`, in double precision: products and damped inverses of small networks
beside curvlinops, and factors beside BackPACK, for cross entropy and squared error.
Each row is the largest difference over parameter tensors, relative to the norm of the
peer's; the exit code is 1 where one is above 1e-6. Where a peer has another convention,
its number is brought to curvflow's, as the last column says.

Without, in single precision: `type-2` and `mc` factors, `ekfac`, and 100 damped solves
with type-2 factors at hand, `exact` and `factored`, of the dense layers and
convolutions of four networks with drawn weights and images. Systems take turns after
one that does not count; the median of the seconds of the process counts, on one thread.
Eigenvectors, or an inverse, are found when something is first solved, and count there:
the rows `type-2 + exact` and `type-2 + factored` add both. Peak memory and arithmetic
are of one more call, in a process of its own, without what is held before: products of
matrices and convolutions as PyTorch counts them, 9 n^3 for eigenvectors, n^3 for an
inverse. An answer whose trace, or norm of solutions, is not that of curvflow is marked.
With `--device cuda` seconds are those of the wall, until the GPU is done, and memory is
what it has allocated; curvflow is given arrays of the CPU, peers tensors of the GPU.
Peers are installed beforehand, by requirements-peers-kronecker.txt; what is missing or
fails is listed with the reason. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import flop_registry

from benchmarks.kronecker_nets import KNOWN, Net, lenet, mlp, posed, resnet, vit
from benchmarks.product_memory import peak_of
from benchmarks.turns import Found, Prepare, clock_of, failing, in_turns
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.tasks.curvature.network_factors import network_factors
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.forms import Product
from curvflow.tasks.registry import Machine

AGREED, DAMPING, SOLVES = 1e-6, 1e-2, 100
# Of agreement: more than the columns of a convolution's right factor. With fewer, that
# of `reduce` has a null space, in which EKFAC's basis is arbitrary.
SAMPLES, SPLIT = 180, 100
# Numbers that the columns of a block of solutions may hold.
MOST_NUMBERS = 1 << 25


def own(net: Net, **params: Any) -> BlockOperator:
    """Return curvflow's factors of the layers that every peer knows."""
    is_double = net.inputs.dtype == torch.float64
    dtype: Literal["float32", "float64"] = "float64" if is_double else "float32"
    layers = tuple(name for name, _ in net.known)
    chosen = FactorsParams(dtype=dtype, layers=layers, **params)
    machine = Machine(net.device)
    return network_factors([net.member(chosen)], machine, [chosen]).operator


# Agreement.


@dataclass(frozen=True)
class Row:
    """A number of the table of agreement."""

    net: str
    peer: str
    quantity: str
    difference: float
    note: str = ""


def small_nets() -> Iterator[Net]:
    """Yield small networks of both activations, with both losses."""
    shapes = {"tanh": ((1, 32), (1, 12, 16), 2), "relu": ((2, 16), (2, 17, 16), 0)}
    for loss in ("cross_entropy", "mse"):
        for act, layer, pool in (
            ("tanh", nn.Tanh, nn.AvgPool2d),
            ("relu", nn.ReLU, nn.MaxPool2d),
        ):
            common: dict[str, Any] = {
                "count": SAMPLES,
                "loss": loss,
                "dtype": torch.float64,
            }
            spec: dict[str, Any] = {"kind": "mlp", "hidden": [11, 7], "activation": act}
            make = partial(mlp, [12, 11, 7, 10], layer)
            yield posed(f"MLP {act}, {loss}", spec, make, (12,), **common)
            flat, shape, padding = shapes[act]
            pooling = "avg" if pool is nn.AvgPool2d else "max"
            spec = {"kind": "lenet5", "activation": act, "padding": padding}
            spec |= {"pooling": pooling}
            make = partial(lenet, flat, padding, layer, pool)
            yield posed(f"LeNet {act}, {loss}", spec, make, shape, **common)


def further_nets() -> Iterator[Net]:
    """Yield small networks that BackPACK does not take."""
    common: dict[str, Any] = {"count": SAMPLES, "dtype": torch.float64}
    spec: dict[str, Any] = {"kind": "resnet", "widths": [3, 4], "blocks": [2, 2]}
    make = partial(resnet, [3, 4])
    yield posed("ResNet relu, cross_entropy", spec, make, (3, 8, 8), **common)
    spec = {"kind": "vit", "width": 8, "heads": 2}
    make = partial(vit, 8, 2, 2)
    yield posed("ViT gelu, cross_entropy", spec, make, (3, 32, 32), **common)


def difference(net: Net, found: Tensor, theirs: Tensor, form: str = "expand") -> float:
    """Return the largest difference over tensors, relative to the norm of theirs.

    With `reduce` keys of attention do not count: their gradients cancel in the sum over
    tokens, so that a factor is rounding and its eigenvectors are arbitrary.
    """
    sizes = [p.numel() for p in net.parameters]
    pairs = zip(found.split(sizes), theirs.split(sizes), strict=True)
    gaps = [
        float((a - b).norm() / b.norm())
        for (name, _), (a, b) in zip(net.known, pairs, strict=True)
        if form == "expand" or ".key." not in name
    ]
    return max(gaps)


def curvlinops_operator(net: Net, *, is_corrected: bool = False, **params: Any) -> Any:
    """Return the peer's operator, of samples in two batches where they are few."""
    library = import_module("curvlinops")
    name = "EKFACLinearOperator" if is_corrected else "KFACLinearOperator"
    split = SPLIT if net.inputs.dtype == torch.float64 else len(net.inputs)
    batches = zip(net.inputs.split(split), net.targets.split(split), strict=True)
    return getattr(library, name)(
        net.module,
        net.criterion,
        net.parameters,
        list(batches),
        check_deterministic=False,
        num_data=len(net.inputs),
        num_per_example_loss_terms=1,
        **params,
    )


def curvlinops_inverse(operator: Any, how: str) -> Any:
    """Return the peer's damped inverse, `exact` or `factored`."""
    library = import_module("curvlinops")
    return library.KFACInverseLinearOperator(
        operator,
        damping=DAMPING,
        use_heuristic_damping=how == "factored",
        use_exact_damping=how == "exact",
    )


def beside_curvlinops(net: Net) -> Iterator[Row]:
    """Yield what products and solutions differ by from those of curvlinops."""
    columns = torch.randn(net.size, 4, dtype=torch.float64)
    for kind in ("type-2", "empirical", "forward-only"):
        for form in ("expand", "reduce"):
            for apart in (False, True):
                asked: dict[str, Any] = {"fisher_type": kind, "kfac_approx": form}
                asked |= {"separate_weight_and_bias": apart}
                theirs = curvlinops_operator(net, **asked)
                given, note = theirs @ columns, ""
                if kind == "empirical" and net.loss == "mse":
                    given, note = given / net.num_outputs, "theirs / outputs"
                mine = own(net, **asked)
                bias = "bias apart" if apart else "bias with weight"
                what = f"{kind}, {form}, {bias}"
                gap = difference(net, (mine @ columns[None])[0], given, form)
                yield Row(net.name, "curvlinops", what, gap, note)
                if kind == "type-2" and not apart:
                    for how in ("exact", "factored"):
                        gap = inverse_gap(net, mine, theirs, columns, (how, form))
                        yield Row(net.name, "curvlinops", f"{what}, {how} inverse", gap)
    yield from corrected(net, columns)


def inverse_gap(
    net: Net, mine: BlockOperator, theirs: Any, columns: Tensor, how: tuple[str, str]
) -> float:
    """Return what damped solutions differ by."""
    inverse, form = how
    pi = "trace" if inverse == "factored" else None
    solved = mine.solve(columns[None], DAMPING, pi=cast("Any", pi))[0]
    return difference(net, solved, curvlinops_inverse(theirs, inverse) @ columns, form)


def corrected(net: Net, columns: Tensor) -> Iterator[Row]:
    """Yield what EKFAC and its damped inverse differ by."""
    for form in ("expand", "reduce"):
        asked: dict[str, Any] = {"fisher_type": "type-2", "kfac_approx": form}
        theirs = curvlinops_operator(
            net, is_corrected=True, separate_weight_and_bias=False, **asked
        )
        given = theirs @ columns
        mine = own(net, structure="ekfac", **asked)
        gap = difference(net, (mine @ columns[None])[0], given, form)
        yield Row(net.name, "curvlinops", f"EKFAC, {form}", gap)
        gap = inverse_gap(net, mine, theirs, columns, ("exact", form))
        yield Row(net.name, "curvlinops", f"EKFAC, {form}, exact inverse", gap)


def backpack_factors(net: Net, extension: str, **asked: Any) -> list[list[Tensor]]:
    """Return the peer's factors of each parameter tensor."""
    library, extensions = (
        import_module("backpack"),
        import_module("backpack.extensions"),
    )
    module, criterion = library.extend(net.module), library.extend(net.criterion)
    chosen = getattr(extensions, extension)(**asked)
    loss = criterion(module(net.inputs), net.targets)
    with library.backpack(chosen):
        loss.backward()
    found = [getattr(p, chosen.savefield) for p in net.parameters]
    for parameter in net.parameters:
        parameter.grad = None
        delattr(parameter, chosen.savefield)
    return found


def beside_backpack(net: Net) -> Iterator[Row]:
    """Yield what factors differ by from those of BackPACK.

    Of a convolution of T places it keeps the left factor of `reduce`, and T times the
    right one of `expand`.
    """
    net = replace(net, module=copy.deepcopy(net.module))
    forms = {
        form: own(net, kfac_approx=form, separate_weight_and_bias=True)
        for form in ("expand", "reduce")
    }
    by_name = {
        form: {b.name: b for b in operator.blocks if isinstance(b, Product)}
        for form, operator in forms.items()
    }
    gaps: dict[str, float] = {"left factors": 0.0, "right factors": 0.0}
    counts = places(net)
    factors = backpack_factors(net, "KFLR")
    for (name, _), (left, *right) in zip(net.known, factors, strict=True):
        found = by_name["reduce"][name].left_factor[0, 0]
        gaps["left factors"] = max(gaps["left factors"], _gap(found, left))
        for one in right:
            found = counts[name] * by_name["expand"][name].right_factor[0, 0]
            gaps["right factors"] = max(gaps["right factors"], _gap(found, one))
    is_dense = set(counts.values()) == {1}
    notes = "", ""
    if not is_dense:
        notes = "that of reduce", "that of expand, times places"
    for (what, gap), note in zip(gaps.items(), notes, strict=True):
        yield Row(net.name, "BackPACK", f"KFLR, {what}", gap, note)
    if is_dense:
        yield recursion(net)
    elif net.spec.get("pooling") == "avg":  # of the largest it has a mean at each layer
        operator = own(
            net,
            fisher_type="recursive",
            kfac_approx="reduce",
            separate_weight_and_bias=True,
        )
        mine = {b.name: b for b in operator.blocks if isinstance(b, Product)}
        gap = max(
            _gap(mine[name].left_factor[0, 0], left)
            for (name, _), (left, *_) in zip(
                net.known, backpack_factors(net, "KFRA"), strict=True
            )
        )
        yield Row(net.name, "BackPACK", "KFRA, left factors", gap, notes[0])


def recursion(net: Net) -> Row:
    """Return what products with KFRA differ by."""
    columns = torch.randn(net.size, 4, dtype=torch.float64)
    mine = own(net, fisher_type="recursive", separate_weight_and_bias=True)
    given = []
    pieces = columns.split([p.numel() for p in net.parameters])
    for piece, (left, *right) in zip(
        pieces, backpack_factors(net, "KFRA"), strict=True
    ):
        left = left.contiguous()
        matrix = torch.kron(left, right[0].contiguous()) if right else left
        given.append(matrix @ piece)
    gap = difference(net, (mine @ columns[None])[0], torch.cat(given))
    return Row(net.name, "BackPACK", "KFRA, bias apart", gap)


def places(net: Net) -> dict[str, int]:
    """Return how many places of a sample each known layer computes, by tensors."""
    counts: dict[int, int] = {}

    def count(layer: nn.Module, _: Any, outputs: Tensor) -> None:
        is_image = isinstance(layer, nn.Conv2d)
        number = outputs[0, 0].numel() if is_image else outputs[0, ..., 0].numel()
        counts.update({id(p): number for p in layer.parameters()})

    layers = [one for one in net.module.modules() if isinstance(one, KNOWN)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        net.module(net.inputs[:1])
    for handle in handles:
        handle.remove()
    return {name: counts[id(p)] for name, p in net.known}


def _gap(found: Tensor, theirs: Tensor) -> float:
    return float((found - theirs).norm() / theirs.norm())


def compared() -> Iterator[Row]:
    """Yield all rows that installed peers allow."""
    for net in (*small_nets(), *further_nets()):
        if find_spec("curvlinops"):
            yield from beside_curvlinops(net)
        is_chain = net.spec["kind"] in ("mlp", "lenet5")
        if is_chain and find_spec("backpack"):
            yield from beside_backpack(net)


def agree() -> int:
    """Print the table of agreement, and return the exit code."""
    print("| network, loss | peer | quantity | difference | brought to curvflow's |")
    print("|---|---|---|---|---|")
    torch.set_default_dtype(torch.float64)  # BackPACK's pooling takes that precision
    found = []
    for row in compared():
        found.append(row.difference)
        cells = row.net, row.peer, row.quantity, f"{row.difference:.1e}", row.note
        print(f"| {' | '.join(cells)} |", flush=True)
    worst = max(found, default=float("nan"))
    print(f"\n{len(found)} rows, largest difference {worst:.1e}, allowed {AGREED:.0e}")
    return int(not worst <= AGREED)


# Timings.


Answer = tuple[Any, float]


class System:
    """What answers a task: from a network to a result, and a number to check it by."""

    package = ""

    def __init__(self, net: Net) -> None:
        """Take a network, of which peers change the module, and what is done once."""
        self.net = replace(net, module=copy.deepcopy(net.module))

    def type2(self) -> Answer:
        """Return type-2 factors and their trace."""
        raise NotImplementedError("has none")

    def mc(self) -> Answer:
        """Return factors of one drawn label per sample, and their trace."""
        raise NotImplementedError("has none")

    def ekfac(self) -> Answer:
        """Return type-2 factors with corrected eigenvalues, and their trace."""
        raise NotImplementedError("has none")

    def solved(self, factors: Any, columns: Tensor, how: str) -> Tensor:
        """Return damped solutions by type-2 factors, `exact` or `factored`."""
        raise NotImplementedError("has none")

    def prepared(self, factors: Any, how: str) -> Any:
        """Return what is found once before many solutions."""
        return factors


class Curvflow(System):
    """curvflow, as a run calls it."""

    package = "curvflow"

    def _with_trace(self, **params: Any) -> Answer:
        found = own(self.net, **params)
        return found, float(found.trace)

    def type2(self) -> Answer:
        """Return type-2 factors and their trace."""
        return self._with_trace()

    def mc(self) -> Answer:
        """Return factors of one drawn label per sample, and their trace."""
        return self._with_trace(fisher_type="mc")

    def ekfac(self) -> Answer:
        """Return type-2 factors with corrected eigenvalues, and their trace."""
        return self._with_trace(structure="ekfac")

    def prepared(self, factors: Any, how: str) -> Any:
        """Return the damped inverse, of blocks whose eigenpairs are not at hand."""
        blocks = [replace(block) for block in factors.blocks]
        pi: Any = "trace" if how == "factored" else None
        return BlockOperator(blocks, factors.shape[1]).inverse(DAMPING, pi=pi)

    def solved(self, factors: Any, columns: Tensor, how: str) -> Tensor:
        """Return damped solutions by type-2 factors."""
        found: Tensor = (factors @ columns[None])[0]
        return found


class Curvlinops(System):
    """The peer's operators."""

    package = "curvlinops"

    def _with_trace(self, **params: Any) -> Answer:
        found = curvlinops_operator(self.net, separate_weight_and_bias=False, **params)
        return found, float(found.trace)

    def type2(self) -> Answer:
        """Return type-2 factors and their trace."""
        return self._with_trace(fisher_type="type-2")

    def mc(self) -> Answer:
        """Return factors of one drawn label per sample, and their trace."""
        return self._with_trace(fisher_type="mc")

    def ekfac(self) -> Answer:
        """Return type-2 factors with corrected eigenvalues, and their trace."""
        return self._with_trace(fisher_type="type-2", is_corrected=True)

    def prepared(self, factors: Any, how: str) -> Any:
        """Return the damped inverse."""
        return curvlinops_inverse(factors, how)

    def solved(self, factors: Any, columns: Tensor, how: str) -> Tensor:
        """Return damped solutions by type-2 factors."""
        found: Tensor = factors @ columns
        return found


class Backpack(System):
    """The peer's extensions; it has no solutions."""

    package = "backpack"

    def _with_trace(self, extension: str, **asked: Any) -> Answer:
        found = backpack_factors(self.net, extension, **asked)
        trace = sum(
            float(torch.stack([factor.trace() for factor in several]).prod())
            for several in found
        )
        return found, trace if set(places(self.net).values()) == {1} else float("nan")

    def type2(self) -> Answer:
        """Return type-2 factors and their trace."""
        return self._with_trace("KFLR")

    def mc(self) -> Answer:
        """Return factors of one drawn label per sample, and their trace."""
        return self._with_trace("KFAC", mc_samples=1)


class Nngeometry(System):
    """The peer's matrices of linear layers and convolutions."""

    package = "nngeometry"

    def __init__(self, net: Net) -> None:
        """Take a network, and what is done once."""
        super().__init__(net)
        layers = import_module("nngeometry.layercollection")
        self._layers = layers.LayerCollection()
        for module in self.net.module.modules():
            if isinstance(module, KNOWN):
                self._layers.add_layer_from_model(self.net.module, module)
        self._loader = DataLoader(TensorDataset(*net.batch), len(net.inputs))
        self._objects = import_module("nngeometry.object")
        self._metrics = import_module("nngeometry.metrics")

    def _matrix(self, how: str, form: str, **asked: Any) -> Any:
        return getattr(self._metrics, how)(
            model=self.net.module,
            loader=self._loader,
            representation=getattr(self._objects, form),
            variant="classif_logits",
            layer_collection=self._layers,
            **asked,
        )

    def type2(self) -> Answer:
        """Return type-2 factors and their trace."""
        found = self._matrix("FIM", "PMatKFAC")
        return found, float(found.trace())

    def mc(self) -> Answer:
        """Return factors of one drawn label per sample, and their trace."""
        found = self._matrix("FIM_MonteCarlo", "PMatKFAC", trials=1)
        return found, float(found.trace())

    def ekfac(self) -> Answer:
        """Return type-2 factors with corrected eigenvalues, and their trace."""
        found = self._matrix("FIM", "PMatEKFAC")
        found.update_diag(self._loader)
        return found, float(found.trace())

    def prepared(self, factors: Any, how: str) -> Any:
        """Return the damped inverse."""
        if how == "exact":
            raise NotImplementedError("has none")
        return factors.inverse(regul=DAMPING)

    def solved(self, factors: Any, columns: Tensor, how: str) -> Tensor:
        """Return damped solutions by type-2 factors, one after another."""
        vectors = import_module("nngeometry.object.vector")
        return torch.stack(
            [
                factors.mv(vectors.PVector(self._layers, vector_repr=c)).to_torch()
                for c in columns.T
            ],
            dim=1,
        )


SYSTEMS: Mapping[str, type[System]] = {
    "curvflow": Curvflow,
    "curvlinops": Curvlinops,
    "BackPACK": Backpack,
    "nngeometry": Nngeometry,
}
TASKS = ("type-2", "mc", "ekfac", "exact", "factored")
# How far answers in single precision may be from curvflow's; labels are drawn.
NEAR = {"type-2": 1e-3, "mc": 0.5, "ekfac": 1e-3, "exact": 1e-3, "factored": 1e-3}


def call_of(system: System, task: str) -> Callable[[], float]:
    """Return what is timed of a task, from nothing to a number to check it by.

    Factors are found before where solutions are timed.
    """
    if task in ("type-2", "mc", "ekfac"):
        name = task.replace("-", "")

        def factors() -> float:
            return float(getattr(system, name)()[1])

        return factors
    found, _ = system.type2()
    net = system.net
    width = max(1, min(SOLVES, MOST_NUMBERS // net.size))
    columns = torch.randn(net.size, width, generator=torch.Generator().manual_seed(1))
    columns = columns.to(net.device)

    def solutions() -> float:
        ready, square = system.prepared(found, task), 0.0
        for start in range(0, SOLVES, width):
            few = columns[:, : min(width, SOLVES - start)]
            square += float(system.solved(ready, few, task).double().square().sum())
        return float(square**0.5)

    return solutions


def measured(net: Net, task: str, turns: int, names: list[str]) -> dict[str, Found]:
    """Return of each system the median of its seconds and an answer, or a reason."""

    def prepared(name: str) -> Prepare:
        def prepare() -> tuple[Callable[[], object], float]:
            call = call_of(SYSTEMS[name](net), task)
            return call, call()

        return prepare

    systems = {name: prepared(name) for name in names}
    return in_turns(systems, turns, clock_of(net.device))


def cubes(factor: float) -> Callable[[torch.Size], int]:
    """Return the arithmetic of a decomposition of square matrices."""
    return lambda shape: int(factor * shape[:-2].numel() * shape[-1] ** 3)


aten = torch.ops.aten
DECOMPOSITIONS = {
    aten._linalg_eigh: cubes(9),
    aten.linalg_cholesky_ex: cubes(1 / 3),
    aten.cholesky_inverse: cubes(2 / 3),
    aten.linalg_inv_ex: cubes(1),
}
# Products that PyTorch's own count leaves out.
IN_PLACE = {aten.baddbmm_: aten.baddbmm, aten.addmm_: aten.addmm}


class Arithmetic(TorchDispatchMode):
    """Counts what is multiplied within it."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, and count its products."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func._overloadpacket in DECOMPOSITIONS:
            self.total += DECOMPOSITIONS[func._overloadpacket](args[0].shape)
        packet = IN_PLACE.get(func._overloadpacket, func._overloadpacket)
        if packet in flop_registry:
            self.total += flop_registry[packet](*args, **kwargs, out_val=out)
        return out


def arithmetic(call: Callable[[], object]) -> float:
    """Return the GFLOP of a call."""
    with Arithmetic() as counted:
        call()
    return counted.total / 1e9


def cost(call: Callable[[], object]) -> tuple[float, float]:
    """Return the peak of memory in MB over what is held before, and GFLOP."""
    flops = arithmetic(call)

    def once() -> None:
        call()

    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - held) / 1e6, flops
    trimmed = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trimmed is not None:
        trimmed(0)  # else memory that the call before has freed counts as held
    return peak_of(once) / 1e6, flops


def costs(net: Net, tasks: list[str], names: list[str]) -> dict[str, Any]:
    """Return memory and arithmetic of each task and system that does not fail."""
    found: dict[str, Any] = {}
    for task in tasks:
        for name in names:
            with failing({}, name):
                found[f"{task} {name}"] = cost(call_of(SYSTEMS[name](net), task))
    return found


def apart(net: str, options: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Return the costs of one network, from a process of its own."""
    asked = [sys.executable, "-m", "benchmarks.peers_kronecker", "--costs"]
    asked += [
        "--nets",
        net,
        "--tasks",
        options.tasks,
        "--samples",
        str(options.samples),
    ]
    asked += ["--resnet-width", str(options.resnet_width)]
    asked += ["--device", options.device]
    asked += ["--without", ",".join(set(SYSTEMS) - set(names))]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Samples of the networks, so that a turn takes seconds.
NETS = {"mlp": 128, "lenet": 128, "resnet": 8, "vit": 32}


def timed_net(name: str, options: argparse.Namespace) -> Net:
    """Return one of the four networks."""
    width: int = options.resnet_width
    common: dict[str, Any] = {
        "count": options.samples or NETS[name],
        "device": options.device,
    }
    if name == "mlp":
        spec: dict[str, Any] = {"kind": "mlp", "hidden": [256, 256]}
        make: Callable[[], nn.Module] = partial(mlp, [784, 256, 256, 10], nn.ReLU)
        return posed(name, spec, make, (784,), **common)
    if name == "lenet":
        make = partial(lenet, (1, 400), 2, nn.Tanh, nn.AvgPool2d)
        return posed(name, {"kind": "lenet5"}, make, (1, 28, 28), **common)
    if name == "resnet":
        widths = [width, 2 * width, 4 * width, 8 * width]
        spec = {"kind": "resnet", "widths": widths, "blocks": [2, 2, 2, 2]}
        return posed(name, spec, partial(resnet, widths), (3, 32, 32), **common)
    make = partial(vit, 64, 4, 2)
    return posed(name, {"kind": "vit"}, make, (3, 32, 32), **common)


def gradient_of(net: Net) -> Callable[[], object]:
    """Return what computes one gradient of the mean loss."""

    def gradient() -> object:
        loss = net.criterion(net.module(net.inputs), net.targets)
        return torch.autograd.grad(loss, net.parameters)

    return gradient


def report(net: Net, options: argparse.Namespace, names: list[str]) -> None:
    """Measure one network and print its rows."""
    gradient, clock = gradient_of(net), clock_of(net.device)
    seconds = []
    for _ in range(5):
        begun = clock()
        gradient()
        seconds.append(clock() - begun)
    kept = "" if options.no_costs else apart(net.name, options, names)
    print(
        f"\n{net.name}: {net.size} parameters, {len(net.inputs)} samples; a gradient "
        f"{1e3 * min(seconds):.1f} ms and {arithmetic(gradient):.3g} GFLOP\n"
    )
    print(f"| network | task | {' | '.join(names)} | curvflow against the fastest |")
    print("|---" * (3 + len(names)) + "|")
    every: dict[str, dict[str, Found]] = {}
    for task in options.tasks.split(","):
        every[task] = found = measured(net, task, options.turns, names)
        cells = [cell(name, task, found, kept) for name in names]
        print(
            f"| {net.name} | {task} | {' | '.join(cells)} | {ratio(found)} |",
            flush=True,
        )
        for name in names:
            if isinstance(found[name], str):
                print(f"<!-- {name}, {task}: {found[name]} -->")
    for task in ("exact", "factored"):
        if task in every and "type-2" in every:
            found = {n: _added(every["type-2"][n], every[task][n]) for n in names}
            cells = [
                f"{x[0]:.3g} s" if not isinstance(x, str) else ""
                for x in found.values()
            ]
            row = f"| {net.name} | type-2 + {task} | {' | '.join(cells)} |"
            print(f"{row} {ratio(found)} |", flush=True)


def _added(first: Found, second: Found) -> Found:
    if isinstance(first, str) or isinstance(second, str):
        return "failed"
    return first[0] + second[0], 0.0


def cell(name: str, task: str, found: Mapping[str, Found], kept: Any) -> str:
    """Return the cell of a system: seconds, memory and arithmetic."""
    one, mine = found[name], found["curvflow"]
    if isinstance(one, str):
        return "none" if "NotImplementedError" in one else "failed"
    text = f"{one[0]:.3g} s"
    if f"{task} {name}" in kept:
        peak, flops = kept[f"{task} {name}"]
        text += f", {peak:.0f} MB, {flops:.3g} GFLOP"
    is_off = not isinstance(mine, str) and abs(one[1] / mine[1] - 1) > NEAR[task]
    return text + (" (off)" if is_off else "")


def ratio(found: Mapping[str, Found]) -> str:
    """Return the time of the fastest peer over that of curvflow."""
    mine = found["curvflow"]
    peers = [
        one[0]
        for n, one in found.items()
        if n != "curvflow" and not isinstance(one, str)
    ]
    if isinstance(mine, str) or not peers:
        return ""
    return f"{min(peers) / mine[0]:.2f} x"


def main() -> int:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agree", action="store_true", help="compare numbers")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--samples", type=int, default=0, help="0 for those of NETS")
    parser.add_argument("--resnet-width", type=int, default=16, help="64 is ResNet-18")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--without", default="", help="systems to leave out")
    parser.add_argument("--no-costs", action="store_true", help="times alone")
    parser.add_argument("--costs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.agree:
        return agree()
    left_out = options.without.split(",")
    names = [
        name
        for name, system in SYSTEMS.items()
        if name not in left_out and find_spec(system.package)
    ]
    for name in options.nets.split(","):
        net = timed_net(name, options)
        if options.costs:
            print(json.dumps(costs(net, options.tasks.split(","), names)))
        else:
            report(net, options, names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
