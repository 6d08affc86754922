"""Processes to be stopped, paused and killed; torch is loaded once for all of them."""

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import curvflow.flows.graph.tiles as tiles
import curvflow.flows.run.compute as snapshots
from curvflow.cli.app import main
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store
from curvflow.stores.local import LocalStore
from curvflow.tasks.registry import computes
from tests import forkserver
from tests.flows import toys

# Against tests that hang, not a measure of anything.
PATIENCE = 120


def start(target, *arguments):
    """Run a function of a module in a process of its own."""
    process = forkserver.running().Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def ended(process):
    """Wait for a process and return its exit code; minus the signal that killed it."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def until(condition):
    """Wait until a condition holds."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience, "it never came"
        time.sleep(0.01)


def curvflow(folder, output, *arguments, terminal=None, every=snapshots.KEEP_EVERY):
    """Be the command line in a folder, with what it says in a file.

    Args:
        folder: to be in.
        output: path of what it says.
        arguments: of the command line.
        terminal: path of a terminal to be controlled by, and to say all to.
        every: seconds between two states that a tile keeps.
    """
    os.chdir(folder)
    if terminal is None:
        said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    else:
        os.setsid()
        said = os.open(terminal, os.O_RDWR)
        os.dup2(said, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    _keep_every(every)
    sys.argv = ["curvflow", *arguments]
    main()


def study(path, *overrides, every=snapshots.KEEP_EVERY, silence=60.0):
    """Run a study file with its own kinds."""
    _keep_every(every)
    opened = open_study(path, overrides=overrides, create=True)
    options = RunOptions(silence=silence, workers=1)
    report = run_study(opened.study, opened.store, opened.files, options=options)
    assert report.record.failures == []


def _keep_every(seconds):
    snapshots.Snapshots.__init__.__kwdefaults__["every"] = seconds


def toy(folder, *overrides, lots=0, silence=60.0, hold=None):
    """Run the toy study in small tiles, now and then asleep.

    Args:
        folder: of the store.
        overrides: of the study.
        lots: seed of the times asleep.
        silence: see `RunOptions`.
        hold: path; the first tile makes it and goes on when it is gone.
    """
    draw = random.Random(lots)
    tiles.MAX_WIDTH = 2

    def sleepy(members, machine):
        if hold is not None and not Path(hold).with_suffix(".held").exists():
            Path(hold).with_suffix(".held").touch()
            Path(hold).touch()
            until(lambda: not Path(hold).exists())
        time.sleep(draw.uniform(0, 0.02))
        return toys._fit(members, machine)

    with toys.toy_kinds():
        computes("toy.fit")(sleepy)
        time.sleep(draw.uniform(0, 0.1))
        opened = toys.opened(LocalStore(folder), *overrides)
        options = RunOptions(silence=silence, workers=1)
        report = run_study(opened.study, opened.store, opened.files, options=options)
    assert report.record.failures == []


def begun(store: Store) -> Counter[str]:
    """Count how often a tile with a node in it was begun, by action key."""
    notes = (note for run in store.index().runs for note in store.journal(run))
    return Counter(k for n in notes if n["event"] == "begins" for k in n["keys"])


def committed(store: Store) -> Counter[str]:
    """Count how often each action key was committed."""
    return Counter(receipt.key for receipt in store.index().rows.values())


def digests(store: Store) -> dict[str, str]:
    """Return the digest of each live result, by action key."""
    return {key: one.digest for key, one in store.index().receipts.items()}
