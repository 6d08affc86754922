"""A study that runs in a moment, and how a flow run's page tells of it."""

import os

TINY = """\
study: tiny
axes:
  seed: 2
  rule:
    sgd: {rule: sgd, lr: 0.1}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, rule: "${rule}",
        seed: "${seed}", epochs: 4, checkpoints: {every: 2}}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
profiles:
  more: {axes.seed: 3}
expect:
  - {stage: table, where: {rule: sgd}, quantity: final_train_loss, value: 1, within: 9}
"""
STAGES = ["data", "fit", "norms", "table"]
NETS = "def broken(*shapes):\n    raise RuntimeError('no net today')\n"
BROKEN_LINE = (
    "fit[seed=0,rule=sgd]: InputError: model: tiny_nets.py:2: expected "
    "tiny_nets:broken to return a torch.nn.Module, got RuntimeError: no net today. "
    "Correct it."
)
BROKEN = "stages.fit.model={factory: 'tiny_nets:broken', kwargs: {}}"
WILD = "axes.rule.wild={rule: sgd, lr: 1.0e+6}"


SLOW = """\
study: slow
axes: {seed: 2}
stages:
  data: {use: data.xor}
  wait: {use: "slow_kinds:wait", data: data, seed: "${seed}"}
"""
# A tile waits for as long as there is a file `hold` beside it.
SLOW_KINDS = """\
import time
from pathlib import Path

import numpy as np

from curvflow import Data, Params, Variable, stage

HERE = Path(__file__).parent


class Chosen(Params):
    seed: int = 0


@stage("slow.wait", version=1, outputs=(Variable("value", "a value"),))
def wait(data: Data, params: Chosen) -> dict[str, object]:
    (HERE / "held").touch()
    while (HERE / "hold").exists():
        time.sleep(0.01)
    return {"value": np.array(float(params.seed))}
"""


def write_slow(folder):
    """Write a study that waits in mid-run into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hold").touch()
    (folder / "slow_kinds.py").write_text(SLOW_KINDS)
    path = folder / "slow.yaml"
    path.write_text(SLOW)
    return path


def write(folder):
    """Write the study into a folder of its own and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny_nets.py").write_text(NETS)
    path = folder / "tiny.yaml"
    path.write_text(TINY)
    return path


# Every connection and name that a process asks for, and those of its children.
RECORD = """
import sys
def seen(event, about):
    if event == "socket.connect" and isinstance(about[1], tuple):
        host = about[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = about[0]
    else:
        return
    with open({log!r}, "a") as file:
        file.write(f"{{host}}\\n")
sys.addaudithook(seen)
"""


def recorded(folder):
    """Return the environment of a process that is watched, and where to look."""
    log, site = folder / "hosts", folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(RECORD.format(log=str(log)))
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{site}:{known}" if known else str(site)}, log


class Page:
    """What the server shows of a flow run."""

    def __init__(self, server, run):
        self._server, self._of = server, {"flow_runs": {"id": {"any_": [run["id"]]}}}
        self.id, self.run = run["id"], run
        self.state, self.message = run["state_type"], run["state"]["message"]

    @property
    def tasks(self):
        """State by name of task."""
        found = self._server.post("/task_runs/filter", **self._of)
        assert len({one["name"] for one in found}) == len(found)
        return {one["name"]: one["state_type"] for one in found}

    @property
    def artifacts(self):
        """Content by key."""
        found = self._server.post("/artifacts/filter", **self._of)
        assert len({one["key"] for one in found}) == len(found)
        return {one["key"]: one["data"] for one in found}

    @property
    def lines(self):
        """The log, as `logger: line`."""
        wanted = {"flow_run_id": {"any_": [self.id]}}
        found = self._server.post("/logs/filter", logs=wanted, sort="TIMESTAMP_ASC")
        return [f"{one['name']}: {one['message']}" for one in found]


def last_page(server):
    """Return the page of the flow run that began last, those of deployments aside."""
    own = {"flow_runs": {"deployment_id": {"is_null_": True}}}
    (run,) = server.post("/flow_runs/filter", sort="START_TIME_DESC", limit=1, **own)
    return Page(server, run)
