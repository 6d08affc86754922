"""Progress as lines: in logs of batch systems, and in files."""

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from curvflow.cli.text.progress_lines import EVERY, LogFile, ProgressLines, logged
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.run import run_study
from curvflow.schemas.options import RunOptions
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import opened, toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def planned(*overrides, store=None):
    study = opened(store or MemoryStore(), *overrides)
    return make_plan(study.study, study.store, study.files)


@pytest.fixture
def unstarted(monkeypatch):
    """Keep threads from starting: a test says itself when a minute is over."""
    monkeypatch.setattr(
        "curvflow.cli.text.progress_lines.Thread",
        lambda **_: SimpleNamespace(start=lambda: None),
    )


def test_a_line_a_minute_says_how_far_the_run_is(unstarted):
    clock, said = Clock(), []
    lines = ProgressLines(said.append, clock)
    lines.begin(planned())
    waits = []

    def ended(seconds):
        waits.append(seconds)
        clock.now += 600
        if len(waits) == 1:
            lines.tile_begins("fit")
            lines.stage_at("data", done=1, failed=0)
            lines.stage_at("fit", done=2, failed=1)
        return len(waits) == 3

    lines.tell_until(ended)
    assert waits == [EVERY] * 3
    # 1 data set, 6 trainings, 6 probes, 18 at all checkpoints, 2 means
    assert said[0] == "10 min: 3 of 33 nodes, 1 failed, at fit 2/6"
    assert said[1].startswith("20 min: 3 of 33 nodes")
    assert len(said) == 2


def test_a_stage_that_is_done_is_not_at_work(unstarted):
    lines = ProgressLines([].append, Clock())
    lines.begin(planned())
    for stage in ("data", "fit"):
        lines.tile_begins(stage)
    lines.stage_at("fit", done=6, failed=0)
    assert lines.text().endswith("at data 0/1")
    lines.stage_at("data", done=1, failed=0)
    assert "at " not in lines.text()


def test_time_left_is_said_where_all_of_it_is_known(unstarted):
    store, said = MemoryStore(), []
    study = opened(store)
    run_study(study.study, store, study.files, options=RunOptions(workers=1))
    plan = planned("axes.seed=9", store=store)
    lines = ProgressLines(said.append, Clock())
    lines.begin(plan)
    assert lines.text().endswith("left on one worker")
    lines._seconds = dict.fromkeys(lines._seconds, 2.0)
    left = plan.counts()["total"] - plan.counts()["cached"]
    assert lines._left() == 2.0 * left
    lines.stage_at("path", done=18, failed=3)
    assert lines._left() == 2.0 * (left - 3)
    unknown = ProgressLines(said.append, Clock())
    unknown.begin(planned())
    assert unknown._left() is None


def test_a_run_without_news_says_nothing(monkeypatch):
    monkeypatch.setattr("curvflow.cli.text.progress_lines.Thread", None)
    store = MemoryStore()
    study = opened(store)
    run_study(study.study, store, study.files, options=RunOptions(workers=1))
    ProgressLines([].append).begin(planned(store=store))


def test_the_thread_ends_with_the_run():
    lines = ProgressLines([].append)
    lines.begin(planned())
    lines.end()
    assert lines._ended.is_set()


def test_a_log_has_beginning_news_warnings_and_end(unstarted):
    clock, said = Clock(), []
    log = LogFile(said.append, clock)
    log.begin(planned())
    log.tell("waiting")
    log.warn("lost")
    clock.now = 40
    log.end()
    assert said == [
        "toys: 33 nodes, 0 done",
        "waiting",
        "warning: lost",
        "end after 40 s: 0 of 33 nodes",
    ]


STUDY = "study: one\nstages:\n  data: {use: data.xor}\n"


def test_the_command_keeps_a_log_and_appends_to_it(curvflow, tmp_path):
    study, log = tmp_path / "one.yaml", tmp_path / "one.log"
    study.write_text(STUDY)
    assert curvflow("run", study, "--log", log).code == 0
    assert curvflow("run", study, "--log", log).code == 0
    times = [line[:25] for line in log.read_text().splitlines()]
    assert all(re.fullmatch(r"[\d-]{10} [\d:]{8}[+-][\d:]{5}", time) for time in times)
    first, end, second, again = [line[26:] for line in log.read_text().splitlines()]
    assert (first, second) == ("one: 1 node, 0 done", "one: 1 node, 1 done")
    for line in (end, again):
        assert re.fullmatch(r"end after .+: 1 of 1 node", line)


def test_a_log_that_cannot_be_written_is_refused(curvflow, tmp_path):
    study = tmp_path / "one.yaml"
    study.write_text(STUDY)
    said = curvflow("run", study, "--log", tmp_path)
    assert said.code == 2
    assert "--log: expected a file that can be written" in " ".join(said.err.split())


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path, monkeypatch):
    said = []
    observer = SimpleNamespace(warn=said.append)
    path = tmp_path / "one.log"
    with logged(observer, path) as both:
        log = both._observers[1]
        log.tell("first")
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(Path, "open", mock.Mock(side_effect=full))
        log.tell("second")
        log.tell("third")
        monkeypatch.undo()
    assert [line[26:] for line in path.read_text().splitlines()] == ["first"]
    assert said == [f"{path}: the log ends here: No space left on device"]
