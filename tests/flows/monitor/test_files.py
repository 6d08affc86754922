"""A monitor's store survives kills, goes on, and is read by studies."""

import json
import signal
from copy import deepcopy

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import curvflow
from curvflow.errors import InputError, RequestError, StoreError
from curvflow.flows.monitor import files
from curvflow.stores.files import Disk
from tests.flows.monitor.loops import (
    FEW,
    LOSS,
    Loop,
    monitored,
    problem,
    run_and_die,
    small,
)
from tests.forkserver import running


def called(module, batch):
    return module(batch[0])


TIMES = ["seconds", "loop_seconds"]


def numbers(dataset):
    return dataset.drop_vars(TIMES)


@pytest.fixture(scope="module")
def whole():
    """Return what an undisturbed loop of 20 steps measures."""
    net = small()
    monitor = monitored(net)
    Loop(net).run(20, monitor)
    return numbers(monitor.to_xarray())


@pytest.mark.parametrize("stored", [True, False])
def test_a_loop_that_goes_on_from_a_checkpoint_measures_the_same(
    stored, whole, tmp_path
):
    store = {"store": tmp_path / "store"} if stored else {}
    net = small()
    monitor = monitored(net, **store)
    loop = Loop(net).run(12, monitor)
    kept = {"loop": loop.state(), "monitor": monitor.state_dict()}
    torch.save(kept, tmp_path / "kept.pt")
    loop.run(5, monitor)  # measures at step 15, and is killed
    state = torch.load(tmp_path / "kept.pt", weights_only=True)
    net = small(seed=9)
    monitor = monitored(net, **store)
    monitor.load_state_dict(state["monitor"])
    assert monitor.num_steps == 12
    Loop(net).load(state["loop"]).run(8, monitor)
    xr.testing.assert_identical(numbers(monitor.to_xarray()), whole)
    if stored:
        kept = curvflow.read_monitor(tmp_path / "store")
        xr.testing.assert_identical(numbers(kept), whole)


def test_a_store_alone_goes_on_from_its_last_measurement(whole, tmp_path):
    net = small()
    loop = Loop(net).run(10, monitored(net, store=tmp_path))
    again = monitored(net, store=tmp_path)
    assert again.num_steps == 10
    loop.run(10, again)
    xr.testing.assert_identical(numbers(again.to_xarray()), whole)


@pytest.mark.parametrize(("first", "steps"), [(6, 4), (8, 2), (10, 0)])
def test_a_loop_that_begins_again_earlier_gives_later_measurements_up(
    first, steps, tmp_path
):
    net = small()
    loop = Loop(net).run(15, monitored(net, store=tmp_path))
    again = monitored(net, store=tmp_path)
    weights = {}
    for step in range(first, 13):
        loop.run(1)
        weights[step] = nn.utils.parameters_to_vector(net.parameters()).detach()
        again.step(step=step)
    dataset = curvflow.read_monitor(tmp_path)
    assert dataset.step.values.tolist() == [5, 10]
    assert dataset.update_steps.values.tolist() == [5, steps]
    moved = (weights[10] - weights[10 - steps]).norm() / weights[10 - steps].norm()
    assert float(dataset.update_ratio[1]) == pytest.approx(float(moved))


def test_a_loop_that_begins_again_with_lost_weights_goes_on():
    net = small()
    monitor = monitored(net)
    loop = Loop(net).run(5, monitor)
    kept = deepcopy(loop.state())
    with torch.no_grad():
        net[0].bias.fill_(torch.nan)
    assert not monitor.step(step=3)
    loop.load(kept).run(2, monitor)
    row = monitor._records.rows[-1]
    assert (row["step"], row["outcome"], row["update_steps"]) == (5, "ok", 2)
    assert np.isnan(row["update_ratio"])
    assert np.isnan(row["layer_update_ratio"]).all()


def first_step(net, store, caplog, state=None, **where):
    """Return what a monitor on a store says at its first step, and the step."""
    monitor = monitored(net, store=store)
    if state is not None:
        monitor.load_state_dict(state)
    caplog.clear()
    monitor.step(**where)
    before = len(caplog.messages)
    monitor.step()
    assert len(caplog.messages) == before
    return caplog.messages, monitor.num_steps - 1


def test_a_loop_that_goes_on_elsewhere_is_told_once_what_its_steps_count_as(
    tmp_path, caplog
):
    net = small()
    loop = Loop(net).run(10, monitored(net, store=tmp_path))
    state = monitored(net, store=tmp_path).state_dict()
    assert first_step(net, tmp_path, caplog) == ([], 11)
    assert first_step(net, tmp_path, caplog, step=11) == ([], 11)
    loop.run(3)
    (message,), step = first_step(net, tmp_path, caplog)
    assert step == 11
    assert "expected the weights of step 10" in message
    assert "counts as 11. Pass step=" in message
    assert first_step(net, tmp_path, caplog, step=14) == ([], 14)
    assert first_step(net, tmp_path, caplog, state=state) == ([], 11)


