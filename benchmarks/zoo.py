"""Modules that other packages made, each trained, probed and timed.

    python -m benchmarks.zoo [--only NAME ...] [--turns N] [--markdown]

Each goes through a study: data of a factory, two seeds trained for two epochs, then the
trace, the largest eigenvalue, the spectrum and the learning coefficient, at small fixed
settings. Where D < 3,000, the matrix of the operator that the probes multiply with is
compared with `torch.autograd.functional.hessian` of the module itself, in double
precision. Last, times of one network, in multiples of the same by a plain PyTorch loop
in single precision: twelve epochs of training by its task, and four Hessian products,
in the order that a probe takes and in one that keeps its graph. CPU seconds of one
thread, each the least of several turns, in turns; products must agree. Training is
taken apart as by `own_module.py`: a step, and all else, in milliseconds, and from how
many steps on all of it takes at most 1.1 x the loop. What failed is
told below the table, with its reason, and why networks were computed one by one.
`requirements-zoo.txt` has the packages.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import curvflow
from benchmarks.own_module import (
    ORDERS,
    Cost,
    least,
    taken_apart,
    within_target,
)
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data, Member
from curvflow.tasks.machine import threads
from curvflow.tasks.networks.problems import Problem, pose
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.registry import Machine, find

FACTORIES = "benchmarks.zoo_modules"
SEEDS, EPOCHS, TIMED_EPOCHS, BATCH, RATE = 2, 2, 12, 16, 0.05
COLUMNS, DENSE = 4, 3000
TOKENS = {"vocab_size": 12, "max_position_embeddings": 8}
HALVES = {"num_hidden_layers": 1, "num_attention_heads": 2}
QWEN = {"hidden_size": 8, "intermediate_size": 16, "num_key_value_heads": 1}

PROBES: dict[str, dict[str, Any]] = {
    "trace": {"use": "probe.trace", "num_probes": 8},
    "top": {"use": "probe.eigenvalues", "k": 1},
    "spectrum": {"use": "probe.spectrum", "num_runs": 2, "num_steps": 8},
    "llc": {
        "use": "probe.llc",
        "calibrate": "none",
        "sampling_method": "sgld",
        "lr": 1e-5,
        "localization": 100.0,
        "batch_size": 16,
        "num_chains": 2,
        "num_draws": 10,
        "num_burnin_steps": 10,
        "num_steps_bw_draws": 2,
    },
}


@dataclass(frozen=True)
class Subject:
    """A module, and its data.

    Attributes:
        name: of the row.
        factory: function that returns the module.
        data: function that returns the data.
        settings: arguments of the former.
        data_settings: arguments of the latter.
        classes: labels there are; None of values.
    """

    name: str
    factory: str
    data: str
    settings: dict[str, Any] = field(default_factory=dict)
    data_settings: dict[str, Any] = field(default_factory=dict)
    classes: int | None = None

    @property
    def model(self) -> dict[str, Any]:
        """The model of a study."""
        return {"factory": f"{FACTORIES}:{self.factory}", "kwargs": self.settings}

    def make(self) -> nn.Module:
        """Return the module."""
        return getattr(import_module(FACTORIES), self.factory)(**self.settings)

    def arrays(self) -> tuple[Any, Any]:
        """Return inputs and targets."""
        return getattr(import_module(FACTORIES), self.data)(**self.data_settings)


def _language(name: str, config: str, model: str, **settings: Any) -> Subject:
    names = {"config": config, "model": model}
    return Subject(name, "transformers", "walks", names | settings, classes=12)


MODULES = (
    Subject(
        "timm test_vit",
        "timm",
        "images",
        {"name": "test_vit", "img_size": 32},
        {"side": 32, "samples": 32},
        classes=3,
    ),
    Subject(
        "timm test_resnet",
        "timm",
        "images",
        {"name": "test_resnet"},
        {"side": 32, "samples": 32},
        classes=3,
    ),
    _language(
        "transformers GPT-2",
        "GPT2Config",
        "GPT2LMHeadModel",
        vocab_size=12,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    ),
    Subject(
        "transformers BERT",
        "transformers",
        "sentences",
        {
            "config": "BertConfig",
            "model": "BertForSequenceClassification",
            "hidden_size": 8,
            "intermediate_size": 16,
            "num_labels": 3,
            **TOKENS,
            **HALVES,
        },
        classes=3,
    ),
    _language(
        "transformers Qwen3",
        "Qwen3Config",
        "Qwen3ForCausalLM",
        head_dim=4,
        **TOKENS,
        **HALVES,
        **QWEN,
    ),
    _language(
        "transformers Mamba",
        "MambaConfig",
        "MambaForCausalLM",
        vocab_size=12,
        hidden_size=8,
        state_size=4,
        num_hidden_layers=1,
    ),
    _language(
        "transformers Mixtral (mixture of experts)",
        "MixtralConfig",
        "MixtralForCausalLM",
        num_local_experts=3,
        num_experts_per_tok=2,
        experts_implementation="eager",
        **TOKENS,
        **HALVES,
        **QWEN,
    ),
    Subject("x-transformers decoder", "x_decoder", "walks", classes=12),
    Subject("torch_geometric GCN", "GraphNet", "signals", classes=3),
    Subject("nn.LSTM language model", "Recurrent", "walks", classes=12),
    Subject("diffusers UNet2DModel", "Denoiser", "noised"),
    Subject("torchbnn", "bayesian", "waves"),
    Subject("torchbnn, mean in evaluation", "bayesian_mean", "waves"),
    Subject("pykan", "kan", "waves"),
    Subject("siren-pytorch", "siren", "waves"),
)


@dataclass
class Row:
    """What came of a module.

    Attributes:
        subject: the module.
        parameters: D; None if it was refused before that was known.
        stages: per stage `yes`, `diverged`, `failed` or `not run`.
        error: largest difference from the dense twin, relative to its largest entry.
        ratios: times that of a plain loop, by what was timed.
        costs: of training by a plain loop, and by its task.
        reasons: why something failed, or was computed otherwise.
    """

    subject: Subject
    parameters: int | None = None
    stages: dict[str, str] = field(default_factory=dict)
    error: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    costs: tuple[Cost, Cost] | None = None
    reasons: list[str] = field(default_factory=list)


def study(subject: Subject) -> dict[str, Any]:
    """Return the study of a module."""
    data: dict[str, Any] = {
        "use": "data.factory",
        "factory": f"{FACTORIES}:{subject.data}",
        "kwargs": subject.data_settings,
    }
    if subject.classes:
        data["num_classes"] = subject.classes
    fit = {
        "use": "train",
        "data": "data",
        "seed": "${seed}",
        **training(subject, EPOCHS),
    }
    probes = {name: {**probe, "weights": "fit"} for name, probe in PROBES.items()}
    return {
        "study": "zoo",
        "axes": {"seed": SEEDS},
        "stages": {"data": data, "fit": fit, **probes},
    }


def training(subject: Subject, epochs: int) -> dict[str, Any]:
    """Return the parameters of `train`."""
    return {
        "model": subject.model,
        "rule": {"rule": "sgd", "lr": RATE},
        "epochs": epochs,
        "batch_size": BATCH,
        "record_every": epochs,
    }


def studied(row: Row) -> Tensor | None:
    """Run the study of a module; return the weights of its first seed, (1, D + S)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(study(row.subject), file)
        results = curvflow.run(
            path, store=Path(folder) / "store", options=curvflow.RunOptions(workers=1)
        )
        record = results.run
        assert record is not None
        failed = {str(f["stage"]): str(f["error"]) for f in record.failures}
        of_words = record.counts.items()
        for stage in ("fit", *PROBES):
            tally = {word: counts.get(stage, 0) for word, counts in of_words}
            row.stages[stage] = next(
                (word for word in ("failed", "diverged") if tally[word]),
                "yes" if tally["executed"] == SEEDS else "not run",
            )
        row.reasons += [f"{stage}: {first_line(e)}" for stage, e in failed.items()]
        if row.stages["fit"] != "yes":
            return None
        return torch.as_tensor(results["fit"]["weights"].values[:1, -1])


