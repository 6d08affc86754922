"""Chains about trained weights: curvflow beside devinterp, and a tile beside its parts.

    python -m benchmarks.peers_llc [--draws N] [--turns N] [--threads N]
        [--device cpu|cuda] [--tasks mlp,small,tile,given,calibrated,decoder,siblings]

`mlp` and `small`: 8 chains by SGLD, the loss of a draw that of its batch, as devinterp
takes it; the same network, loss, data, batch, step, temperature and precision, float32.
devinterp is given its images by a DataLoader, as its documentation has it, and by a
loader that takes rows of a tensor. canonical-interp, which takes all chains through
`vmap`, is given the latter, compiled, as it is by default, and not. `tile`: 20 networks
of 4 chains each as one program and one by one, the latter by the peers too, and chain
by chain. `given`, `calibrated`:
the kind `probe.llc` on these 20 networks as one tile and as 20 tiles of one, from nodes
to outcomes with verdicts: with the settings of `tile`, and with `calibrate: auto` on
200 of the 1,000 points and 500 steps of burn-in. Systems take turns; the best turn
counts, on a CPU in seconds of the process. Estimates are printed, since a fast wrong
answer is none: they come from different noise and few draws. `arithmetic` is what no
system gets below: the matrix products and normal numbers of the draws, with nothing
between them. devinterp 1.3.2 and canonical-interp 0.1.5 are installed beforehand,
without their dependencies; what is missing is left out. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.decoders import Decoder, spec, windows
from benchmarks.probes_batched import member
from curvflow.flows.published.arrays import published_arrays
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.schemas.losses import LossName
from curvflow.schemas.models.mlp import Mlp
from curvflow.schemas.nodes import Data, Member, Weights
from curvflow.tasks.llc.losses import SampledLosses
from curvflow.tasks.networks.problems import Problem, Samples, pose
from curvflow.tasks.numerics.derivatives.dense_gradients import FILLED
from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps, Stream
from curvflow.tasks.numerics.sampling.sample import sample
from curvflow.tasks.registry import Machine, find

CHAINS, GAMMA = 8, 1.0
TILE, TILE_CHAINS = 20, 4
# Chains that the arithmetic by itself multiplies together, as fast as any number.
TOGETHER = 4
SIBLINGS, WINDOWS = 10, 1000
TASKS = ("mlp", "small", "tile", "given", "calibrated", "decoder", "siblings")
CALIBRATED_POINTS, CALIBRATED_BURNIN = 200, 500


@dataclass(frozen=True)
class Case:
    """Data, and the widths of the network on them."""

    hidden: tuple[int, ...]
    loss: str
    inputs: Tensor
    targets: Tensor
    batch: int
    lr: float

    @property
    def nbeta(self) -> float:
        """Inverse temperature, n / ln n."""
        return len(self.inputs) / math.log(len(self.inputs))

    @property
    def widths(self) -> list[int]:
        """From inputs to outputs."""
        outputs = 10 if self.loss == "cross_entropy" else 1
        return [self.inputs[0].numel(), *self.hidden, outputs]

    @property
    def data(self) -> Data:
        """The data as a node; what is tested on has no part in chains."""
        inputs, targets = (x.cpu().numpy() for x in (self.inputs, self.targets))
        arrays = {"inputs": inputs, "targets": targets, "num_classes": np.array(10)}
        arrays |= {"test_inputs": inputs[:1], "test_targets": targets[:1]}
        return Data("data", "data.points", {}, arrays, "points")

    @property
    def problem(self) -> Problem:
        """The network as curvflow has it."""
        return pose(
            Mlp(hidden=self.hidden, activation="relu"),
            cast("LossName", self.loss),
            self.data,
        )

    def untrained(self) -> nn.Module:
        """The same as a module."""
        layers = [
            layer
            for come, go in pairwise(self.widths)
            for layer in (nn.Linear(come, go), nn.ReLU())
        ]
        return nn.Sequential(*layers[:-1])

    def module(self, seed: int) -> nn.Module:
        """The same as a module, trained a little."""
        torch.manual_seed(seed)
        module = self.untrained().to(self.inputs.device)
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        for _ in range(60):
            optimizer.zero_grad()
            rows = torch.randint(len(self.inputs), (256,), device=self.inputs.device)
            criterion(self)(module(self.inputs[rows]), self.targets[rows]).backward()
            optimizer.step()
        return module


@dataclass(frozen=True)
class Windows(Case):
    """Windows of tokens, and a decoder that tells what follows each."""

    vocabulary: int

    @property
    def data(self) -> Data:
        """The data as a node, with as many classes as tokens."""
        data = super().data
        return replace(
            data, arrays={**data.arrays, "num_classes": np.array(self.vocabulary)}
        )

    @property
    def problem(self) -> Problem:
        """The network as curvflow has it."""
        return pose(spec(self.vocabulary), "cross_entropy", self.data)

    def untrained(self) -> nn.Module:
        """The same as a module."""
        return Decoder(self.vocabulary)


def criterion(case: Case) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a batch."""
    return nn.CrossEntropyLoss() if case.loss == "cross_entropy" else nn.MSELoss()


