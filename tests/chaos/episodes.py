"""One episode: a random study, random actions on one store, and the verdict."""

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import curvflow.flows.upkeep.kept_payloads as kept_payloads
import curvflow.flows.upkeep.proposal as proposal
from curvflow.stores.base import Store
from curvflow.stores.open import open_store
from tests.chaos.children import Command, Fault, await_that
from tests.chaos.judge import differences, faults, leftovers, planned, traces, twins
from tests.chaos.studies import Study, draw_study

LAST_OPERATION = 200  # that a fault is drawn for; most runs have fewer
SILENCE = 1.0
KILLED = -signal.SIGKILL
ENDS = {
    "kill": {KILLED},
    "term": {143, -signal.SIGTERM},
    "interrupt": {130},
    "full": {1},
}


class ChaosError(Exception):
    """Something that must not happen."""


class Episode:
    """A study and a store that are disturbed.

    Attributes:
        seed: of all that is drawn.
        done: what was done, in order.
        tally: how often, by kind; and what came of it.
    """

    name = "folder"
    width = 2  # nodes in a tile at most

    def __init__(self, seed: int, folder: Path, services: "Services") -> None:
        self.seed, self.folder, self.services = seed, folder, services
        self.draw = random.Random(f"{self.name} {seed}")
        self.study: Study = draw_study(self.draw, folder / "study")
        self.done: list[str] = []
        self.tally: Counter[str] = Counter()
        self._commands: list[Command] = []

    @property
    def url(self) -> str:
        """The address of the store."""
        return str(self.folder / "store")

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the commands."""
        return {}

    def store(self) -> Store:
        """Return the store, opened anew."""
        return open_store(self.url, create=True)

    def actions(self) -> dict[Callable[[], None], int]:
        """Return what may be done, with its weight."""
        return {
            self.run: 2,
            self.run_two: 2,
            self.strike: 6,
            self.pause: 1,
            self.fill: 2,
            self.step_clock: 1,
            self.part_and_merge: 2,
            self.collect: 2,
            self.collect_beside: 2,
            self.verify: 1,
            self.edit: 4,
            self.damage: 2,
            self.tear: 1,
            self.redate: 1,
            self.break_or_mend: 1,
        }

    def perform(self, number: int) -> None:
        """Do so many random things, and judge what they have left."""
        actions = self.actions()
        acts = self.draw.choices(list(actions), list(actions.values()), k=number)
        try:
            for place, act in enumerate(acts):
                # What one draws may depend on the store, and must not move the next.
                self.draw = random.Random(f"{self.name} {self.seed} {place}")
                act()
            self.finish()
        finally:
            for command in self._commands:
                command.clear()

    def note(self, kind: str, about: str = "") -> None:
        """Write down what is done."""
        self.tally[kind] += 1
        self.done.append(f"{kind} {about}".strip())

    # Commands

    def calm(self, **more) -> Fault:
        """Return no fault."""
        return Fault(silence=SILENCE, width=self.width, **more)

    def start(self, *words: str, fault: Fault | None = None) -> Command:
        """Start a command on the store."""
        given = [*words, "--store", self.url]
        env = self.environment
        fault = fault or self.calm()
        command = Command(self.study.folder, *given, fault=fault, env=env)
        self._commands.append(command)
        return command

    def start_run(self, fault: Fault | None = None, *more: str) -> Command:
        """Start `curvflow run` of the study as it stands."""
        where = ("--device", "cpu", "--workers", "1", *more)
        words = ("run", "study.yaml", *where, *self.study.words())
        return self.start(*words, fault=fault)

    def end(self, command: Command, *allowed: int) -> int:
        """Wait for a command's end, which must be one of those allowed."""
        code = command.ended()
        said, words = command.said, " ".join(command.words)
        if "Traceback" in said:
            raise ChaosError(f"{words}: a traceback\n{said[-3000:]}")
        if code not in allowed:
            raise ChaosError(f"{words}: exit code {code}\n{said[-3000:]}")
        if command.fault.act in ENDS and code in ENDS[command.fault.act]:
            self.tally[f"ended by {command.fault.act}"] += 1
        self.tally["commands"] += 1
        return code

    @property
    def good(self) -> tuple[int, ...]:
        """Exit codes of a run that nothing ends early."""
        return (0, 1) if self.study.broken.exists() else (0,)

    def _fault(self, act: str, at: int = 0, **more) -> Fault:
        at = at or 1 + int(LAST_OPERATION * self.draw.random() ** 2)
        return self.calm(act=act, at=at, **more)

    # Actions

    def run(self) -> None:
        """Run to the end."""
        self.note("run")
        self.end(self.start_run(), *self.good)

    def run_two(self) -> None:
        """Run twice at once, on one machine or on two."""
        hosts = self.draw.choice([("", ""), ("north", "south")])
        self.note("two runs", "elsewhere" if hosts[0] else "")
        days = self.draw.choice([0.0, 3.0])
        runs = [self.start_run(self.calm(host=host, days=days)) for host in hosts]
        for run in runs:
            self.end(run, *self.good)

    def strike(self) -> None:
        """Kill a run, or ask it to end, at one of its operations."""
        fault = self._fault(
            self.draw.choice(["kill", "kill", "kill", "term", "interrupt"]),
            host=self.draw.choice(["", "", "north"]),
        )
        self.note(fault.act, f"at {fault.at} {fault.host}")
        run = self.start_run(fault)
        if self.draw.random() < 0.3:
            self.note("two runs", "beside it")
            self.end(self.start_run(), *self.good)
        self.end(run, *ENDS[fault.act], *self.good)

    def pause(self) -> None:
        """Stop a run for longer than its claims last, while another one goes on."""
        fault = self._fault("pause", self.draw.randint(20, 100))
        self.note("pause", f"at {fault.at}")
        run = self.start_run(fault)
        await_that(lambda: run.is_paused() or run.code is not None)
        other = self.start_run()
        self.end(other, *self.good)
        run.send(signal.SIGCONT)
        self.end(run, *self.good)

    def fill(self) -> None:
        """Run on a disk that is full from one operation on."""
        fault = self._fault("full")
        self.note("full disk", f"at {fault.at}")
        self.end(self.start_run(fault), *ENDS["full"], *self.good)

    def step_clock(self) -> None:
        """Run while the clock is stepped by days."""
        days = self.draw.choice([1.0, 400.0, 20000.0])
        self.note("clock", f"{days:.0f} days")
        self.end(self.start_run(self.calm(days=days)), *self.good)

    def part_and_merge(self) -> None:
        """Let two copies go on apart, where clocks differ, and merge them."""
        wins = self.draw.choice(["source", "target", "newer"])
        self.note("merge", f"{wins} wins")
        here, there = self.folder / "store", self.folder / "apart"
        shutil.rmtree(there, ignore_errors=True)
        if here.exists() and self.draw.random() < 0.6:
            shutil.copytree(here, there)
        self.end(self.start_run(self._elsewhere("north")), *self.good)
        self.edit()
        where = ("--device", "cpu", "--workers", "1", "--store", str(there))
        words = ("run", "study.yaml", *where, *self.study.words())
        fault = self._elsewhere("south")
        other = Command(self.study.folder, *words, fault=fault)
        self._commands.append(other)
        self.end(other, *self.good)
        merge(there, here, wins)
        self.tally["merges told"] += bool(self.store().collided_entries())

    def _elsewhere(self, host: str) -> Fault:
        days = self.draw.choice([0.0, 3.0])
        return self.calm(host=host, days=days)

    def collect(self) -> None:
        """Collect, perhaps killed."""
        self.end(self._start_collection(), 0, 1, KILLED)

    def collect_beside(self) -> None:
        """Collect and verify while a run is at work."""
        run = self.start_run()
        self.note("run", "beside which")
        collection = self._start_collection()
        self.note("verify", "beside it")
        verification = self.start("verify")
        self.end(collection, 0, 1, KILLED)
        self.end(verification, 0, 1)
        self.end(run, *self.good)

    def _start_collection(self) -> Command:
        kinds = {receipt.kind for receipt in self.store().index().rows.values()}
        drop = "train" in kinds and self.draw.random() < 0.5
        words = ["--keep-runs", str(self.draw.randint(0, 2)), "--grace-minutes", "1"]
        words += ["--drop", "train"] if drop else []
        fault = self.calm()
        if self.draw.random() < 0.3:
            fault = self._fault("kill", self.draw.randint(1, 20))
        self.note("gc", f"{' '.join(words)} {fault.act} {fault.at or ''}")
        return self.start("gc", "--yes", *words, fault=fault)

    def verify(self) -> None:
        """Verify, and mend what is damaged."""
        self.note("verify")
        self.store()  # one that is not there is refused
        self.end(self.start("verify"), 0, 1)

    def edit(self) -> None:
        """Change the study, or change it back."""
        self.note("edit", self.study.edit(self.draw))

    def damage(self) -> None:
        """Flip, cut or remove a payload."""
        self._spoil("payloads/*/*", self.draw.choice(["flip", "cut", "remove"]))

    def tear(self) -> None:
        """Cut an entry of the log."""
        self._spoil("commits/*.json", "cut")

    def _spoil(self, pattern: str, how: str) -> None:
        paths = sorted((self.folder / "store").glob(pattern))
        if not paths:
            return
        path = paths[self.draw.randrange(len(paths))]
        self.note(how, path.parent.parent.name if how == "flip" else path.parent.name)
        content = bytearray(path.read_bytes())
        path.unlink()
        if how == "cut":
            path.write_bytes(content[: self.draw.randrange(len(content))])
        elif how == "flip":
            content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
            path.write_bytes(content)

    def redate(self) -> None:
        """Move the dates of all files by a day, either way."""
        self.note("dates")
        for path in sorted((self.folder / "store").rglob("*")):
            moment = time.time() + self.draw.choice([-86400, 86400])
            os.utime(path, (moment, moment))

    def break_or_mend(self) -> None:
        """Let a node fail from now on, or no more."""
        broken = self.study.broken
        self.note("mend" if broken.exists() else "break")
        broken.unlink() if broken.exists() else broken.touch()

    # The end

    def finish(self) -> None:
        """Run undisturbed to the end, and compare with a clean store."""
        self.study.broken.unlink(missing_ok=True)
        self.store()
        self.end(self.start("verify"), 0, 1)
        self.end(self.start_run(), 0)
        self.revive()
        self.done_twice()
        clean = self.clean()
        store = self.store()
        wanted = planned(self.study, clean)
        lines = differences(store, clean, wanted) + faults(store)
        with (
            mock.patch.object(proposal, "LEAST_GRACE", 0.0),
            mock.patch.object(kept_payloads, "SILENCE", 0.0),
        ):
            lines += leftovers(store)
        lines += self.look_around()
        self.tally["nodes"] += len(store.index().rows)
        self.tally["arrays"] += sum(
            len(r.parts) for r in store.index().receipts.values()
        )
        if lines:
            raise ChaosError("\n".join(lines))

    def done_twice(self) -> None:
        """Run once more, which must compute nothing."""
        again = self.start_run(self.calm(), "--json")
        self.end(again, 0)
        answer = json.loads(again.said[again.said.index("{") :])
        if any(answer["executed"].values()):
            raise ChaosError(f"a second run computes again: {answer['executed']}")

    def revive(self) -> None:
        """Have the arrays computed again that a collection has removed."""
        index = self.store().index()
        stages = {
            receipt.stage
            for receipt in index.receipts.values()
            if receipt.payload in index.evicted
        }
        for _ in range(2):
            words = [word for stage in sorted(stages) for word in ("--revive", stage)]
            if words:
                self.end(self.start_run(self.calm(), *words), 0)

    def look_around(self) -> list[str]:
        """Return what else is wrong in the store's folder."""
        store = self.store()
        names = [str(self.folder), str(Path.cwd())]
        return twins(store) + list(traces(Path(self.url), names))

    def clean(self) -> Store:
        """Return a store in which all ran undisturbed that was tried, in order."""
        folder = self.folder / "clean"
        for overrides in self.study.tried:
            words = [word for edit in overrides for word in ("--set", edit)]
            where = ("--device", "cpu", "--workers", "1", "--store", str(folder))
            given = ("run", "study.yaml", *where, *words)
            run = Command(self.study.folder, *given, fault=self.calm())
            self._commands.append(run)
            self.end(run, 0)
        return open_store(str(folder), create=False)