def test_a_loop_that_begins_anew_on_a_store_is_told_what_it_replaces(tmp_path, caplog):
    net = small()
    Loop(net).run(15, monitored(net, store=tmp_path))
    (message,), _ = first_step(small(), tmp_path, caplog, step=7)
    assert "got 7; 2 measurements from there on will be replaced. Stop" in message
    assert "\n" not in message


def test_coefficients_that_a_loop_replaces_are_counted_too(
    tmp_path, caplog, monkeypatch
):
    settings = {"every": 50, "llc_at": [2, 4], "llc": FEW, "store": tmp_path}
    Loop(small()).run(4, monitored(small(), **settings))
    monitored(small(), **settings).step(step=1)
    (message,) = caplog.messages
    assert "expected a step behind 4, the last in" in message
    assert "got 1; 2 coefficients from there on will be replaced. Stop" in message
    # One that is not estimated yet, beside a measurement.
    (tmp_path / files.NUMBERS).unlink()
    monkeypatch.setattr(files.InLoop, "answers", lambda self, wait=False: iter(()))
    asked = monitored(small(), **settings)
    asked.step(step=3)
    asked._requests.add(2, asked._probes.snapshot())
    asked.measure()
    caplog.clear()
    monitored(small(), **settings).step(step=1)
    (message,) = caplog.messages
    assert "got 1; 1 measurement and 1 coefficient from there on" in message


def test_a_measurement_before_a_step_is_told_what_it_replaces(tmp_path, caplog):
    net = small()
    loop = Loop(net).run(10, monitored(net, store=tmp_path))
    again = monitored(net, store=tmp_path)
    again.measure()
    (message,) = caplog.messages
    assert "expected a step behind 10, the last in" in message
    assert "got none; its measurement is replaced by one at the same" in message
    again.measure()
    again.step()
    assert len(caplog.messages) == 1
    loop.run(3)
    elsewhere = monitored(net, store=tmp_path)
    caplog.clear()
    elsewhere.measure()
    (message,) = caplog.messages
    assert "expected the weights of step 10" in message
    assert "this measurement counts as that of step 10. Take a step" in message
    elsewhere.step(step=7)
    assert "got 7; 1 measurement from there on" in caplog.messages[1]
    caplog.clear()
    monitored(net, store=tmp_path / "new").measure()
    from_state = monitored(net, store=tmp_path)
    from_state.load_state_dict(again.state_dict())
    from_state.measure()
    assert not caplog.messages


def test_a_measurement_before_the_first_step_is_gone_on_from(tmp_path, caplog):
    net = small()
    monitor = monitored(net, store=tmp_path)
    row = monitor.measure()
    again = monitored(net, store=tmp_path)
    state, kept = again.state_dict(), monitor.state_dict()
    assert state["spent"] == row["seconds"] == state["last_seconds"]
    assert {*state["state"]} == {*kept["state"]} == {"weights", "vector", "critical_lr"}
    for name, value in kept["state"].items():
        assert torch.equal(state["state"][name], value)
    assert first_step(net, tmp_path, caplog) == ([], 1)
    (message,), step = first_step(small(1), tmp_path, caplog)
    assert step == 1
    assert "expected the weights of step 0" in message


def test_coefficients_without_a_measurement_are_gone_on_from(tmp_path, caplog):
    settings = {"every": 50, "llc_at": [3, 6], "llc": FEW, "store": tmp_path}
    loop = Loop(small()).run(4, monitored(small(), **settings))
    again = monitored(small(), **settings)
    assert again.num_steps == 3
    loop.run(3, again)
    assert again.to_xarray().llc_step.values.tolist() == [3, 6]
    assert "expected the weights of step 3" in caplog.text


