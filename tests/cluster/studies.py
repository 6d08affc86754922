"""Studies with modules beside them, which can be slowed down, held and broken."""

import os
from collections import Counter
from pathlib import Path

from curvflow.stores.open import open_store
from tests.cluster.runs import Command

# Many stages, a label that diverges, and a node that fails while `broken` is there.
MIXED = """
study: mixed
axes:
  seed: 3
  rule:
    sgd: {rule: sgd, lr: 0.1}
    adam: {rule: adam, lr: 0.01}
    wild: {rule: sgd, lr: 1.0e+12}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 4}
  norms: {use: probe.norms, weights: fit}
  mine: {use: "MODULE:mine", data: data, seed: "${seed}"}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
  means: {use: aggregate.summary, of: mine, over: seed}
  bars: {use: figure.bars, of: norms, y: norm_l2, label: rule, over: seed}
"""
# One tile that trains for long.
LONG = """
study: long
axes:
  seed: 3
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {factory: "MODULE:net", kwargs: {}}, epochs: 60,
        rule: {rule: sgd, lr: 0.1, momentum: 0.9}, seed: "${seed}", batch_size: 2,
        checkpoints: {every: 30}}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
"""
# Tables by themselves, which load no PyTorch; one of them harms its process.
DEADLY = """
study: deadly
axes:
  seed: [0, 1, 2]
stages:
  mine: {use: "MODULE:deadly", seed: "${seed}", way: WAY}
"""
# Trainings of several lengths, and what comes after them.
CELLS = """
study: cells
axes:
  seed: 2
  net: {one: 0.0, two: 0.01, three: 0.4, four: 0.02}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 2,
        model: {factory: "MODULE:net", kwargs: {pause: "${net}"}}}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
"""
# More tiles than one process is worth.
MANY = """
study: many
axes:
  seed: 80
stages:
  mine: {use: "MODULE:process", seed: "${seed}"}
"""
MODULE = '''
import os
import time
from pathlib import Path

import numpy as np
import torch

from curvflow import Variable, stage
from curvflow.schemas.nodes import Data, Table
from curvflow.schemas.params import Params

HERE = Path(__file__).parent
CALLS, HOLD, HELD, PACE = (HERE / name for name in ("calls", "hold", "held", "pace"))


class Net(torch.nn.Sequential):
    """Counts its passes, and can be held at any of them."""

    pause = 0.0

    def forward(self, x):
        with CALLS.open("ab") as file:
            file.write(b".")
        if HOLD.exists() and CALLS.stat().st_size >= HOLD.stat().st_size:
            # Whole, or not there: what waits for it reads it at once.
            written = HELD.with_name(f"held-{os.getpid()}")
            written.write_text(str(os.getpid()))
            written.replace(HELD)
            while HOLD.exists():
                time.sleep(0.01)
        time.sleep(0.1 if PACE.exists() else self.pause)
        return super().forward(x)


def net(*shapes, pause=0.0):
    made = Net(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    made.pause = pause
    return made


class Seed(Params):
    """A seed."""

    seed: int = 0


@stage("probe.NAME", version=1, outputs=[Variable("size", "how large")])
def mine(data: Data, params: Seed):
    """Measure the data."""
    if params.seed == 1 and (HERE / "broken").exists():
        raise ValueError("seed 1 cannot be measured")
    return {"size": np.abs(data["inputs"]).sum() + params.seed}


@stage("probe.process_NAME", version=1, outputs=[Variable("pid", "x", (), "int64")])
def process(params: Seed):
    """Tell which process computes."""
    return {"pid": np.array(os.getpid())}
'''
LIGHT = '''
import os
import time

import numpy as np

from curvflow import Variable, stage
from curvflow.schemas.nodes import Table
from curvflow.schemas.params import Params


class Seed(Params):
    """A seed."""

    seed: int = 0
    way: str = ""


@stage("probe.deadly_NAME", version=1, outputs=[Variable("size", "x")], returns=Table)
def deadly(params: Seed):
    """End the process that computes seed 2."""
    if params.seed == 2 and params.way == "exit":
        os._exit(1)
    if params.seed == 2 and params.way == "memory":
        much = np.ones(1 << 27)
        time.sleep(60)
    return {"size": np.array(float(params.seed))}
'''


class Project:
    """A study in a folder of its own, with a module that no other folder has."""

    def __init__(self, folder: Path, text: str) -> None:
        folder.mkdir()
        self.folder, name = folder, f"beside_{os.urandom(6).hex()}"
        (folder / "study.yaml").write_text(text.replace("MODULE", name))
        module = MODULE if "deadly" not in text else LIGHT
        (folder / f"{name}.py").write_text(module.replace("NAME", name))
        self.hold, self.held = folder / "hold", folder / "held"
        self.pace, self.broken = folder / "pace", folder / "broken"
        self._started: list[Command] = []

    def start(self, *arguments, store="store", **options) -> Command:
        """Start `curvflow run --json`."""
        where = ("--store", store, "--device", "cpu", "--json")
        return self.command("run", "study.yaml", *where, *arguments, **options)

    def command(self, *arguments, **options) -> Command:
        """Start `curvflow`."""
        started = Command(self.folder, *arguments, **options)
        self._started.append(started)
        return started

    def run(self, *arguments, code=0, **options):
        """Run to the end and return what it printed."""
        return self.start(*arguments, **options).answer(code)

    def store(self, name="store"):
        """Return a store beside the study, or at an address."""
        place = name if "://" in name else self.folder / name
        return open_store(str(place), create=False)

    def kept(self, name="store") -> list[Path]:
        """Return the states that are kept of trainings."""
        folder = self.folder / name / "partials"
        return sorted(p for p in folder.iterdir() if not p.name.startswith("shared"))

    @property
    def calls(self) -> int:
        """The number of passes so far."""
        return (self.folder / "calls").stat().st_size

    def runs_logged(self, store="store"):
        """Return what `curvflow log` lists."""
        return self.command("log", "study.yaml", "--store", store, "--json").answer()

    def clear(self) -> None:
        """End what is left of all that was started."""
        self.hold.unlink(missing_ok=True)
        for command in self._started:
            command.clear()

    def left(self) -> list[int]:
        """Return processes that are left of runs that have ended."""
        return [pid for command in self._started for pid in command.family()]


def results(store):
    """Return by action key what each live result is."""
    live = store.index().receipts.items()
    return {key: (one.stage, one.status, one.digest, one.reason) for key, one in live}


def committed(store):
    """Count how often each action key was committed."""
    return Counter(receipt.key for receipt in store.index().rows.values())


def journal(store, run=-1):
    """Return event, stage and keys of what a run wrote down, in order."""
    notes = store.journal(store.index().runs[run])
    return [(n["event"], n["stage"], n["keys"]) for n in notes if "stage" in n]


def begun(store):
    """Count how often a tile with a node in it was begun, by action key."""
    runs = range(len(store.index().runs))
    notes = [note for run in runs for note in journal(store, run)]
    return Counter(k for event, _, keys in notes if event == "begins" for k in keys)