def merge(source: Path, target: Path, wins: str) -> None:
    """Copy a tree over another, as rsync does.

    Args:
        source: of the copy.
        target: of the copy.
        wins: which file stays of two: the source's as with `-a`, the target's as with
            `--ignore-existing`, or the newer one as with `--update`.
    """
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        if path.is_dir():
            there.mkdir(parents=True, exist_ok=True)
        elif not there.exists() or _wins(wins, path, there):
            shutil.copy2(path, there)


def _wins(wins: str, source: Path, target: Path) -> bool:
    if wins == "newer":
        return source.stat().st_mtime > target.stat().st_mtime
    return wins == "source"


class Services:
    """Servers that episodes share, each started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._stack = folder, ExitStack()
        self._bucket = self._prefect = None

    def __enter__(self) -> "Services":
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def bucket(self):
        """Return a server that answers as S3 does, and fails when told to."""
        if self._bucket is None:
            from tests.stores.server import serving

            self._bucket = self._stack.enter_context(serving())
            known = mock.patch.dict(os.environ, self._bucket.environment())
            self._stack.enter_context(known)
        return self._bucket

    def prefect(self):
        """Return a Prefect server, and by which commands are forked."""
        if self._prefect is None:
            from tests.deployed.server import serving
            from tests.deployed.warm import warmed

            server = self._stack.enter_context(serving(self.folder / "prefect"))
            self._stack.enter_context(warmed(server.warm, server.environment))
            self._prefect = server
        return self._prefect