@pytest.mark.parametrize("file", [files.NUMBERS, files.STATE])
def test_a_kill_while_writing_loses_the_measurement_in_flight(
    file, tmp_path, monkeypatch
):
    net = small()
    monitor = monitored(net, store=tmp_path)
    loop = Loop(net).run(10, monitor)
    before, rename = curvflow.read_monitor(tmp_path), Disk.rename

    def killed(self, source, target):
        if target.name == file:
            raise KeyboardInterrupt
        rename(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            loop.run(5, monitor)
    after = curvflow.read_monitor(tmp_path)
    xr.testing.assert_identical(after.isel(step=slice(2)), before)
    again = monitored(net, store=tmp_path)
    assert again.num_steps == (10 if file == files.NUMBERS else 15)
    assert again.measure()["outcome"] == "ok"


@pytest.mark.processes
def test_a_killed_process_leaves_a_store_to_go_on_with(whole, tmp_path):
    process = running().Process(target=run_and_die, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    dataset = numbers(curvflow.read_monitor(tmp_path))
    xr.testing.assert_allclose(dataset, whole.isel(step=slice(2)), rtol=1e-9)
    assert monitored(small(), store=tmp_path).num_steps == 10


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"probes": {"trace": {"num_probes": 9}}}, "num_probes 8 there and 9 here"),
        ({"seed": 1}, "seed 0 there and 1 here"),
        ({"params": ["2.*"]}, "parameters.0.weight 24 there and nothing here"),
        ({"loss": LOSS}, r"loss cross_entropy there and CrossEntropyLoss\(\) here"),
        ({"forward": called}, r"calls \[\] there and \['forward'\] here"),
        ({"llc": FEW | {"num_draws": 9}}, "llc.num_draws 10 there and 9 here"),
        # A text that reads like one that is not there.
        ({"llc": FEW | {"max_hold": 0.2}}, "llc.max_hold nothing there and 0.2 here"),
        ({"llc_at": [], "llc": {}}, "llc.calibrate none there and nothing here"),
    ],
)
def test_measurements_of_other_settings_are_not_gone_on_with(change, named, tmp_path):
    settings = {"llc_at": [50], "llc": FEW}
    monitored(small(), store=tmp_path, **settings).measure()
    state = monitored(small(), **settings).state_dict()
    changed = settings | change
    with pytest.raises(InputError, match=f"store: expected measurements .*{named}"):
        monitored(small(), store=tmp_path, **changed)
    with pytest.raises(InputError, match="store: expected measurements"):
        monitored(small(), **changed).load_state_dict(state)


def test_coefficients_behind_the_last_measurement_are_estimated_again(tmp_path):
    settings = {"llc_at": [3, 6, 8], "llc": FEW, "store": tmp_path}
    settings |= {"probes": ["update_ratio"]}
    loop = Loop(small()).run(5, monitored(small(), **settings))
    kept = deepcopy(loop.state())
    loop.run(4, monitored(small(), **settings))  # and is killed behind step 9
    before = curvflow.read_monitor(tmp_path)
    assert before.llc_step.values.tolist() == [3, 6, 8]
    net = small()
    again = monitored(net, **settings)
    assert again.num_steps == 5
    assert again.to_xarray().llc_step.values.tolist() == [3]
    Loop(net).load(kept).run(2, again)
    dataset = again.to_xarray()
    assert dataset.llc_step.values.tolist() == [3, 6]


def test_a_store_is_of_one_monitor(tmp_path, caplog):
    """Two that find it empty replace each other's numbers."""
    first, other = (monitored(small(seed), store=tmp_path) for seed in (0, 1))
    wider = monitored(small(), probes=["trace"], store=tmp_path)
    first.measure()
    with pytest.raises(InputError, match="store: expected measurements of the same"):
        wider.measure()
    assert not caplog.messages
    for _ in range(2):
        other.measure()
        first.measure()
    (message,) = caplog.messages
    assert "another of the same settings, which each replaces" in message


