"""Time that a monitor takes beside the bare loop: MLP, residual network, transformer.

    python -m benchmarks.monitor

Each network is trained on digits, or on text of a Markov chain, for about `--seconds`,
bare, with a `curvflow.Monitor` at its defaults, and bare again, on one thread. The
monitor measures on as many samples as a step takes. Times are those of the processor,
so that other programs on the machine matter little. Prints a table in Markdown: the
difference from the mean of the bare loops, what the monitor itself has counted, and the
measurements made; weights must be equal to the bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import curvflow

CLASSES = 10
# Of the transformer: characters, and their number in a sample.
SYMBOLS, LENGTH, WIDTH = 32, 32, 64


class Residual(nn.Module):
    """Two convolutions with batch norm, added to what they are given."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(channels), nn.ReLU()]
        self.inner = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations, (N, C, H, W)."""
        return torch.relu(x + self.inner(x))


class Transformer(nn.Module):
    """A causal language model of two layers with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, SYMBOLS)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of what follows each place, (N, symbols, places)."""
        hidden = self.layers(self.embed(x) + self.place, mask=self.mask)
        scores: Tensor = self.out(hidden).movedim(1, 2)
        return scores


def mlp() -> nn.Module:
    """Return a dense network 64-256-256-10."""
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(64, 256), nn.ReLU()),
        *(nn.Linear(256, 256), nn.ReLU()),
        nn.Linear(256, CLASSES),
    )


def resnet() -> nn.Module:
    """Return a residual network of three blocks of 16 channels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        *(Residual(16) for _ in range(3)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(16, CLASSES),
    )


def digits() -> tuple[Tensor, Tensor]:
    """Return the digits of scikit-learn and their labels."""
    images, labels = load_digits(return_X_y=True)
    inputs = torch.as_tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return inputs, torch.as_tensor(labels)


def text() -> tuple[Tensor, Tensor]:
    """Return text of a Markov chain, and what follows each of its symbols."""
    draw = torch.Generator().manual_seed(0)
    law = torch.softmax(3 * torch.randn(SYMBOLS, SYMBOLS, generator=draw), dim=1)
    symbols = [torch.randint(SYMBOLS, (1024,), generator=draw)]
    for _ in range(LENGTH):
        symbols.append(torch.multinomial(law[symbols[-1]], 1, generator=draw)[:, 0])
    whole = torch.stack(symbols, dim=1)
    return whole[:, :-1], whole[:, 1:]


@dataclass(frozen=True)
class Task:
    """A network, its data and the samples of a step."""

    build: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]
    batch: int


TASKS = {
    "MLP": Task(mlp, digits, 128),
    "ResNet": Task(resnet, digits, 64),
    "transformer": Task(Transformer, text, 32),
}


@dataclass(frozen=True)
class Run:
    """Processor seconds of a loop, its weights, its monitor and what that counted."""

    seconds: float
    weights: Tensor
    monitor: curvflow.Monitor | None
    counted: float


def run(task: Task, steps: int, *, watched: bool) -> Run:
    """Train for some steps, with a monitor or without."""
    torch.manual_seed(0)
    net, (x, y) = task.build(), task.data()
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    data = x[: task.batch], y[: task.batch]
    monitor = curvflow.Monitor(net, loss, data) if watched else None
    began = time.process_time()
    for _ in range(steps):
        rows = torch.randint(len(x), (task.batch,))
        optimizer.zero_grad()
        value = loss(net(x[rows]), y[rows])
        value.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(value)
    seconds = time.process_time() - began
    counted = 0.0 if monitor is None else monitor.overhead
    weights = nn.utils.parameters_to_vector(net.parameters())
    return Run(seconds, weights, monitor, counted)


def rows(seconds: float, names: Iterable[str]) -> Iterator[str]:
    """Yield a row of the table for each network."""
    for name in names:
        task = TASKS[name]
        run(task, 5, watched=False)
        steps = max(10, round(20 * seconds / run(task, 20, watched=False).seconds))
        first, watched, last = (
            run(task, steps, watched=number == 1) for number in range(3)
        )
        assert torch.equal(first.weights, watched.weights), name
        bare = (first.seconds + last.seconds) / 2
        monitor = watched.monitor
        assert monitor is not None
        count = monitor.to_xarray().sizes["step"]
        yield (
            f"| {name} | {len(first.weights):,} | {steps:,} | {bare:.0f} s | "
            f"{100 * (watched.seconds / bare - 1):.1f} % | "
            f"{100 * abs(first.seconds - last.seconds) / bare:.1f} % | "
            f"{100 * watched.counted:.1f} % | {count} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each loop")
    parser.add_argument("--networks", nargs="+", choices=TASKS, default=[*TASKS])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | parameters | steps | bare | more with a monitor | ", end="")
    print("two bare loops differ by | counted by itself | measurements |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows(asked.seconds, asked.networks):
        print(row, flush=True)


if __name__ == "__main__":
    main()
