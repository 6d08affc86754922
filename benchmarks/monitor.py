"""Time that a monitor takes beside the bare loop: MLP, residual network, transformer.

    python -m benchmarks.monitor

Each network is trained on digits, or on text of a Markov chain, on one thread, in three
loops: two bare ones, and one with a `curvflow.Monitor` at its defaults. They take turns
of about a second, in an order drawn anew each time, so that a machine that becomes
slower is so for all three; a monitor's clock stands while the others run. It measures
on as many samples as a step takes. Times are those of the processor, and include the
monitor's own beginning. Prints a table in Markdown: the difference from the mean of the
bare loops, what the monitor itself has counted, and the measurements made; weights must
be equal to the bit.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from unittest.mock import patch

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import curvflow
from curvflow.flows.monitor import monitor as clocked

CLASSES = 10
# Of the transformer: characters, and their number in a sample.
SYMBOLS, LENGTH, WIDTH = 32, 32, 64
# Seconds of a turn.
TURN = 1.0


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


class Loop:
    """A training that takes turns with others, and its processor seconds.

    Attributes:
        seconds: of all its turns.
        counted: part of its time that the monitor has counted as its own.
        monitor: None in a bare loop.
    """

    def __init__(self, task: Task, *, watched: bool) -> None:
        """Build the network, and with it the monitor."""
        torch.manual_seed(0)
        self._task, self._net, self._loss = task, task.build(), nn.CrossEntropyLoss()
        self._inputs, self._targets = task.data()
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.05, momentum=0.9)
        self._random, self._away, self._left = torch.get_rng_state(), 0.0, 0.0
        self.seconds = self.counted = 0.0
        self.monitor = self._watched() if watched else None

    def _watched(self) -> curvflow.Monitor:
        begun, size = time.process_time(), self._task.batch
        data = self._inputs[:size], self._targets[:size]
        monitor = curvflow.Monitor(self._net, self._loss, data)
        self.seconds, self._left = time.process_time() - begun, time.perf_counter()
        return monitor

    def turn(self, steps: int) -> None:
        """Go on for some steps, with its own random numbers and its own clock."""
        self._away += time.perf_counter() - self._left
        torch.set_rng_state(self._random)
        begun = time.process_time()
        with patch.object(clocked, "perf_counter", self._clock):
            for _ in range(steps):
                self._step()
            if self.monitor is not None:
                self.counted = self.monitor.overhead
        self.seconds += time.process_time() - begun
        self._random, self._left = torch.get_rng_state(), time.perf_counter()

    def _clock(self) -> float:
        return time.perf_counter() - self._away

    def _step(self) -> None:
        rows = torch.randint(len(self._inputs), (self._task.batch,))
        self._optimizer.zero_grad()
        value = self._loss(self._net(self._inputs[rows]), self._targets[rows])
        value.backward()
        self._optimizer.step()
        if self.monitor is not None:
            self.monitor.step(value)

    @property
    def weights(self) -> Tensor:
        """All parameters, (D,)."""
        return nn.utils.parameters_to_vector(self._net.parameters())


def steps_of(task: Task, seconds: float) -> int:
    """Return the steps that a bare loop takes in about this time."""
    loop = Loop(task, watched=False)
    loop.turn(5)
    before = loop.seconds
    loop.turn(20)
    return max(1, round(20 * seconds / (loop.seconds - before)))


def rows(seconds: float, names: Iterable[str]) -> Iterator[str]:
    """Yield a row of the table for each network."""
    draws = random.Random(0)
    for name in names:
        steps, turns = steps_of(TASKS[name], TURN), max(1, round(seconds / TURN))
        first, watched, last = (
            Loop(TASKS[name], watched=number == 1) for number in range(3)
        )
        for _ in range(turns):
            for loop in draws.sample((first, watched, last), 3):
                loop.turn(steps)
        assert torch.equal(first.weights, watched.weights), name
        bare, monitor = (first.seconds + last.seconds) / 2, watched.monitor
        assert monitor is not None
        count = monitor.to_xarray().sizes["step"]
        yield (
            f"| {name} | {len(first.weights):,} | {turns * steps:,} | {bare:.0f} s | "
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
