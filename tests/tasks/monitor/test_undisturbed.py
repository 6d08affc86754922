"""Loaders that a monitor reads go on as if it had not."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
)

import curvflow
from tests.flows.monitor.loops import problem, small

COUNT = 24


def seeded():
    return torch.Generator().manual_seed(11)


class Noisy(Dataset):
    """Inputs with noise of every kind, and of its own generators."""

    def __init__(self):
        self.x, self.y = (rows[:COUNT] for rows in problem())
        self.draw, self.drawn = seeded(), np.random.default_rng(3)

    def __len__(self):
        return COUNT

    def __getitem__(self, row):
        noise = random.random() + np.random.rand() + self.drawn.random()  # noqa: NPY002
        x = self.x[row] + torch.randn(4) + torch.randn(4, generator=self.draw)
        return x + noise, self.y[row]


class Stream(IterableDataset):
    def __iter__(self):
        rows = Noisy()
        yield from (rows[int(n)] for n in torch.randperm(COUNT))


class Turns(Sampler):
    """A sampler of generators and numbers of its own."""

    def __init__(self):
        self.draws = random.Random(1), np.random.RandomState(2)
        self.draw, self.old = self.draws
        self.epoch, self.seen = 0, []

    def __iter__(self):
        self.epoch += 1
        rows = self.old.permutation(COUNT).tolist()
        self.draw.shuffle(rows)
        self.seen.append(rows[0])
        yield from rows[self.epoch + len(self.seen) :]

    def __len__(self):
        return COUNT


class Bare:
    """A sampler by its methods alone."""

    def __init__(self):
        self.draw = seeded()

    def __iter__(self):
        yield from torch.randperm(COUNT, generator=self.draw).tolist()

    def __len__(self):
        return COUNT


class Shared:
    """What all loaders share, as accelerate has it."""

    def __init__(self):
        self.readers = []


class Counted(DataLoader):
    """Inputs that depend on how often it was read, and on who still reads it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gradient_state, self.iteration = Shared(), 0

    def __iter__(self):
        shared = self.gradient_state
        shared.readers = [*shared.readers, self]
        for x, y in super().__iter__():
            yield x + len(shared.readers) + self.iteration, y
        shared.readers = [each for each in shared.readers if each is not self]
        self.iteration += 1


def batches(sampler):
    return DataLoader(Noisy(), batch_sampler=BatchSampler(sampler, 6, drop_last=False))


ROWS: Any = [*zip(*problem(), strict=True)]
WORKERS: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}
LOADERS = {
    "shuffled": lambda: DataLoader(Noisy(), 6, shuffle=True),
    "seeded": lambda: DataLoader(Noisy(), 6, shuffle=True, generator=seeded()),
    "list": lambda: DataLoader(ROWS, 6, shuffle=True),
    "part": lambda: DataLoader(Subset(Noisy(), range(9)), 6, shuffle=True),
    "weighted": lambda: DataLoader(
        Noisy(),
        6,
        sampler=WeightedRandomSampler([1.0] * COUNT, COUNT, generator=seeded()),
    ),
    "batches": lambda: batches(RandomSampler(Noisy(), generator=seeded())),
    "stream": lambda: DataLoader(Stream(), 6),
    "turns": lambda: DataLoader(Noisy(), 6, sampler=Turns()),
    "turns of batches": lambda: batches(Turns()),
    "counted": lambda: Counted(Noisy(), 6, shuffle=True),
    "bare": lambda: DataLoader(Noisy(), 6, sampler=Bare()),
    "workers that stay": lambda: DataLoader(Noisy(), 6, shuffle=True, **WORKERS),
    "seeded workers that stay": lambda: DataLoader(
        Noisy(), 6, shuffle=True, generator=seeded(), **WORKERS
    ),
}


def trained(name, watched=None, num_batches=None):
    """Return all that two epochs read, with a monitor made before them or within."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    net, loader, rows = small(), LOADERS[name](), []

    def watch():
        curvflow.Monitor(
            net, nn.CrossEntropyLoss(), loader, num_batches=num_batches, probes=[]
        )

    if watched == "before":
        watch()
    for epoch in range(2):
        for number, (x, _) in enumerate(loader):
            if watched == "within" and (epoch, number) == (1, 1):
                watch()
            rows.append(x)
    return torch.cat(rows)


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_goes_on_as_if_no_monitor_had_read_it(name):
    expected = trained(name)
    for watched in ("before", "within"):
        for num_batches in (None, 2):
            assert torch.equal(trained(name, watched, num_batches), expected)
