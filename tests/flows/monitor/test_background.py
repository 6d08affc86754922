"""Learning coefficients of a loop that does not wait for them."""

import os
import pickle
import signal
import sys
from functools import partial

import pytest
import torch

import curvflow
from curvflow.errors import InputError
from curvflow.flows.monitor import background
from curvflow.flows.monitor import monitor as monitors
from tests.flows.monitor.loops import FEW, Loop, monitored, problem, small

SETTINGS = {
    "every": 2,
    "probes": ["update_ratio"],
    "llc_at": [2, 3],
    "llc": FEW,
    "llc_in": "process",
}
# What a process runs that knows the answer.
ANSWER = "import json; print(json.dumps({'llc_mean': 1.0, 'llc_sem': 0.5}))"


@pytest.mark.processes
def test_a_process_estimates_what_the_library_does_and_a_kill_loses_nothing(tmp_path):
    bare = Loop(small()).run(2)
    fit = curvflow.llc(bare.net, "cross_entropy", problem(), **FEW)
    bare.run(2)
    net, settings = small(), SETTINGS | {"llc_at": [2]}
    monitor = monitored(net, store=tmp_path, **settings)
    Loop(net).run(4, monitor)
    kept = bare.net.state_dict()
    assert all(torch.equal(kept[name], here) for name, here in net.state_dict().items())
    monitor._requests._stop()  # as when the loop is killed
    assert (tmp_path / "llc-2.npz").exists()
    # A program that goes on, as yet at other weights.
    again = monitored(small(1), store=tmp_path, **settings)
    again.wait()
    dataset = again.to_xarray()
    assert dataset.llc_step.values.tolist() == [2]
    assert float(dataset.llc_mean[0]) == pytest.approx(fit.llc_mean, rel=1e-9)
    assert dataset.llc_verdict.values.tolist() == [fit.verdict]
    assert not [*tmp_path.glob("llc-*")]


class Answered:
    """A process that has ended, with what it wrote."""

    returncode = 0

    def __init__(self, command, *, stdin, stdout, **others):
        del command, others
        self.given = pickle.loads(stdin.read())
        stdout.write(b'{"llc_mean": 1.0, "llc_sem": 0.5}')

    def poll(self):
        return self.returncode

    wait = kill = poll


class Crashed(Answered):
    returncode = 3


class AtWork(Answered):
    """A process that does not end."""

    def poll(self):
        return None

    wait = kill = poll


@pytest.mark.parametrize("process", [Answered, Crashed])
def test_answers_come_at_the_next_step_and_a_crash_is_a_failed_estimate(
    process, monkeypatch
):
    monkeypatch.setattr(background.subprocess, "Popen", process)
    monitor = monitored(small(), **SETTINGS)
    Loop(monitor._probes.module).run(4, monitor)
    dataset = monitor.to_xarray()
    assert dataset.llc_step.values.tolist() == [2, 3]
    if process is Answered:
        assert dataset.llc_mean.values.tolist() == [1.0, 1.0]
    else:
        assert dataset.llc_verdict.values.tolist() == ["failed"] * 2
        assert "exit code 3" in str(dataset.llc_reason[0].values)


