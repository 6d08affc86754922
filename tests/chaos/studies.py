"""Random studies: some axes, training, probes, tables and a kind of the user's."""

import random
from dataclasses import dataclass, field
from pathlib import Path

RULES = {
    "sgd": "{rule: sgd, lr: 0.1}",
    "heavy": "{rule: sgd, lr: 0.05, momentum: 0.9}",
    "adam": "{rule: adam, lr: 0.01}",
    "wild": "{rule: sgd, lr: 1.0e+12}",  # diverges
}
PROBES = {
    "norms": "{use: probe.norms, weights: fit, at: AT}",
    "trace": "{use: probe.hessian_trace, weights: fit, num_probes: 4}",
    "eigen": "{use: probe.eigenvalues, weights: fit, k: 2}",
}
MODULE = '''
import os
import time
from pathlib import Path

import numpy as np

from curvflow import Variable, stage
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

HERE = Path(__file__).parent


class Chosen(Params):
    """A seed and a factor."""

    seed: int = 0
    factor: float = 1.0


@stage("probe.NAME", version=1, outputs=[Variable("size", "how large")])
def mine(data: Data, params: Chosen):
    """Measure the data, slowly enough to be disturbed."""
    time.sleep(PAUSE)
    if params.seed == 1 and (HERE / "broken").exists():
        raise ValueError("seed 1 cannot be measured")
    wrong = float(os.access(HERE / "wrong", os.F_OK))  # which no run observes
    return {"size": params.factor * np.abs(data["inputs"]).sum() + params.seed + wrong}
'''
EPOCHS, FACTORS, SEEDS = (3, 4), (1.0, 2.0), (2, 3, 4)


@dataclass
class Study:
    """A study in a folder, and the edits that stand.

    Attributes:
        folder: it is in.
        edits: overrides of the text, by key.
        tried: the overrides that runs were given, in order.
    """

    folder: Path
    edits: dict[str, object] = field(default_factory=dict)
    tried: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """Return the file of the study."""
        return self.folder / "study.yaml"

    @property
    def broken(self) -> Path:
        """Return the file whose presence makes a node fail."""
        return self.folder / "broken"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the edits as overrides."""
        return tuple(f"{key}={value}" for key, value in sorted(self.edits.items()))

    def words(self) -> list[str]:
        """Return the edits as words of a command, and note that they are tried."""
        if self.overrides not in self.tried:
            self.tried.append(self.overrides)
        return [word for edit in self.overrides for word in ("--set", edit)]

    def edit(self, draw: random.Random) -> str:
        """Change one thing of the study, or change it back."""
        key, values = draw.choice(
            [
                ("axes.seed", SEEDS),
                ("stages.fit.epochs", EPOCHS),
                ("stages.mine.factor", FACTORS),
            ]
        )
        self.edits[key] = draw.choice(values)
        return f"{key}={self.edits[key]}"


def draw_study(draw: random.Random, folder: Path) -> Study:
    """Write a random study and its module into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    module = f"chaos_{draw.randrange(16**12):012x}"
    rules = draw.sample(sorted(RULES), draw.randint(1, 3))
    probes = draw.sample(sorted(PROBES), draw.randint(1, 2))
    at = draw.choice(["final", "all", "{every: 2}"])
    stages = [
        "  data: {use: data.xor}",
        '  fit: {use: train, data: data, rule: "${rule}", seed: "${seed}", epochs: 4,',
        "        model: {kind: mlp, hidden: [HIDDEN]}, checkpoints: {every: 1}}",
        *(f"  {name}: {PROBES[name].replace('AT', at)}" for name in probes),
        f'  mine: {{use: "{module}:mine", data: data, seed: "${{seed}}", factor: 1.0}}',
        f"  table: {{use: aggregate.summary, of: [fit, {probes[0]}], over: seed}}",
        "  means: {use: aggregate.summary, of: mine, over: seed}",
    ]
    hidden = draw.randint(2, 4)
    if draw.random() < 0.4:
        widths, hidden_text = f"  width: [{hidden}, {hidden + 1}]\n", '"${width}"'
    else:
        widths, hidden_text = "", str(hidden)
    text = (
        "study: chaos\naxes:\n  seed: 2\n"
        + widths
        + "  rule:\n"
        + "".join(f"    {name}: {RULES[name]}\n" for name in rules)
        + "stages:\n"
        + "\n".join(stages).replace("HIDDEN", hidden_text)
        + "\n"
    )
    pause = draw.choice([0.0, 0.01, 0.03])
    code = MODULE.replace("NAME", module).replace("PAUSE", str(pause))
    (folder / "study.yaml").write_text(text)
    (folder / f"{module}.py").write_text(code)
    return Study(folder)
