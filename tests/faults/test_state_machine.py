"""Any sequence of runs, edits, kills, damage and collections, against dictionaries."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from curvflow.errors import CorruptPayloadError
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.flows.upkeep.collect import collect
from curvflow.flows.upkeep.verify import verify
from curvflow.schemas import kinds
from curvflow.schemas.options import RunOptions
from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import PROBE, STUDY, opened

OTHER = STUDY.replace("study: toys", "study: others").replace(
    "scale: 3.0", "scale: 4.0"
)
TEXTS = {"toys": STUDY, "others": OTHER}
# A run that is cut short leaves its sign of life behind; no beat comes in between.
OPTIONS = RunOptions(silence=3600.0, workers=1)


class Killed(BaseException):
    """The process is no more."""


class Mortal(Disk):
    """Ends the process at one of its operations; the dead do nothing any more."""

    def __init__(self, left):
        self.left = left

    def __getattribute__(self, name):
        if name in vars(Disk) and not name.startswith("_"):
            self.left -= 1
            if self.left < 0:
                raise Killed
        return super().__getattribute__(name)

    def write(self, path, data):
        if self.left == 0:
            super().write(path, data[: len(data) // 2])
            raise Killed
        super().write(path, data)

    def flush(self, path):
        """Leave it to the system, which goes on, and save time."""


NEVER = 10**9
pytestmark = pytest.mark.slow


def versioned(version):
    """Declare the toy probe under a version."""
    probe = {"toy.probe": replace(PROBE, version=version)}
    return mock.patch.dict(kinds._added, probe)


@cache
def truth(name, version, overrides):
    """Return the digest of each node of a study, by key, as a clean run gives it."""
    store = MemoryStore()
    with versioned(version):
        o = opened(store, *overrides, text=TEXTS[name])
        report = run_study(o.study, o.store, o.files)
    assert report.record.failures == []
    return {node.key: node.receipt.digest for node in report.plan.graph}


class Engine(RuleBasedStateMachine):
    """One store, and what is known of it.

    Attributes:
        edits: of the studies, as they stand.
        truth: the digest that each key must have, whoever computes it.
        damaged: payloads that were spoilt and may not have been healed.
    """

    seeds = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)
    names = st.sampled_from(sorted(TEXTS))

    @initialize()
    def begin(self):
        # Hypothesis has no fixture per example; the folder goes with the machine.
        self.home = TemporaryDirectory()
        self.folder = Path(self.home.name) / "store"
        self.edits = {"axes.seed": [0, 1]}
        self.truth = {}
        self.damaged = set()
        self.version = 1

    def teardown(self):
        if hasattr(self, "home"):
            self.home.cleanup()

    @property
    def overrides(self):
        return tuple(f"{key}={value}" for key, value in sorted(self.edits.items()))

    def store(self, left=NEVER):
        return LocalStore(self.folder, disk=Mortal(left))

    def run(self, name, left=NEVER):
        """Run a study, and return which keys it had to give, and which it gave."""
        wanted = truth(name, self.version, self.overrides)
        self.truth |= wanted
        before = self.store().index()
        runs = len(before.runs)
        with versioned(self.version):
            o = opened(self.store(left), *self.overrides, text=TEXTS[name])
            run_study(o.study, o.store, o.files, options=OPTIONS)
        store = self.store()
        (record,) = store.index().runs[runs:]
        assert record.status == "done"
        notes = store.journal(record)
        given = {k for n in notes if n["event"] == "committed" for k in n["keys"]}
        return before, wanted, given

    @rule(name=names)
    def run_to_the_end(self, name):
        gone = self.gone()
        before, wanted, given = self.run(name)
        missing = wanted.keys() - before.receipts.keys()
        lost = {
            key
            for key in wanted.keys() & before.receipts.keys()
            if before.receipts[key].payload in self.damaged | gone
        }
        assert missing <= given <= missing | lost
        live = self.store().index().receipts
        assert {key: live[key].digest for key in wanted} == wanted
        with versioned(self.version):
            o = opened(self.store(), *self.overrides, text=TEXTS[name])
            assert make_plan(o.study, o.store, o.files).counts()["stale"] == 0
        self.damaged = {name for name in self.damaged if not self.is_sound(name)}

    @rule(name=names, left=st.integers(0, 120))
    def run_and_be_killed(self, name, left):
        try:
            self.run(name, left)
        except Killed:
            for path in self.folder.glob("runs/*.beat"):
                sign = json.loads(path.read_text() or "{}")
                path.write_text(json.dumps(sign | {"started": "gone"}))

    @rule(seeds=seeds)
    def edit_the_axis(self, seeds):
        self.edits["axes.seed"] = seeds

    @rule(rate=st.sampled_from([0.25, 0.5, 3.0]))
    def edit_a_label(self, rate):
        self.edits["axes.rule.slow.lr"] = rate

    @rule(scale=st.sampled_from([1.0, 2.0]))
    def edit_a_probe(self, scale):
        self.edits["stages.last.scale"] = scale

    @rule(version=st.integers(1, 2))
    def change_a_version(self, version):
        self.version = version

    @rule(data=st.data(), how=st.sampled_from(["delete", "tear", "flip"]))
    def corrupt(self, data, how):
        files = sorted(self.folder.glob("payloads/*/*"))
        if not files:
            return
        path = data.draw(st.sampled_from(files))
        content = bytearray(path.read_bytes())
        path.unlink()
        if how == "tear":
            path.write_bytes(content[:-30])
        elif how == "flip":
            for position in range(60, len(content), 97):
                content[position] ^= 0xFF
            path.write_bytes(content)
        self.damaged.add(path.name.partition(".")[0])

    @precondition(lambda self: self.folder.exists())
    @rule(keep_runs=st.integers(1, 2))
    def collect(self, keep_runs):
        collect(self.store(), keep_runs=keep_runs, grace=0.0)

    @precondition(lambda self: self.folder.exists())
    @rule(left=st.integers(0, 10))
    def collect_and_be_killed(self, left):
        with suppress(Killed):
            collect(self.store(left), keep_runs=1, grace=0.0)

    @precondition(lambda self: self.folder.exists())
    @rule()
    def verify(self):
        verdict = verify(self.store())
        assert {fault.payload for fault in verdict.faults} <= self.damaged
        assert verify(self.store()).is_well
        self.damaged.clear()

    def gone(self):
        """Return the payloads that collection has removed."""
        evicted = self.store().index().evicted
        return evicted - self.store().present(evicted)

    def is_sound(self, payload):
        store = self.store()
        live = store.index().receipts.values()
        try:
            store.verify_payload(
                payload, [one for one in live if one.payload == payload]
            )
        except CorruptPayloadError:
            return False
        return True

    @invariant()
    def every_live_receipt_is_true_and_its_payload_verifies(self):
        if not hasattr(self, "folder"):
            return
        store, gone = self.store(), self.gone()
        for key, receipt in store.index().receipts.items():
            assert receipt.digest == self.truth[key]
            if receipt.payload and receipt.payload not in self.damaged | gone:
                store.read(receipt, list(receipt.parts))

    @invariant()
    def no_key_is_live_twice(self):
        if not hasattr(self, "folder"):
            return
        live, evicted = {}, set()
        for path in sorted(self.folder.glob("commits/*.json")):
            entry = json.loads(path.read_text())
            evicted |= set(entry.get("payloads", ()))
            if entry["type"] == "receipts":
                rows = [entry["shared"] | row for row in entry["rows"]]
                for row in rows:
                    assert row["key"] not in live or live[row["key"]] in evicted
                    live[row["key"]] = row["payload"]
                evicted -= {row["payload"] for row in rows}
            if entry["type"] == "retired":
                for key in entry["keys"]:
                    if entry["payload"] in (None, live.get(key)):
                        live.pop(key, None)
        assert live.keys() == self.store().index().receipts.keys()


Engine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, derandomize=True
)
test_any_history_ends_in_the_results_of_an_undisturbed_one = Engine.TestCase
