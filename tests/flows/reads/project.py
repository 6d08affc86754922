"""A user's project that reads files, edited between runs of one process."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from unittest import mock

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.reads import ledgers
from curvflow.flows.reads.between_calls import background
from curvflow.flows.run.run import run_study
from curvflow.schemas import kinds
from curvflow.schemas.options import RunOptions
from curvflow.tasks import registry
from tests.flows.lab import Watcher

KINDS = """
import numpy as np
from curvflow import Params, Variable, stage

VALUE = (Variable("value", "a value"),)
"""


LEDGERS = (
    ledgers.imported,
    ledgers.held,
    ledgers.specs,
    ledgers.stated,
    ledgers.linked,
    ledgers.through,
)
HERE = 'HERE = __file__.rpartition("/")[0]\n'
ONE = """
@stage("my.one", version=1, outputs=VALUE)
def one() -> dict[str, object]:
    return {"value": np.asarray(read())}
"""
TWO = """
@stage("my.two", version=1, outputs=VALUE)
def two() -> dict[str, object]:
    return {"value": np.asarray(2.0)}
"""
STAGES = {"one": 'use: "mine:one"', "two": 'use: "mine:two"'}


class Project:
    """A folder with modules, data and a study; every run starts without its modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self.lines: list[str] = []

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else dedent(text).encode()
        path.write_bytes(data)
        if path.suffix == ".py":
            parts = path.relative_to(self.folder).with_suffix("").parts
            self.names.add(parts[0])
        return path

    def kinds(self, text: str, **stages: str) -> None:
        """Write kinds, and a study of these stages."""
        self.write("mine.py", KINDS + dedent(text))
        self.study(**stages)

    def study(self, *, axes: str = "{}", **stages: str) -> None:
        lines = [f"  {name}: {{{text}}}" for name, text in stages.items()]
        text = f"study: project\naxes: {axes}\nstages:\n" + "\n".join(lines)
        self.write("study.yaml", text)

    def forget(self) -> None:
        """Unload the modules, as a new process would not have them."""
        for name in list(sys.modules):
            if name.partition(".")[0] in self.names:
                del sys.modules[name]
                for known in LEDGERS:
                    known.pop(name, None)
        ledgers.assigned.clear()
        ledgers.by_name.clear()
        for name, kind in list(kinds._added.items()):
            if kind.home.partition(":")[0].partition(".")[0] in self.names:
                kinds._added.pop(name)
                registry._implementations.pop(name, None)

    def plan(self):
        self.forget()
        opened = open_study(self.folder / "study.yaml", create=True)
        return make_plan(opened.study, opened.store, opened.files)

    def run(self, answer=None, **options):
        """Run the study; return its record."""
        self.forget()
        opened, watcher = open_study(self.folder / "study.yaml", create=True), Watcher()
        report = run_study(
            opened.study,
            opened.store,
            opened.files,
            answer=answer,
            options=RunOptions(**options),
            observer=watcher,
        )
        self.lines, self.store = watcher.lines, opened.store
        failures = [failure["error"] for failure in report.record.failures]
        assert not failures, failures
        return report

    def executed(self, **options) -> dict[str, int]:
        """Run the study; return the numbers of nodes computed, of stages with any."""
        counts = self.run(**options).record.counts["executed"]
        return {stage: count for stage, count in counts.items() if count}

    def reads(self) -> dict[str, dict]:
        """Return what the live results stand on, by stage."""
        receipts = self.store.index().receipts.values()
        return {receipt.stage: receipt.reads for receipt in receipts}

    def causes(self) -> list[str]:
        return [
            r["cause"]
            for s in self.plan().as_json()["stages"].values()
            for r in s["reasons"]
        ]


def touch(path: Path) -> None:
    """Move a file's time alone."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))


def flip(path: Path) -> None:
    """Change one byte of a file, its size and time staying what they were."""
    data, stat = bytearray(path.read_bytes()), path.stat()
    place = max(i for i, byte in enumerate(data) if 48 <= byte < 57)
    data[place] += 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@contextmanager
def project(folder: Path):
    with (
        mock.patch.object(sys, "dont_write_bytecode", True),
        mock.patch.object(sys, "path", [*sys.path]),
    ):
        made = Project(folder)
        yield made
        made.forget()
        background.drop()


def reader(mine: Project, text: str, more: str = "") -> None:
    """Write a kind that takes its number from `read`, and another beside it."""
    mine.kinds(f"import os\n{HERE}\n{text}\n{ONE}{more}", **STAGES)
    mine.kinds(f"import os\n{HERE}\n{text}\n{ONE}{TWO}{more}", **STAGES)