def mnist(device: str) -> Case:
    """784-128-10 on 10,000 images of MNIST, in batches of 512."""
    params = cast("ImageParams", find_kind("data.mnist").params())
    arrays = published_arrays(params, Path.cwd())
    inputs = torch.as_tensor(arrays["inputs"][:10_000], dtype=torch.float32) / 255
    targets = torch.as_tensor(arrays["targets"][:10_000], dtype=torch.int64)
    return Case(
        (128,),
        "cross_entropy",
        inputs.reshape(-1, 784).to(device),
        targets.to(device),
        batch=512,
        lr=1e-5,
    )


def waves(device: str) -> Case:
    """2-64-64-1 on 1,000 points of a wavy surface, in batches of 50."""
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(1000, 2, generator=source)
    targets = torch.sin(2 * inputs[:, :1]) * inputs[:, 1:]
    return Case(
        (64, 64), "mse", inputs.to(device), targets.to(device), batch=50, lr=1e-5
    )


def book(device: str) -> Case:
    """A decoder of two blocks on 1,000 windows of 16 characters, in batches of 50."""
    inputs, targets, vocabulary = windows(WINDOWS)
    on = inputs.to(device), targets.to(device)
    return Windows((), "cross_entropy", *on, batch=50, lr=1e-5, vocabulary=vocabulary)