def first_line(message: object) -> str:
    """Return the first line of what an error says."""
    return (str(message).strip() or type(message).__name__).splitlines()[0]


def loaded(subject: Subject, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as a loop takes them: labels and tokens whole."""
    x, y = (torch.as_tensor(array) for array in subject.arrays())
    return tuple(t.to(dtype) if t.is_floating_point() else t.long() for t in (x, y))  # type: ignore[return-value] # two of them


def data_of(subject: Subject) -> Data:
    """Return the data as a node."""
    arrays = dataset_of(np.float64, subject.classes, *subject.arrays())
    return Data("data", "data.array", {}, arrays, subject.name)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of labels, the mean square of values."""
    if targets.is_floating_point():
        return functional.mse_loss(outputs, targets)
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def plain(
    subject: Subject, problem: Problem, weights_1W: Tensor
) -> tuple[nn.Module, Tensor]:
    """Return the module itself with weights, and its parameters in order, (D,)."""
    module, network = subject.make().to(weights_1W.dtype), problem.network
    weights_MD, fixed_MS = network.split(weights_1W)
    tensors = network.layout.named(weights_MD) | network.statistics.named(fixed_MS)
    with torch.no_grad():
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        for name, stacked in tensors.items():
            named[name].copy_(stacked[0])
    return module, weights_MD[0]


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {n: p for n, p in module.named_parameters() if p.requires_grad}


def compared(subject: Subject, problem: Problem, weights_1W: Tensor) -> float:
    """Return how far the operator's matrix is from that of the module by itself."""
    x, y = loaded(subject, torch.float64)
    module, weights_D = plain(subject, problem, weights_1W.double())
    module.eval()
    leaves = trained(module)

    def loss(w_D: Tensor) -> Tensor:
        parts = w_D.split([p.numel() for p in leaves.values()])
        tensors = {
            name: part.view_as(p)
            for (name, p), part in zip(leaves.items(), parts, strict=True)
        }
        return loss_of(functional_call(module, tensors, (x,)), y)

    with sdpa_kernel(SDPBackend.MATH):  # the fused one has no second derivatives
        twin = torch.autograd.functional.hessian(loss, weights_D)
    _, fixed_MS = problem.network.split(weights_1W.double())
    operator = BatchedHessian(
        problem.losses, weights_D[None], x[None], y[None], fixed_MS=fixed_MS
    )
    columns = torch.eye(len(weights_D), dtype=torch.float64)
    found = torch.cat([operator @ part[None] for part in columns.split(64, 1)], -1)[0]
    assert isinstance(twin, Tensor)
    return float((found - twin).abs().max() / twin.abs().max())


@contextlib.contextmanager
def reasoned(row: Row, what: str) -> Iterator[None]:
    """Keep the first line of whatever goes wrong."""
    try:
        yield
    # Modules of others raise whatever they like; a row says so, and the next begins.
    except Exception as error:
        row.reasons.append(f"{what}: {type(error).__name__}: {first_line(error)}")


def time_training(row: Row, problem: Problem, weights_1W: Tensor, turns: int) -> None:
    """Add the time of training one network, in multiples of a plain loop."""
    subject = row.subject
    x, y = loaded(subject, torch.float32)
    checked = find_kind("train").params.model_validate(training(subject, TIMED_EPOCHS))
    node, task = Member(checked, {"data": [data_of(subject)]}), find("train").compute

    def loop() -> Iterator[None]:
        module, _ = plain(subject, problem, weights_1W.float())
        steps = torch.optim.SGD(module.parameters(), lr=RATE)
        draws = torch.Generator().manual_seed(0)
        yield
        for _ in range(TIMED_EPOCHS):
            for rows in torch.randperm(len(x), generator=draws).split(BATCH):
                steps.zero_grad()
                loss_of(module(x[rows]), y[rows]).backward()
                steps.step()
                yield
        with torch.no_grad():
            loss_of(module.eval()(x), y)

    calls: dict[str, Callable[[], Any]] = {
        "loop": lambda: list(loop()),
        "training": lambda: task([node], Machine()),
    }
    taken = least(calls, turns)
    row.ratios["training"] = taken["training"] / taken["loop"]
    row.costs = taken_apart(loop, node, turns)
    row.ratios["step"] = row.costs[1].step / row.costs[0].step


def time_products(row: Row, problem: Problem, weights_1W: Tensor, turns: int) -> None:
    """Add the times of products by a module's Hessian, in multiples of a loop."""
    subject = row.subject
    x, y = loaded(subject, torch.float32)
    module, weights_D = plain(subject, problem, weights_1W.float())
    module.eval()
    leaves = list(trained(module).values())
    _, fixed_MS = problem.network.split(weights_1W.float())
    columns = torch.randn(1, len(weights_D), COLUMNS)

    def loop() -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            slopes = torch.autograd.grad(
                loss_of(module(x), y),
                leaves,
                create_graph=True,
                materialize_grads=True,
            )
            slope_D = torch.cat([slope.flatten() for slope in slopes])
            products = [
                torch.autograd.grad(
                    slope_D,
                    leaves,
                    column,
                    retain_graph=True,
                    materialize_grads=True,
                )
                for column in columns[0].T
            ]
        return torch.stack([torch.cat([p.flatten() for p in ps]) for ps in products], 1)

    def product(order: Order) -> Tensor:
        operator = BatchedHessian(
            problem.losses,
            weights_D[None],
            x[None],
            y[None],
            fixed_MS=fixed_MS,
            batch_size=problem.rows_per_pass(COLUMNS),
            order=order,
        )
        return operator @ columns

    expected = loop()
    calls: dict[str, Callable[[], Any]] = {"loop": loop}
    for order in ORDERS:
        with reasoned(row, f"products {order}"):
            room = 1e-3 * float(expected.abs().max())
            found = product(order)[0]
            torch.testing.assert_close(found, expected, rtol=1e-2, atol=room)
            calls[order] = partial(product, order)
    taken = least(calls, turns)
    row.ratios |= {order: taken[order] / taken["loop"] for order in calls}


def measured(subject: Subject, turns: int) -> Row:
    """Study, compare and time a module."""
    row = Row(subject)
    weights_1W = None
    with reasoned(row, "study"):
        weights_1W = studied(row)
    if weights_1W is None:
        return row
    problem = pose(parse_model(subject.model), "auto", data_of(subject))
    row.parameters = problem.network.num_parameters
    if problem.network.note:
        row.reasons.append(problem.network.note.partition(": ")[2])
    if row.parameters < DENSE:
        with reasoned(row, "dense twin"):
            row.error = compared(subject, problem, weights_1W)
    for add_times in (time_training, time_products):
        # Threads and memory as where a stage is computed.
        with reasoned(row, add_times.__name__.replace("_", " ")), threads(1):
            add_times(row, problem, weights_1W, turns)
    return row


COLUMN_NAMES = (
    "module",
    "D",
    *("training", *PROBES),
    "off the dense twin",
    "training takes",
    "a step of it takes",
    "all else of it takes, against",
    "at most 1.1 × from",
    "products take",
    "products of a kept graph take",
)


def cells(row: Row) -> list[str]:
    """Return the cells of a row of the table."""
    training, step, *products = (
        "-" if name not in row.ratios else f"{row.ratios[name]:.2f} ×"
        for name in ("training", "step", *ORDERS)
    )
    parts = ["-", "-"]
    if row.costs is not None:
        loop, here = row.costs
        parts = [
            f"{1e3 * here.fixed:.1f} ms, {1e3 * loop.fixed:.1f} ms",
            within_target(loop, here),
        ]
    return [
        row.subject.name,
        "-" if row.parameters is None else f"{row.parameters:,}",
        *(row.stages.get(stage, "not run") for stage in ("fit", *PROBES)),
        "-" if row.error is None else f"{row.error:.0e}",
        *(training, step, *parts, *products),
    ]


def printed(rows: Sequence[Row], *, markdown: bool) -> Iterator[str]:
    """Yield the lines of the table, and below it the reasons."""
    table = [list(COLUMN_NAMES), *map(cells, rows)]
    if markdown:
        table.insert(1, ["---"] * len(COLUMN_NAMES))
        yield from (f"| {' | '.join(line)} |" for line in table)
    else:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            padded = (cell.ljust(w) for cell, w in zip(line, widths, strict=True))
            yield "  ".join(padded).rstrip()
    yield ""
    for row in rows:
        for reason in row.reasons:
            yield f"- {row.subject.name}: {reason}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of names")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for subject in MODULES:
        if given.only and not any(part in subject.name for part in given.only):
            continue
        print(subject.name, file=sys.stderr, flush=True)
        # Packages remark on their optional parts, and write to both streams.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            rows.append(measured(subject, given.turns))
    print("\n".join(printed(rows, markdown=given.markdown)))


if __name__ == "__main__":
    main()
