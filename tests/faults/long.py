"""A study whose training counts its passes and can be held at any of them."""

from pathlib import Path

from curvflow.flows.graph.open_study import open_study
from tests.faults.children import digests, ended, start, study

STUDY = """
study: long
axes:
  seed: 3
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {factory: "nets:net", kwargs: {}}, epochs: 60,
        rule: {rule: sgd, lr: 0.1, momentum: 0.9}, seed: "${seed}", batch_size: 2,
        checkpoints: {every: 30}}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
"""
NETS = """
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
CALLS, HOLD, HELD = HERE / "calls", HERE / "hold", HERE / "held"


class Net(torch.nn.Sequential):
    def forward(self, x):
        with CALLS.open("ab") as file:
            file.write(b".")
        if HOLD.exists() and CALLS.stat().st_size >= HOLD.stat().st_size:
            HELD.touch()
            while HOLD.exists():
                time.sleep(0.01)
        return super().forward(x)


def net(*shapes):
    return Net(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
"""


# A pass in the middle of the training, behind those that try the network.
MIDDLE = 120


class Long:
    """The study in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.path = folder, folder / "study.yaml"
        self.hold, self.held = folder / "hold", folder / "held"
        self.path.write_text(STUDY)
        (folder / "nets.py").write_text(NETS)

    def hold_at(self, call: int) -> None:
        """Let training wait at one of its passes until `hold` is removed.

        Its length says which: what the network reads would be what its state stands on.
        """
        self.hold.write_text("." * call)

    def run(self, *overrides: str) -> None:
        """Run to the end."""
        assert ended(start(study, self.path, *overrides)) == 0

    @property
    def calls(self) -> int:
        """The number of passes so far."""
        return (self.folder / "calls").stat().st_size

    @property
    def kept(self) -> list[Path]:
        """The states that are kept."""
        return sorted((self.folder / ".curvflow" / "partials").iterdir())

    @property
    def store(self):
        """The store."""
        return open_study(self.path).store

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each result."""
        return digests(self.store)