def products(
    seen: list[Tensor], back: list[Tensor], weights: list[Tensor]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the factors of what a gradient multiplies, and where the product goes."""
    for number, weight in enumerate(weights):
        yield seen[number], weight.mT, seen[number + 1]
    for number in reversed(range(len(weights))):
        before, after, weight = seen[number], back[number + 1], weights[number]
        # Of few inputs the transpose is several times as fast.
        left, right = (before, after) if weight.shape[2] < FILLED else (after, before)
        yield left.mT, right, torch.bmm(left.mT, right)
        if number:
            yield after, weight, back[number]


def arithmetic(case: Case, chains: int, draws: int) -> float:
    """Multiply what gradients multiply and draw noise, and nothing else."""

    def zeros(*shape: int) -> Tensor:
        return case.inputs.new_zeros(TOGETHER, *shape)

    shapes = [(go, come) for come, go in pairwise(case.widths)]
    seen = [zeros(case.batch, width) for width in case.widths]
    back = [torch.zeros_like(one) for one in seen]
    every = [
        product
        for _ in range(0, chains, TOGETHER)
        for product in products(seen, back, [zeros(*shape) for shape in shapes])
    ]
    size = sum(go * (come + 1) for go, come in shapes)
    noise = case.inputs.new_empty(chains, size).unbind()
    for _ in range(draws):
        for each in noise:
            each.normal_()
        for left, right, into in every:
            torch.bmm(left, right, out=into)
    return math.nan * float(seen[-1].sum())


def curvflow(case: Case, modules: list[nn.Module], draws: int, chains: int) -> float:
    """Return the mean estimate of all chains."""
    flat_MD = flattened(modules)
    owner_C = torch.arange(len(modules), device=flat_MD.device).repeat_interleave(
        chains
    )

    def losses_of(owner_C: Tensor) -> SampledLosses:
        samples = Samples(case.inputs[None], case.targets[None])
        none_CS = flat_MD.new_empty(len(owner_C), 0)
        return SampledLosses(case.problem, samples, none_CS, owner_C)

    each_C = torch.ones_like(owner_C, dtype=flat_MD.dtype)
    posterior = Posterior(
        losses_of(owner_C), flat_MD[owner_C], case.nbeta * each_C, GAMMA * each_C
    )
    steps = Steps(
        "sgld",
        case.lr * each_C,
        draws,
        batch_size=case.batch,
        at_draws="batch",
        measure_acceptance=False,
    )
    streams = [Stream(m, c) for m in range(len(modules)) for c in range(chains)]
    every_M = torch.arange(len(modules), device=flat_MD.device)
    start_C = losses_of(every_M).values(flat_MD, None)[owner_C]
    excess_CK = sample(posterior, steps, streams).losses - start_C[:, None]
    return case.nbeta * float(excess_CK.mean())


def flattened(modules: list[nn.Module]) -> Tensor:
    """Return weights as rows, (M, D)."""
    return torch.stack(
        [nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules]
    )


def nodes(
    case: Case, modules: list[nn.Module], settings: dict[str, Any]
) -> list[Member]:
    """Return what a run would hand to `probe.llc`, a member for each network."""
    text, data = np.array(case.problem.text), case.data
    weights = [
        Weights("fit", "train", {}, {"weights": each, "network": text}, f"w{number}")
        for number, each in enumerate(flattened(modules).cpu().numpy())
    ]
    plain = {"dtype": "float32", "num_chains": TILE_CHAINS, "num_steps_bw_draws": 1}
    every = plain | settings
    return [member("probe.llc", every, weights=one, data=data) for one in weights]


def probed(tiles: list[list[Member]], device: str) -> float:
    """Return the mean estimate of all members, computed tile by tile."""
    outcomes = [
        outcome
        for tile in tiles
        for outcome in find("probe.llc").compute(tile, Machine(device))
    ]
    return sum(float(one.arrays["llc_mean"]) for one in outcomes) / len(outcomes)


def probe_systems(
    task: str, case: Case, draws: int, device: str
) -> dict[str, Callable[[], float]]:
    """Return what is timed of the kind, by name."""
    modules = [case.module(seed) for seed in range(TILE)]
    settings: dict[str, Any] = {
        "calibrate": "none",
        "sampling_method": "sgld",
        "lr": case.lr,
        "localization": GAMMA,
        "batch_size": case.batch,
        "num_burnin_steps": 0,
        "at_draws": "batch",
    }
    if task == "calibrated":
        few = slice(CALIBRATED_POINTS)
        case = replace(case, inputs=case.inputs[few], targets=case.targets[few])
        settings = {"num_burnin_steps": CALIBRATED_BURNIN}
    every = nodes(case, modules, settings | {"num_draws": draws})
    return {
        "one tile": lambda: probed([every], device),
        "tiles of one": lambda: probed([[one] for one in every], device),
    }


class Rows(DataLoader[tuple[Tensor, ...]]):
    """A loader that takes rows of tensors, anew in each epoch."""

    def __init__(self, case: Case) -> None:
        """Load what a case has."""
        data = TensorDataset(case.inputs, case.targets)
        super().__init__(data, case.batch, drop_last=True)
        self.case = case

    def __iter__(self) -> Any:
        """Iterate over the batches of an epoch."""
        order = torch.randperm(len(self.case.inputs), device=self.case.inputs.device)
        for rows in order[: len(self) * self.case.batch].view(len(self), -1):
            yield self.case.inputs[rows], self.case.targets[rows]


def devinterp(
    case: Case,
    module: nn.Module,
    draws: int,
    *,
    is_light: bool,
    chains: int = CHAINS,
) -> float:
    """Return the mean estimate of all chains."""
    evaluate = import_module("devinterp.utils").make_evaluate(criterion(case))
    data = TensorDataset(case.inputs, case.targets)
    loader: Any = DataLoader(data, case.batch, shuffle=True)
    with torch.no_grad():
        start = float(criterion(case)(module(case.inputs), case.targets))
    found = import_module("devinterp.slt.sampler").estimate_learning_coeff(
        module,
        Rows(case) if is_light else loader,
        evaluate=evaluate,
        sampling_method=import_module("devinterp.optim.sgld").SGLD,
        optimizer_kwargs={"lr": case.lr, "localization": GAMMA, "nbeta": case.nbeta},
        num_draws=draws,
        num_chains=chains,
        init_loss=start,
        device=case.inputs.device,
        verbose=False,
    )
    return float(found)


def canonical(
    case: Case,
    module: nn.Module,
    draws: int,
    *,
    compiled: bool,
    chains: int = CHAINS,
) -> float:
    """Return the mean estimate of all chains."""
    if not hasattr(itertools, "batched"):  # Python 3.11; chains of one call need none
        vars(itertools)["batched"] = None
    peer = import_module("canonical_interp.slt")
    estimator = peer.LLCEstimator(
        draws=draws,
        chains=chains,
        burnin_steps=0,
        steps_bw_draws=1,
        learning_rate=case.lr,
        localization=GAMMA,
        nbeta=case.nbeta,
    )
    found = estimator.estimate_llc(
        module,
        Rows(case),
        criterion_fn=criterion(case),
        devices=case.inputs.device,
        compile=compiled,
        show_progress=False,
    )
    return float(found)


def is_installed(name: str) -> bool:
    """Return whether a peer is installed."""
    package = name.partition(",")[0].replace("-", "_")
    logging.getLogger(package).setLevel(logging.ERROR)  # it advises on what is given
    return find_spec(package) is not None


CASES = {"mlp": mnist, "decoder": book, "siblings": book}


def systems(task: str, draws: int, device: str) -> dict[str, Callable[[], float]]:
    """Return what is timed for a task, by name."""
    case = CASES.get(task, waves)(device)
    if task in ("given", "calibrated"):
        return probe_systems(task, case, draws, device)
    if task in ("tile", "siblings"):
        return tile_systems(case, draws, TILE if task == "tile" else SIBLINGS)
    module = case.module(0)
    own = {"curvflow": lambda: curvflow(case, [module], draws, CHAINS)}
    if not isinstance(case, Windows):
        own["arithmetic"] = lambda: arithmetic(case, CHAINS, draws)
    peers = {
        "devinterp, rows": partial(devinterp, is_light=True),
        "devinterp": partial(devinterp, is_light=False),
        "canonical-interp, rows": partial(canonical, compiled=False),
        "canonical-interp, rows, compiled": partial(canonical, compiled=True),
    }
    return own | {
        name: partial(work, case, module, draws)
        for name, work in peers.items()
        if is_installed(name)
    }


def tile_systems(case: Case, draws: int, count: int) -> dict[str, Callable[[], float]]:
    """Return what is timed of many networks, by name."""
    modules = [case.module(seed) for seed in range(count)]
    every = [module for module in modules for _ in range(TILE_CHAINS)]

    def mean(work: Callable[[nn.Module], float], of: list[nn.Module]) -> float:
        return sum(map(work, of)) / len(of)

    def alone(chains: int) -> Callable[[nn.Module], float]:
        return lambda module: curvflow(case, [module], draws, chains)

    def of_devinterp(module: nn.Module) -> float:
        return devinterp(case, module, draws, is_light=True, chains=TILE_CHAINS)

    def of_canonical(module: nn.Module) -> float:
        return canonical(case, module, draws, compiled=False, chains=TILE_CHAINS)

    own = {
        "one tile": lambda: curvflow(case, modules, draws, TILE_CHAINS),
        "one by one": lambda: mean(alone(TILE_CHAINS), modules),
        "chain by chain": lambda: mean(alone(1), every),
    }
    if not isinstance(case, Windows):
        own["arithmetic"] = lambda: arithmetic(case, count * TILE_CHAINS, draws)
    peers = {
        "devinterp, rows, one by one": of_devinterp,
        "canonical-interp, rows, one by one": of_canonical,
    }
    return own | {
        name: partial(mean, work, modules)
        for name, work in peers.items()
        if is_installed(name)
    }


def seconds(work: Callable[[], float], device: str) -> tuple[float, float]:
    """Return the seconds that work took, and its answer."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begun = clock()
    answer = work()
    return clock() - begun, answer


def main() -> None:
    """Print a table of all tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tasks", default=",".join(TASKS))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    warnings.simplefilter("ignore")
    print("| task | system | seconds | times curvflow | estimate |")
    print("|---|---|---|---|---|")
    for task in asked.tasks.split(","):
        rivals = systems(task, asked.draws, asked.device)
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in rivals}
        for _ in range(asked.turns):
            for name, work in rivals.items():
                turns[name].append(seconds(work, asked.device))
        best = {name: min(found) for name, found in turns.items()}
        own = best[next(iter(best))][0]
        for name, (took, answer) in best.items():
            ratio = f"{took / own:.2f}"
            estimate = "" if math.isnan(answer) else f"{answer:.2f}"
            print(
                f"| {task} | {name} | {took:.2f} s | {ratio} | {estimate} |", flush=True
            )


if __name__ == "__main__":
    main()