@pytest.mark.processes
def test_what_a_signal_ends_is_estimated_when_all_are_waited_for(
    monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr(background, "PROGRAM", "import time; time.sleep(60)")
    monitor = monitored(small(), store=tmp_path, **SETTINGS)
    loop = Loop(monitor._probes.module).run(3, monitor)
    process = monitor._requests._running.process
    assert os.getpgid(process.pid) == process.pid  # not that of this program
    process.send_signal(signal.SIGTERM)
    process.wait()
    monkeypatch.setattr(background, "PROGRAM", ANSWER)
    loop.run(1, monitor)
    monitor._requests._running.process.wait()
    assert monitor.to_xarray().llc_step.values.tolist() == [3]
    assert "step 2: its process was ended by SIGTERM" in caplog.text
    assert (tmp_path / "llc-2.npz").exists()
    assert [*monitor.state_dict()["llc_weights"]] == [2]
    monitor.wait()
    dataset = monitor.to_xarray()
    assert dataset.llc_step.values.tolist() == [2, 3]
    assert dataset.llc_mean.values.tolist() == [1.0, 1.0]
    assert not [*tmp_path.glob("llc-*")]


@pytest.mark.processes
def test_files_of_the_folder_it_is_started_in_are_no_modules(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise ValueError('not the one meant')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(background, "PROGRAM", ANSWER)
    monitor = monitored(small(), **SETTINGS)
    Loop(monitor._probes.module).run(2, monitor)
    monitor.wait()
    assert monitor.to_xarray().llc_mean.values.tolist() == [1.0]


def test_requests_are_made_when_it_is_their_turn(monkeypatch):
    """For each of them holds all data."""
    given, ended, made = [], [], []

    class Long(Answered):
        def __init__(self, command, **files):
            super().__init__(command, **files)
            given.append(self.given)

        def poll(self):
            return 0 if ended else None

        wait = kill = poll

    def packed(request):
        made.append(request)
        return background.packed(request)

    monkeypatch.setattr(background.subprocess, "Popen", Long)
    monkeypatch.setattr(monitors, "packed", packed)
    net = small()
    monitor = monitored(net, **SETTINGS)
    loop = Loop(net).run(3, monitor)
    then = net[0].weight.detach().clone()
    loop.run(2, monitor)
    assert len(made) == 2  # the first was tried when the monitor was made
    ended.append(True)
    monitor.wait()
    assert len(made) == 3
    assert torch.equal(given[1].weights["0.weight"], then)


def test_what_a_loop_takes_again_is_not_started_when_it_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    settings = SETTINGS | {"llc_at": [3], "store": tmp_path}
    monitor = monitored(small(), **settings)
    Loop(monitor._probes.module).run(3, monitor)
    monkeypatch.setattr(background.subprocess, "Popen", None)
    assert monitored(small(), **settings).num_steps == 2
    assert not [*tmp_path.glob("llc-*")]


def left_before_the_first_measurement(store, monkeypatch):
    """Leave the weights of step 3 without any numbers, and return the settings."""
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    settings = SETTINGS | {"every": 50, "llc_at": [3], "store": store}
    monitor = monitored(small(), **settings)
    Loop(monitor._probes.module).run(4, monitor)
    assert [path.name for path in store.iterdir()] == ["llc-3.npz"]
    return settings


def test_weights_without_numbers_are_gone_on_from(monkeypatch, tmp_path):
    settings = left_before_the_first_measurement(tmp_path, monkeypatch)
    monkeypatch.setattr(background.subprocess, "Popen", Answered)
    again = monitored(small(), **settings)
    assert again.num_steps == 3
    again.wait()
    assert again.to_xarray().llc_step.values.tolist() == [3]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed 0 there and 1 here"),
        ({"llc": FEW | {"num_draws": 9}}, "llc.num_draws 10 there and 9 here"),
        ({"llc_at": [], "llc": {}}, "llc.calibrate none there and nothing here"),
        ({"llc_at": [6], "seed": 1}, "seed 0 there and 1 here"),
        ({"llc_in": "loop", "seed": 1}, "seed 0 there and 1 here"),
    ],
)
def test_weights_of_other_settings_are_not_taken_without_numbers(
    change, named, monkeypatch, tmp_path
):
    settings = left_before_the_first_measurement(tmp_path, monkeypatch)
    with pytest.raises(InputError, match=f"store: expected measurements .*{named}"):
        monitored(small(), **settings | change)
    assert (tmp_path / "llc-3.npz").exists()


@pytest.mark.parametrize("llc_in", ["loop", "process"])
def test_weights_of_steps_that_are_no_longer_named_are_given_up(
    llc_in, monkeypatch, tmp_path
):
    settings = left_before_the_first_measurement(tmp_path, monkeypatch)
    settings |= {"llc_at": [6], "llc_in": llc_in}
    again = monitored(small(1), **settings)
    assert again.num_steps == 0
    assert not again.state_dict()["llc_weights"]
    assert not [*tmp_path.glob("llc-*")]


def test_a_loop_that_waits_estimates_what_a_process_did_not(monkeypatch, tmp_path):
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    net = small()
    loop = Loop(net)
    monitor = monitored(net, store=tmp_path, **SETTINGS)
    loop.run(2, monitor)
    fit = curvflow.llc(net, "cross_entropy", problem(), **FEW)
    loop.run(2, monitor)
    state = monitor.state_dict()
    before = net[0].weight.detach().clone()
    settings = SETTINGS | {"llc_in": "loop"}
    from_state = monitored(net, **settings)
    from_state.load_state_dict(state)
    from_state.wait()
    for again in (from_state, monitored(net, store=tmp_path, **settings)):
        dataset = again.to_xarray()
        assert dataset.llc_step.values.tolist() == [2, 3]
        assert float(dataset.llc_mean[0]) == fit.llc_mean
        assert not again.state_dict()["llc_weights"]
    assert torch.equal(net[0].weight, before)
    assert not [*tmp_path.glob("llc-*")]