def test_a_store_stays_where_it_was_when_the_loop_changes_its_folder(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monitor = monitored(small(), store="watched")
    monitor.measure()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monitor.measure()
    assert not [*(tmp_path / "elsewhere").iterdir()]
    assert curvflow.read_monitor(tmp_path / "watched").equals(monitor.to_xarray())


@pytest.mark.parametrize(
    "whole", [int, float, np.int64, np.uint8, lambda n: torch.tensor(n), np.float32]
)
def test_whole_numbers_of_all_types_are_taken_and_kept(whole, tmp_path):
    settings = {"every": whole(2), "llc_at": [whole(3)], "llc": FEW, "budget": 1e-9}
    settings |= {"seed": whole(1), "probes": "update_ratio"}
    monitor = monitored(small(), **settings)
    for step in range(1, 6):
        monitor.step(step=whole(step))
    monitor.measure()
    monitor.step(step=whole(7))
    torch.save(monitor.state_dict(), tmp_path / "kept.pt")
    again = monitored(small(), **settings)
    again.load_state_dict(torch.load(tmp_path / "kept.pt", weights_only=True))
    assert again.num_steps == 7
    xr.testing.assert_equal(again.to_xarray(), monitor.to_xarray())
    assert again.to_xarray().llc_step.values.tolist() == [3]
    with pytest.raises(InputError, match=r"step: expected whole numbers, got 7\.5"):
        again.step(step=7.5)


def first_inputs(net, batch):
    return net(batch[0])


@pytest.mark.parametrize(
    "option",
    [
        {"num_draws": np.int64(10), "lr": np.float32(1e-4)},
        {"forward": first_inputs},
        {"forward": lambda net, batch: net(batch[0])},
        {"allow": {"dropout", "batch_norm"}},
        {"layers": ("0.*", "2.bias")},
        {"preconditioner": None},
    ],
)
def test_options_of_all_types_are_taken_and_known_again(option, tmp_path):
    net, llc = small(), FEW | option
    settings = {"llc_at": [2], "llc": llc, "probes": ["update_ratio"]}
    monitor = monitored(net, store=tmp_path, **settings)
    Loop(net).run(5, monitor)
    dataset = monitor.to_xarray()
    assert np.isfinite(dataset.llc_mean).all()
    again = monitored(net, store=tmp_path, **settings)
    again.load_state_dict(monitor.state_dict())
    xr.testing.assert_identical(again.to_xarray(), dataset)
    with pytest.raises(InputError, match="store: expected measurements of the same"):
        monitored(net, store=tmp_path, **settings | {"llc": llc | {"num_chains": 3}})


def test_factors_are_taken_as_an_option(tmp_path):
    net = small()
    factors = curvflow.kronecker(net, "cross_entropy", problem())
    llc = FEW | {"preconditioner": factors}
    monitor = monitored(net, store=tmp_path, llc_at=[1], llc=llc)
    monitor.step()
    expected = curvflow.llc(net, "cross_entropy", problem(), **llc)
    assert float(monitor.to_xarray().llc_mean[0]) == expected.llc_mean


def test_other_files_and_none_are_refused(tmp_path):
    with pytest.raises(StoreError, match=r"monitor\.npz: expected"):
        curvflow.read_monitor(tmp_path)
    (tmp_path / files.NUMBERS).write_bytes(b"PK no archive")
    with pytest.raises(StoreError, match=r"monitor\.npz: expected"):
        curvflow.read_monitor(tmp_path)
    with pytest.raises(RequestError, match=r"ends in \.npz, \.nc or \.zarr"):
        monitored(small()).save(tmp_path / "numbers.csv")


def test_a_study_draws_and_tabulates_what_was_measured(tmp_path):
    net = small()
    monitor = monitored(net, store=tmp_path / "watched", llc_at=[6], llc=FEW)
    Loop(net).run(20, monitor)
    monitor.save(tmp_path / "numbers.zarr")
    study = curvflow.Study(
        stages={
            "watched": {
                "use": "monitor.read",
                "path": str(tmp_path / "watched" / files.NUMBERS),
            },
            "curve": {
                "use": "figure.lines",
                "of": "watched",
                "y": "sharpness",
                "x": "step",
                "band": "none",
            },
        }
    )
    results = curvflow.run(study, store=tmp_path / "store")
    measured = monitor.to_xarray()
    read = results["watched"]
    assert read.step.values.tolist() == [5, 10, 15, 20]
    assert int(read.num_measurements) == 4
    for name in ("sharpness", "trace_sem", "layer_update_ratio", "llc_mean"):
        np.testing.assert_array_equal(read[name].values, measured[name].values)
    curve = results["curve"]
    np.testing.assert_array_equal(curve["mean"].values[0], measured.sharpness.values)
    with xr.open_zarr(tmp_path / "numbers.zarr") as stored:
        np.testing.assert_array_equal(stored.sharpness, measured.sharpness)
        assert json.loads(stored.attrs["probes"])["trace"]["num_probes"] == 8


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["converged"] * 3, "converged"),
        (["drifting", "converged", "converged"], "unconverged"),
        (["converged", "converged", "failed"], "unconverged"),
    ],
)
def test_coefficients_that_are_not_converged_are_marked(words, verdict, tmp_path):
    path = tmp_path / "watched.npz"
    monitor = monitored(small(), probes=["sharpness"])
    Loop(monitor._probes.module).run(5, monitor)
    monitor.save(path)
    estimates = {
        "llc_step": np.array([2, 3, 5]),
        "llc_mean": np.array([1.0, 2.0, 3.0]),
        "llc_sem": np.full(3, 0.5),
        "llc_verdict": np.array(words),
    }
    files.write(path, {**files.read(path), **estimates})
    figure = {"use": "figure.lines", "of": "watched", "x": "llc_step", "band": "none"}
    stages = {
        "watched": {"use": "monitor.read", "path": str(path)},
        "curve": {**figure, "y": "llc_mean"},
    }
    results = curvflow.run(curvflow.Study(stages=stages), store=tmp_path / "store")
    assert results.verdicts("watched") == {verdict: 1}
    is_marked = "hollow: 1 of 1" in str(results["curve"]["caption"].values)
    assert is_marked == (verdict == "unconverged")
