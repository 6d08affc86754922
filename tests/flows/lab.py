"""A project of a user's own that is edited between runs, beside the toy kinds."""

import sys
from contextlib import contextmanager
from unittest import mock

from curvflow.flows.graph.open_study import OpenedStudy
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import RunReport, run_study
from curvflow.flows.run.settle import Answer
from curvflow.schemas import kinds
from curvflow.schemas.study.study import load_study
from curvflow.tasks import registry

FILES = {
    "lab_kinds.py": """
import numpy as np
from curvflow import Data, Outcome, Params, Variable, stage
from lab_help import measured

POINTS = (
    Variable("inputs", "points", ("sample",), bulk=True),
    Variable("targets", "labels", ("sample",), bulk=True),
)
RESULTS = (Variable("value", "a value"), Variable("many", "values", ("sample",)))


class Chosen(Params):
    seed: int = 0


@stage("lab.points", version=1, outputs=POINTS, returns=Data)
def points() -> dict[str, object]:
    inputs = np.arange(4.0)
    return {"inputs": inputs, "targets": inputs % 2}


@stage("lab.measure", version=1, outputs=RESULTS)
def measure(data: Data, params: Chosen) -> dict[str, object]:
    many = measured(data["inputs"]) + params.seed
    return {"value": many.sum(), "many": many}


@stage("lab.other", version=1, outputs=RESULTS)
def other(data: Data) -> dict[str, object]:
    return {"value": data["inputs"].sum(), "many": data["inputs"]}
""",
    "lab_help.py": "FACTOR = 2.0\n\n\ndef measured(x):\n    return scaled(x) + 1.0\n"
    "\n\ndef scaled(x):\n    return FACTOR * x\n",
}
STUDY = """
study: lab
axes: {seed: 3}
stages:
  points: {use: "lab_kinds:points"}
  measure: {use: "lab_kinds:measure", data: points, seed: "${seed}"}
  other: {use: "lab_kinds:other", data: points}
  mean: {use: toy.mean, of: measure, over: seed}
"""


def forget() -> None:
    """Unload the project, as a new process would not have it."""
    for name in ("lab_kinds", "lab_help"):
        sys.modules.pop(name, None)
    for name in ("lab.points", "lab.measure", "lab.other"):
        kinds._added.pop(name, None)
        registry._implementations.pop(name, None)


class Watcher(Unwatched):
    """Keeps the lines that a run tells."""

    def __init__(self):
        self.lines = []

    def tell(self, message):
        self.lines.append(message)

    def warn(self, message):
        self.lines.append(message)


class Lab:
    """The project in a folder, with a store."""

    def __init__(self, folder, store):
        self.folder, self.store, self.files = folder, store, dict(FILES)
        self.lines = []
        self._write()

    def _write(self):
        for name, text in self.files.items():
            (self.folder / name).write_text(text)
        forget()

    def edit(self, old, new, file="lab_help.py"):
        assert old in self.files[file]
        self.files[file] = self.files[file].replace(old, new)
        self._write()

    def back(self):
        self.files = dict(FILES)
        self._write()

    def opened(self, *overrides, text=STUDY) -> OpenedStudy:
        study = load_study(text, file="lab.yaml", overrides=overrides)
        return OpenedStudy(
            study, self.store, SourceFiles(self.folder), self.folder / "out"
        )

    def plan(self, *overrides, text=STUDY):
        opened_study = self.opened(*overrides, text=text)
        return make_plan(opened_study.study, opened_study.store, opened_study.files)

    def run(self, *overrides, answer=None, text=STUDY) -> RunReport:
        opened_study, watcher = self.opened(*overrides, text=text), Watcher()
        try:
            return run_study(
                opened_study.study,
                opened_study.store,
                opened_study.files,
                answer=answer,
                observer=watcher,
            )
        finally:
            self.lines = watcher.lines

    def executed(self, *overrides, **asked):
        counts = self.run(*overrides, **asked).record.counts["executed"]
        return {stage: count for stage, count in counts.items() if count}

    def drifts(self, *overrides, text=STUDY):
        drifts = self.plan(*overrides, text=text).drifts
        return {drift.kind: len(drift.nodes) for drift in drifts}


@contextmanager
def laboratory(folder, store):
    # Python takes an edit within a second that keeps the size for none.
    with (
        mock.patch.object(sys, "dont_write_bytecode", True),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
    ):
        yield Lab(folder, store)
        forget()


def accept(*kinds, verify=None):
    return Answer(accept=kinds, reason="it means the same", verify=verify)


def rerun(*kinds):
    return Answer(rerun=kinds)