def test_weights_of_a_store_are_kept_in_a_checkpoint(monkeypatch, tmp_path):
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    monitor = monitored(small(), store=tmp_path, **SETTINGS)
    Loop(monitor._probes.module).run(2, monitor)
    again = monitored(small(), store=tmp_path, **SETTINGS)
    torch.save(again.state_dict(), tmp_path / "kept.pt")
    kept = torch.load(tmp_path / "kept.pt", weights_only=True)
    assert [*kept["llc_weights"]] == [2]


def test_steps_taken_again_are_estimated_again(monkeypatch, tmp_path):
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    monitor = monitored(small(), store=tmp_path, **SETTINGS)
    Loop(monitor._probes.module).run(3, monitor)
    assert [*monitor._requests.weights] == [2, 3]
    monitor.step(step=3)
    assert [*monitor._requests.weights] == [2, 3]
    monitor.step(step=1)
    assert not monitor._requests.weights
    assert not [*tmp_path.glob("llc-*")]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], [2, 3, 6]),
        ([2, 4, 6, 8], [2, 4, 6]),
        ([5, 10], [10]),  # what a loop begins behind is none of it
        ([1, 7, 7, 2, 9], [2, 9]),
        ([4, 5], []),
    ],
)
@pytest.mark.parametrize("stored", [True, False])
def test_steps_that_a_loop_passes_over_are_estimated_at_the_next(
    taken, expected, stored, monkeypatch, tmp_path
):
    monkeypatch.setattr(background.subprocess, "Popen", AtWork)
    settings = SETTINGS | {"llc_at": [2, 3, 6], "every": 50}
    kept = {"store": tmp_path} if stored else {}
    monitor = monitored(small(), **kept, **settings)
    for step in taken:
        monitor.step(step=step)
    assert [*monitor._requests.weights] == expected
    torch.save(monitor.state_dict(), tmp_path / "kept.pt")
    monkeypatch.setattr(background.subprocess, "Popen", Answered)
    for _ in range(2):  # what a store has is written anew
        again = monitored(small(), **kept, **settings)
    if not stored:
        again.load_state_dict(torch.load(tmp_path / "kept.pt", weights_only=True))
    again.wait()
    assert [row["llc_step"] for row in again._coefficients.rows] == expected


def test_a_checkpoint_keeps_what_is_answered_behind_it(monkeypatch):
    monkeypatch.setattr(background.subprocess, "Popen", Answered)
    monitor = monitored(small(), **SETTINGS)
    Loop(monitor._probes.module).run(3, monitor)
    state = monitor.state_dict()
    monitor.wait()
    assert [*state["llc_weights"]] == [3]


def test_a_checkpoint_asks_again_for_what_is_not_answered(monkeypatch):
    given = []

    class Second(Answered):
        def __init__(self, command, **files):
            super().__init__(command, **files)
            given.append(self.given.weights["0.weight"])

        def poll(self):
            return None if len(given) == 1 else 0

        wait = kill = poll

    monkeypatch.setattr(background.subprocess, "Popen", Second)
    net = small()
    monitor = monitored(net, **SETTINGS)
    Loop(net).run(4, monitor)
    again = monitored(small(1), **SETTINGS)
    again.load_state_dict(monitor.state_dict())
    assert torch.equal(given[0], given[1])
    assert not torch.equal(given[1], net[0].weight)
    assert again.to_xarray().llc_step.values.tolist() == [2, 3]


def test_what_no_process_can_be_given_is_refused_at_once():
    class Stubborn(torch.nn.Linear):
        def __reduce__(self):
            raise TypeError("not me")

    with pytest.raises(InputError, match=r"llc_in: expected a module, .* not me"):
        curvflow.Monitor(
            Stubborn(4, 3).double(), "cross_entropy", problem(), **SETTINGS
        )
    with pytest.raises(InputError, match="llc_in: expected loop or process"):
        monitored(small(), llc_in="thread")


class Scripted(torch.nn.Linear):
    """A module as a script would define it."""


def scripted(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets)


@pytest.mark.parametrize("name", ["Scripted", "scripted"])
def test_functions_of_a_script_are_taken_along_or_refused_at_once(name, monkeypatch):
    thing = globals()[name]
    monkeypatch.setattr(thing, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], name, thing, raising=False)
    net = Scripted(4, 3).double() if name == "Scripted" else small()
    loss = partial(scripted) if name == "scripted" else "cross_entropy"
    curvflow.Monitor(net, loss, problem(), **SETTINGS)
    monkeypatch.setattr(background, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=f"got {name} of a script. Install cloudpick"):
        curvflow.Monitor(net, loss, problem(), **SETTINGS)
