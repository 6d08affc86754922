"""Training and Hessian products of a user's transformer, against a plain loop.

    python -m benchmarks.own_module [--turns N] [--epochs N]
        [--siblings | --floor | --operators]

One decoder with two blocks of `nn.MultiheadAttention`, on windows of 16 tokens. The
loop is PyTorch by hand, in the same precision: `loss.backward()` and `torch.optim.SGD`,
and products by a second backward pass over one graph of the gradient, the same vectors
one by one. Here the task of a tile of one network trains, and the operator of a probe
multiplies, in the order that a study takes and in a faster one. CPU seconds of one
thread, of everything that a stage does, each the least of several turns, in turns;
products must agree. The loop has one loss at its end; another keeps what a record of
the task has, loss and accuracy at both ends. Below, the training is taken apart: its
steps, of which the loop and the task take one in turns, by the mean of their medians
over turns, and all else, from initial weights to losses and accuracies at both ends, by
the least; from how many steps on the whole takes at most 1.1 x the loop with one loss;
and the trial of a module, made once in a process. An epoch has eight steps, and a
training six epochs unless `--epochs` says otherwise. With `--siblings` ten such
networks, of ten seeds, are trained and multiplied as one tile, and one by one, and so
are ten of the kind `transformer` of the same sizes.
With `--floor` what a tile of ten modules cannot go below: the products of matrices,
activations, norms and attention of a training's steps, for all ten at once in torch's
own kernels, without a graph, an update or a record, against all of training one by one.
With `--operators` the training of ten modules of width 16 is taken apart by PyTorch's
profiler, which itself slows it: time within each operator, one by one and as one tile.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Array, Data, Member, Outcome, Weights
from curvflow.tasks.machine import threads
from curvflow.tasks.networks.problems import forget, pose
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.registry import Machine, find

TOKENS, VOCABULARY, SAMPLES, BATCH, EPOCHS, COLUMNS = 16, 32, 256, 32, 6, 8
ORDERS: tuple[Order, ...] = ("forward_over_reverse", "retained")
WIDTHS, SIBLINGS, LISTED = (16, 64), 10, 12
PRECISIONS, TARGET = ("float32", "float64"), 1.1


class Block(nn.Module):
    """Causal attention and a layer of its own for each token."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after the block."""
        later = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).triu(1)
        z = self.before(x)
        x = x + self.attention(z, z, z, attn_mask=later, need_weights=False)[0]
        return x + self.dense(self.between(x))


class Decoder(nn.Module):
    """A small language model."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(0.1 * torch.randn(TOKENS, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a score for each token that may come next."""
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.places)))


def drawn() -> Data:
    """Return windows of drawn tokens, and the token after each."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (SAMPLES, TOKENS + 1))
    arrays = dataset(ids[:, :-1], ids[:, 1:])
    return Data("data", "data.array", {}, arrays, "drawn")


def member(data: Data, width: int, dtype: str, epochs: int = EPOCHS) -> Member:
    """Return the node that trains one network."""
    params = find_kind("train").params.model_validate(
        {
            "model": {"factory": f"{__name__}:Decoder", "kwargs": {"width": width}},
            "rule": {"rule": "sgd", "lr": 0.05},
            "epochs": epochs,
            "batch_size": BATCH,
            "dtype": dtype,
            "record_every": epochs,
            "checkpoints": {"every": epochs},
        }
    )
    return Member(params, {"data": [data]})


def least(calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the least CPU seconds of each call, in turns after an untimed one.

    The order is drawn anew for each turn, for what one call frees the next one takes.
    """
    best, draws = dict.fromkeys(calls, float("inf")), random.Random(0)
    for call in calls.values():
        call()
    for _ in range(turns):
        for name in draws.sample(list(calls), len(calls)):
            begun = time.process_time()
            calls[name]()
            best[name] = min(best[name], time.process_time() - begun)
    return best


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a training: of one step, and of all that is no step."""

    step: float
    fixed: float


@dataclass
class Lockstep:
    """Snapshots of a training, which are due never, and steps of a loop meanwhile.

    Attributes:
        loop: yields before its first step and after each.
        here: seconds of the training before and of each step.
        there: those of the loop, and behind its last step.
    """

    loop: Iterator[None]
    here: list[float] = field(default_factory=list)
    there: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin the loop."""
        self._take()

    def _take(self) -> None:
        begun = time.process_time()
        next(self.loop, None)
        self._since = time.process_time()
        self.there.append(self._since - begun)

    def is_due(self) -> bool:
        """Note a step of the training, and take one of the loop."""
        self.here.append(time.process_time() - self._since)
        self._take()
        return False

    def end(self) -> None:
        """Note what came behind the last step, and end the loop."""
        self.here.append(time.process_time() - self._since)
        self._take()

    def load(self) -> None:
        """Return nothing: no attempt came before."""

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Keep nothing."""

    def tell(self, message: str) -> None:
        """Show nothing."""

    def record(self, message: str) -> None:
        """Show nothing."""


def taken_apart(
    loop: Callable[[], Iterator[None]], node: Member, turns: int
) -> tuple[Cost, Cost]:
    """Return the costs of a loop, and of the task of one network, in lockstep."""
    task, of_turns = find("train").compute, []
    task([node], Machine())
    for _ in range(turns):
        lockstep = Lockstep(loop())
        task([node], Machine(partial=lockstep))
        lockstep.end()
        of_turns.append(lockstep)
    there, here = [t.there for t in of_turns], [t.here for t in of_turns]
    steps = len(here[0]) - 1
    # The first step of the task cannot be told from what came before it.
    of_loop, of_task = (_mean_step([t[-steps:-1] for t in ts]) for ts in (there, here))
    return (
        Cost(of_loop, min(t[0] + t[-1] for t in there)),
        Cost(of_task, min(t[0] + t[-1] for t in here) - of_task),
    )


def _mean_step(turns: Sequence[Sequence[float]]) -> float:
    """Return the mean over steps, the first of epochs too, of medians over turns."""
    return mean(map(median, zip(*turns, strict=True)))


def steps_until(loop: Cost, here: Cost) -> float:
    """Return from how many steps on all of a training is within the target."""
    gain = TARGET * loop.step - here.step
    more = here.fixed - TARGET * loop.fixed
    if more <= 0 < gain:
        return 0
    return math.ceil(more / gain) if gain > 0 else math.inf


def within_target(loop: Cost, here: Cost) -> str:
    """Return the same in words; `never` where each step alone takes more."""
    steps = steps_until(loop, here)
    return "never" if math.isinf(steps) else f"{steps:.0f} steps"


def training_loop(
    width: int,
    data: Data,
    kind: torch.dtype,
    first_D: Array,
    epochs: int,
    *,
    records: bool = False,
) -> Iterator[None]:
    """Train by hand; yield before the first step and after each.

    Of the result there is one loss, or loss and accuracy at both ends.
    """
    x, y = (torch.as_tensor(data[name]).long() for name in ("inputs", "targets"))
    module = Decoder(width).to(kind)
    first = torch.as_tensor(first_D).to(kind)
    nn.utils.vector_to_parameters(first, module.parameters())
    steps = torch.optim.SGD(module.parameters(), lr=0.05)
    draws = torch.Generator().manual_seed(0)

    def measure() -> list[float]:
        with torch.no_grad():
            outputs = module(x).flatten(0, 1)
            found = [functional.cross_entropy(outputs, y.flatten())]
            if records:
                found.append((outputs.argmax(1) == y.flatten()).double().mean())
        return [float(number) for number in found]

    if records:
        measure()
    yield
    for _ in range(epochs):
        order = torch.randperm(SAMPLES, generator=draws)
        for rows in order.split(BATCH):
            steps.zero_grad()
            outputs = module(x[rows])
            functional.cross_entropy(
                outputs.flatten(0, 1), y[rows].flatten()
            ).backward()
            steps.step()
            yield
    measure()


def both_trainings(
    width: int, dtype: str, epochs: int
) -> tuple[Member, Callable[..., Iterator[None]]]:
    """Return the node of a training, and the loop that begins where it does."""
    data = drawn()
    node = member(data, width, dtype, epochs)
    (fit,) = find("train").compute([node], Machine())
    network = pose(node.params.model, "auto", data).network  # type: ignore[attr-defined]
    first_D = fit.arrays["weights"][0]
    assert network.num_parameters == sum(p.numel() for p in Decoder(width).parameters())
    kind = getattr(torch, dtype)
    return node, partial(training_loop, width, data, kind, first_D, epochs)


def trained(width: int, dtype: str, turns: int, epochs: int) -> dict[str, float]:
    """Return CPU seconds of training, by the task and two loops, one with a record."""
    node, loop = both_trainings(width, dtype, epochs)
    task = find("train").compute
    calls: dict[str, Callable[[], Any]] = {
        "loop": lambda: list(loop()),
        "loop with a record": lambda: list(loop(records=True)),
        "train": lambda: task([node], Machine()),
    }
    return least(calls, turns)


def tried(width: int, turns: int) -> float:
    """Return CPU seconds of posing the problem of a module, and of its trial."""
    params = member(data := drawn(), width, "float32").params

    def trial() -> None:
        forget()
        pose(params.model, "auto", data)  # type: ignore[attr-defined]

    return least({"trial": trial}, turns)["trial"]


def multiplied(width: int, dtype: str, turns: int) -> dict[str, float]:
    """Return CPU seconds of Hessian products, by the loop and in each order."""
    data, kind = drawn(), getattr(torch, dtype)
    model = parse_model({"factory": f"{__name__}:Decoder", "kwargs": {"width": width}})
    problem = pose(model, "auto", data)
    torch.manual_seed(0)
    module = Decoder(width).to(kind)
    weights_D = nn.utils.parameters_to_vector(module.parameters()).detach()
    x, y = (
        torch.as_tensor(data[name]).long()[:BATCH] for name in ("inputs", "targets")
    )
    columns = torch.randn(1, len(weights_D), COLUMNS, dtype=kind)

    def loop() -> Tensor:
        parameters = list(module.parameters())
        with sdpa_kernel(SDPBackend.MATH):  # the fused one has no second derivatives
            loss = functional.cross_entropy(module(x).flatten(0, 1), y.flatten())
            slopes = torch.autograd.grad(loss, parameters, create_graph=True)
            slope_D = torch.cat([s.flatten() for s in slopes])
            products = [
                torch.autograd.grad(slope_D, parameters, column, retain_graph=True)
                for column in columns[0].T
            ]
        return torch.stack(
            [torch.cat([p.flatten() for p in parts]) for parts in products], dim=1
        )

    def product(order: Order) -> Tensor:
        operator = BatchedHessian(
            problem.losses,
            weights_D[None],
            x[None],
            y[None],
            batch_size=problem.rows_per_pass(COLUMNS),
            order=order,
        )
        return operator @ columns

    tolerance = 1e-8 if dtype == "float64" else 1e-2
    for order in ORDERS:
        torch.testing.assert_close(
            product(order)[0], loop(), rtol=tolerance, atol=tolerance
        )
    calls: dict[str, Callable[[], Any]] = {"loop": loop}
    calls |= {order: partial(product, order) for order in ORDERS}
    return least(calls, turns)


def models(width: int) -> dict[str, dict[str, Any]]:
    """Return the module and the built-in transformer of the same sizes."""
    of_kind = {
        "kind": "transformer",
        "vocabulary": VOCABULARY,
        "width": width,
        "layers": 2,
        "heads": 2,
    }
    module = {"factory": f"{__name__}:Decoder", "kwargs": {"width": width}}
    return {"module": module, "transformer": of_kind}


def together(width: int, dtype: str, turns: int) -> Iterator[tuple[str, float, float]]:
    """Yield what ten networks take one by one, and as one tile, in CPU seconds."""
    data, task = drawn(), find("train").compute
    trace = find("probe.hessian_trace").compute
    chosen = find_kind("probe.hessian_trace").params.model_validate(
        {"num_probes": COLUMNS, "dtype": dtype}
    )
    for name, model in models(width).items():
        plain = member(data, width, dtype).params.model_dump() | {"model": model}
        kind = find_kind("train").params
        fits = [
            Member(kind.model_validate(plain | {"seed": seed}), {"data": [data]})
            for seed in range(SIBLINGS)
        ]
        probes = [
            Member(chosen, {"weights": [last(fit)], "data": [data]})
            for fit in task(fits, Machine())
        ]
        for what, compute, nodes in (("train", task, fits), ("trace", trace, probes)):

            def apart(compute: Any = compute, nodes: Sequence[Member] = nodes) -> None:
                for node in nodes:
                    compute([node], Machine())

            taken = least(
                {"apart": apart, "tile": partial(compute, nodes, Machine())}, turns
            )
            yield f"{name}, {what}", taken["apart"], taken["tile"]


def by_operator(width: int, dtype: str) -> Iterator[tuple[str, float, float]]:
    """Yield what operators take of ten trainings one by one, and as one tile, in s."""
    data, task = drawn(), find("train").compute
    nodes = [
        Member(node.params.model_copy(update={"seed": seed}), node.inputs)
        for seed, node in enumerate([member(data, width, dtype)] * SIBLINGS)
    ]

    def apart() -> None:
        for node in nodes:
            task([node], Machine())

    def seen(call: Callable[[], Any]) -> dict[str, float]:
        call()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            call()
        averages = profiled.key_averages()
        return {each.key: each.self_cpu_time_total / 1e6 for each in averages}

    alone, tile = seen(apart), seen(partial(task, nodes, Machine()))
    most = {name: max(alone.get(name, 0), tile.get(name, 0)) for name in alone | tile}
    yield "all", sum(alone.values()), sum(tile.values())
    for name in sorted(most, key=most.__getitem__, reverse=True)[:LISTED]:
        yield name, alone.get(name, 0), tile.get(name, 0)


def arithmetic(width: int, kind: torch.dtype) -> Callable[[], None]:
    """Return the arithmetic of one step of ten modules, both ways, and nothing else."""
    aten = torch.ops.aten

    def drawn_of(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=kind)

    rows = BATCH * TOKENS
    sizes = 2 * [(1, 3), (1, 1), (1, 4), (4, 1)]
    dense = [(a * width, b * width) for a, b in sizes] + [(width, VOCABULARY)]
    products = []
    for before, after in dense:
        x, g = (drawn_of(SIBLINGS, rows, size) for size in (before, after))
        w = drawn_of(SIBLINGS, before, after)
        products += [(x, w), (g, w.mT), (x.mT, g)]
    hidden, narrow = (drawn_of(SIBLINGS * rows, n * width) for n in (4, 1))
    gain, shift = drawn_of(width), drawn_of(width)
    heads = [drawn_of(SIBLINGS * BATCH, 2, TOKENS, width // 2) for _ in range(4)]
    fused = "_scaled_dot_product_flash_attention_for_cpu"
    attend, attend_back = getattr(aten, fused), getattr(aten, f"{fused}_backward")

    def step() -> None:
        for pair in products:
            torch.bmm(*pair)
        for _ in range(2):
            functional.gelu(hidden)
            aten.gelu_backward(hidden, hidden)
            found, logs = attend(*heads[:3], 0.0, is_causal=True)
            attend_back(heads[3], *heads[:3], found, logs, 0.0, True)
        for _ in range(5):
            _, mean, scale = torch.native_layer_norm(
                narrow, (width,), gain, shift, 1e-5
            )
            aten.native_layer_norm_backward(
                narrow, narrow, (width,), mean, scale, gain, shift, [True] * 3
            )

    return step


def bounded(width: int, dtype: str, turns: int) -> tuple[float, float]:
    """Return what ten trainings take one by one, and the arithmetic of ten at once."""
    data, task = drawn(), find("train").compute
    nodes = [
        Member(node.params.model_copy(update={"seed": seed}), node.inputs)
        for seed, node in enumerate([member(data, width, dtype)] * SIBLINGS)
    ]
    step = arithmetic(width, getattr(torch, dtype))

    def apart() -> None:
        for node in nodes:
            task([node], Machine())

    def floor() -> None:
        for _ in range(EPOCHS * SAMPLES // BATCH):
            step()

    taken = least({"apart": apart, "floor": floor}, turns)
    return taken["apart"], taken["floor"]


def last(fit: Outcome) -> Weights:
    """Return the last weights of a training as a node."""
    arrays = {"weights": fit.arrays["weights"][-1], "network": fit.arrays["network"]}
    return Weights("fit", "train", {}, arrays, str(hash(arrays["weights"].tobytes())))


def print_operators() -> None:
    """Print what operators take."""
    print("| operator | one by one | one tile |\n|---|---|---|")
    for what, apart, tile in by_operator(WIDTHS[0], "float32"):
        print(f"| `{what}` | {apart:.3f} s | {tile:.3f} s |", flush=True)


def print_floor(turns: int) -> None:
    """Print what no tile of ten modules goes below."""
    print("| width | precision | one by one | arithmetic of ten at once | ratio |")
    print("|---|---|---|---|---|")
    for width in WIDTHS:
        apart, floor = bounded(width, "float32", turns)
        print(
            f"| {width} | float32 | {apart:.3g} s | {floor:.3g} s | "
            f"{apart / floor:.1f} x |",
            flush=True,
        )


def print_siblings(turns: int) -> None:
    """Print what ten networks take one by one, and as one tile."""
    print("| width | precision | what | one by one | one tile | ratio |")
    print("|---|---|---|---|---|---|")
    for width in WIDTHS:
        for what, apart, tile in together(width, "float32", turns):
            print(
                f"| {width} | float32 | {what} | {apart:.3g} s | {tile:.3g} s | "
                f"{apart / tile:.1f} x |",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--siblings", action="store_true")
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--operators", action="store_true")
    given = parser.parse_args()
    # Threads and memory as where a stage is computed.
    with threads(1):
        if given.operators:
            print_operators()
        elif given.floor:
            print_floor(given.turns)
        elif given.siblings:
            print_siblings(given.turns)
        else:
            print_whole(given.turns, given.epochs)
            print()
            print_parts(given.turns, given.epochs)


def print_whole(turns: int, epochs: int) -> None:
    """Print what a training and products take."""
    print(
        "| width | precision | what | loop | here | ratio |\n|---|---|---|---|---|---|"
    )
    for width in WIDTHS:
        for dtype in PRECISIONS:
            for measure in (partial(trained, epochs=epochs), multiplied):
                found = measure(width, dtype, turns)
                loops = {n: found.pop(n) for n in list(found) if n.startswith("loop")}
                for name, taken in found.items():
                    for of, loop in loops.items():
                        print(
                            f"| {width} | {dtype} | {name}, {of} | {loop:.3g} s | "
                            f"{taken:.3g} s | {taken / loop:.2f} x |",
                            flush=True,
                        )


def print_parts(turns: int, epochs: int) -> None:
    """Print what a step of a training takes, and all that is no step."""
    print(
        "| width | precision | step of the loop | here | ratio | all else of the loop "
        f"| here | at most {TARGET} x from | trial |"
    )
    print(f"|{9 * '---|'}")
    for width in WIDTHS:
        trial = 1e3 * tried(width, turns)
        for dtype in PRECISIONS:
            node, steps = both_trainings(width, dtype, epochs)
            loop, here = taken_apart(steps, node, turns)
            print(
                f"| {width} | {dtype} | {1e3 * loop.step:.3g} ms | "
                f"{1e3 * here.step:.3g} ms | {here.step / loop.step:.2f} x | "
                f"{1e3 * loop.fixed:.3g} ms | {1e3 * here.fixed:.3g} ms | "
                f"{within_target(loop, here)} | {trial:.3g} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
