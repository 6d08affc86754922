"""A monitor measures what the probes measure, and training does not notice it."""

import random
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.errors import InputError, RequestError
from curvflow.flows.monitor import monitor as monitor_module
from tests.flows.monitor.loops import FEW, LOSS, Loop, monitored, problem, small


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Take one thread: sums of several are other sums, and other last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def eventful():
    """Return a net that draws at random and keeps statistics while it is trained."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3)
    )


def streams():
    return (
        torch.random.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
    )


def test_training_with_a_monitor_has_the_bits_of_training_without():
    bare = Loop(eventful()).run(15).net.state_dict()
    x, y = problem()
    net = eventful()
    monitor = curvflow.Monitor(net, LOSS, (x.float(), y), every=4, budget=None)
    watched = Loop(net).run(15, monitor).net.state_dict()
    assert len(monitor.to_xarray().step) == 3
    assert all(torch.equal(bare[name], watched[name]) for name in bare)


def test_a_measurement_leaves_everything_as_it_was():
    net = eventful()
    net[0].requires_grad_(False)
    net[1].eval()
    x, y = problem()
    monitor = curvflow.Monitor(net, LOSS, (x.float(), y))
    LOSS(net(x.float()), y).backward()
    modes = [layer.training for layer in net.modules()]
    slopes = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    buffers = {name: b.clone() for name, b in net.named_buffers()}
    before = streams()
    with torch.no_grad():
        monitor.measure()
    assert streams() == before
    assert [layer.training for layer in net.modules()] == modes
    assert [p.requires_grad for p in net.parameters()][:2] == [False, False]
    assert all(torch.equal(buffers[name], b) for name, b in net.named_buffers())
    for parameter, slope in zip(net.parameters(), slopes, strict=True):
        assert (parameter.grad is None) == (slope is None)
        assert slope is None or torch.equal(parameter.grad, slope)


def test_a_loader_is_read_once_and_its_generator_put_back():
    draw = torch.Generator().manual_seed(3)
    x, y = problem()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, generator=draw)
    net, state = small(), draw.get_state()
    before = streams()
    settings = {"probes": ["noise_scale"], "num_batches": 3}
    monitor = curvflow.Monitor(net, "cross_entropy", loader, **settings)
    assert streams() == before
    assert torch.equal(draw.get_state(), state)
    population = monitor._identity["probes"]["noise_scale"]["population"]
    assert population == len(x)  # of which 24 were read
    first, second = monitor.measure(), monitor.measure()
    assert first["noise_scale"] == second["noise_scale"]


def test_a_loader_that_overwrites_its_batches_is_refused():
    x, y = problem()
    row, label = x[:8].clone(), y[:8].clone()

    def batches(*, as_copies):
        for start in range(0, len(x), 8):
            row.copy_(x[start : start + 8])
            label.copy_(y[start : start + 8])
            yield (row.clone(), label.clone()) if as_copies else (row, label)

    with pytest.raises(InputError, match="overwritten by the next"):
        curvflow.Monitor(small(), "cross_entropy", batches(as_copies=False))
    given = curvflow.Monitor(small(), "cross_entropy", batches(as_copies=True))
    assert given.measure()["loss"] == pytest.approx(
        monitored(small()).measure()["loss"]
    )


@pytest.mark.parametrize("which", [0, 1])
def test_data_that_the_loop_changes_are_not_measured_as_if_they_were_the_same(which):
    data, net = [part.clone() for part in problem()], small()
    monitor = curvflow.Monitor(net, "cross_entropy", tuple(data), llc_at=[1], llc=FEW)
    kept, expected = data[which].clone(), monitor.measure()
    data[which].copy_(kept.flip(0))
    row = monitor.measure()
    assert row["outcome"] == "failed"
    assert "data: expected tensors as they were" in row["reason"]
    assert "sharpness" not in row
    monitor.step()
    assert "changed in place" in str(monitor.to_xarray().llc_reason.values[0])
    data[which].copy_(kept)
    row = monitor.measure()
    assert (row["outcome"], row["trace"]) == ("ok", expected["trace"])


def test_the_first_numbers_have_the_bits_of_the_library():
    net = small()
    row = monitored(net, seed=4).measure()
    H = curvflow.hessian(
        net.eval(), "cross_entropy", problem(), order="reverse_over_reverse"
    )
    top = H.eigenvalues(1, which="LA", block=2, tol=1e-2, seed=4)
    assert row["sharpness"] == top.value[0]
    assert row["sharpness_residual"] == top.residuals[0]
    assert row["sharpness_matvecs"] == top.num_matvecs
    trace = H.trace(8, seed=4)
    assert (row["trace"], row["trace_sem"]) == (trace.value, trace.sem)


def test_numbers_equal_those_of_the_probes_of_a_study():
    study = curvflow.Study(
        stages={
            "data": {"use": "data.digits", "num_train": 40, "seed": 1},
            "fit": {
                "use": "train",
                "data": "data",
                "model": {"kind": "mlp", "hidden": [4], "activation": "tanh"},
                "rule": {"rule": "sgd", "lr": 1.0},
                "epochs": 2,
                "keep_preconditioner": True,
            },
            "sharpness": {"use": "probe.sharpness", "weights": "fit", "tol": 1e-10},
            "trace": {"use": "probe.trace", "weights": "fit", "num_probes": 8},
            "noise": {"use": "probe.gradient_variance", "weights": "fit"},
        }
    )
    results = curvflow.run(study, store="memory:")
    data, weights = results["data"], results["fit"]["weights"].values.ravel()
    net = nn.Sequential(nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10)).double()
    nn.utils.vector_to_parameters(torch.as_tensor(weights), net.parameters())
    x, y = (torch.as_tensor(data[name].values) for name in ("inputs", "targets"))
    batch = x.double(), y.long()
    probes = {
        "sharpness": {"tol": 1e-10},
        "trace": {},
        "noise_scale": {"num_batches": 40},
        "critical_sharpness": {"tol": 0.01},
    }
    row = curvflow.Monitor(net, "cross_entropy", batch, probes=probes).measure()
    sharp, noise = results["sharpness"], results["noise"]
    expected = {
        "sharpness": sharp.sharpness,
        "critical_lr": sharp.critical_lr,
        "critical_sharpness": sharp.critical_sharpness,
        "trace": results["trace"].trace,
        "trace_sem": results["trace"].trace_sem,
        "noise_scale": noise.noise_scale,
        "gradient_variance": noise.gradient_variance,
        "gradient_squared_norm": noise.gradient_squared_norm,
    }
    for name, value in expected.items():
        assert row[name] == pytest.approx(float(value), rel=1e-9), name
    assert row["noise_scale_sem"] == 0


def largest(net):
    x, y = problem()

    def loss(vector):
        named, first = {}, 0
        for name, parameter in net.named_parameters():
            part = vector[first : first + parameter.numel()]
            named[name], first = part.view(parameter.shape), first + parameter.numel()
        return LOSS(torch.func.functional_call(net, named, (x,)), y)

    vector = torch.cat([p.detach().flatten() for p in net.parameters()])
    H_DD = torch.func.hessian(loss)(vector)
    return float(torch.linalg.eigvalsh(H_DD)[-1])


def test_a_warm_start_finds_the_dense_sharpness_in_fewer_products():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 3)).double()
    loop, monitor = Loop(net), monitored(net, probes=["sharpness"])
    warm, anew = 0, 0
    for _ in range(5):
        row = monitor.measure()
        assert row["sharpness_converged"]
        off = abs(row["sharpness"] - largest(net))
        assert off <= row["sharpness_residual"] <= 1e-2 * row["sharpness"]
        warm += row["sharpness_matvecs"]
        fresh = monitored(net, probes=["sharpness"]).measure()
        anew += fresh["sharpness_matvecs"]
        loop.run(1)
    assert warm < 0.8 * anew


def test_the_noise_scale_is_that_of_gradients_of_single_samples():
    net, (x, y) = small(), problem()
    slopes = []
    for sample in range(len(x)):
        net.zero_grad()
        LOSS(net(x[sample : sample + 1]), y[sample : sample + 1]).backward()
        slopes.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    slopes_ND = torch.stack(slopes)
    variance = float(slopes_ND.var(dim=0).sum())
    whole = float(slopes_ND.mean(0).square().sum())
    alone = {"num_batches": 100}
    row = monitored(net, probes={"noise_scale": alone}).measure()
    assert row["gradient_variance"] == pytest.approx(variance, rel=1e-10)
    assert row["noise_scale"] == pytest.approx(variance / whole, rel=1e-10)
    assert row["noise_scale_sem"] == row["gradient_variance_sem"] == 0
    alone["population"] = 60
    row = monitored(net, probes={"noise_scale": alone}).measure()
    squared = whole - (1 / 48 - 1 / 60) * variance
    assert row["noise_scale"] == pytest.approx(variance / squared, rel=1e-10)
    # Of seven unequal parts by many seeds: no bias, and errors that are as stated.
    assert row["noise_scale_sem"] > 0  # of 48 samples of 60
    expected = {"gradient_variance": variance, "noise_scale": variance / whole}
    probes = {"noise_scale": {"num_batches": 7}}
    rows = [monitored(net, probes=probes, seed=seed).measure() for seed in range(24)]
    for name, value in expected.items():
        found = np.array([row[name] for row in rows])
        errors = np.array([row[f"{name}_sem"] for row in rows])
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert abs(found.mean() - value) < 5 * error
        assert 0.5 < np.sqrt(np.mean(errors**2)) / found.std(ddof=1) < 2
    assert all(row["gradient_squared_norm_sem"] == 0 for row in rows)


def test_a_search_that_ends_early_says_so():
    net = small()
    probes = {
        "sharpness": {"tol": 1e-12, "max_iterations": 1, "block": 1},
        "critical_sharpness": {"max_passes": 1},
    }
    monitor = monitored(net, probes=probes)
    row = monitor.measure()
    assert not row["sharpness_converged"]
    off = abs(row["sharpness"] - largest(net))
    assert 1e-12 * row["sharpness"] < off
    assert not row["critical_converged"]
    assert np.isnan(row["critical_lr"])
    # The next one begins where this one began, and not where it ended.
    assert monitor._probes.state.critical_lr is None
    dataset = monitor.to_xarray()
    for name in ("sharpness_converged", "critical_converged"):
        assert dataset[name].values.tolist() == [False]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_critical_rate_of_a_quadratic_is_that_of_its_rayleigh_quotient(seed):
    torch.manual_seed(seed)
    x, net = torch.randn(20, 3).double(), nn.Linear(3, 1, bias=False).double()
    y = torch.randn(20, 1).double()
    H_DD = 2 * x.T @ x / 20
    g_D = H_DD @ net.weight.detach()[0] - 2 * (x * y).mean(0)
    expected = float(g_D @ H_DD @ g_D / (g_D @ g_D))
    probes = {"critical_sharpness": {"tol": 0.01, "start": 3.0**seed}}
    row = curvflow.Monitor(net, "sse", (x, y), probes=probes).measure()
    assert row["critical_converged"]
    assert row["critical_sharpness"] == pytest.approx(expected, rel=0.01)
    assert row["critical_passes"] < 20


def test_update_ratios_are_those_of_the_weights_moved():
    net = small()
    with torch.no_grad():
        net[0].bias.zero_()
    before = [p.detach().clone() for p in net.parameters()]
    monitor = monitored(net, probes=["update_ratio"])
    Loop(net).run(5, monitor)
    dataset = monitor.to_xarray()
    assert dataset.layer.values.tolist() == ["0.weight", "0.bias", "2.weight", "2.bias"]
    after = [p.detach() for p in net.parameters()]
    moved = [float((a - b).norm()) for a, b in zip(after, before, strict=True)]
    sizes = [float(b.norm()) for b in before]
    ratios = dataset.layer_update_ratio.values[0]
    assert np.isnan(ratios[1])
    for number in (0, 2, 3):
        assert ratios[number] == pytest.approx(moved[number] / sizes[number])
    whole = np.linalg.norm(moved) / np.linalg.norm(sizes)
    assert float(dataset.update_ratio[0]) == pytest.approx(whole)
    assert int(dataset.update_steps[0]) == 5


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def take_time(monitor, clock, cost, monkeypatch):
    def passing(seconds, compute):
        def timed():
            clock.now += seconds
            return compute()

        return timed

    # A first measurement is expected to take as long as eight gradients.
    for name, seconds in {"measure": cost, "pilot": cost / 8}.items():
        timed = passing(seconds, getattr(monitor._probes, name))
        monkeypatch.setattr(monitor._probes, name, timed)


def drawn_loop(seed, monkeypatch, *, looks_at_all):
    """Return what a monitor measured and counted in a loop of drawn steps."""
    draw, clock = random.Random(seed), Clock()
    monkeypatch.setattr(monitor_module, "perf_counter", clock)
    every, budget = draw.randint(1, 12), draw.choice([None, 0.1, 0.5])
    named = draw.sample(range(1, 300), draw.choice([0, 0, 3]))
    settings = {"probes": ["update_ratio"], "every": every, "budget": budget}
    monitor = monitored(small(), llc_at=named, **settings)
    take_time(monitor, clock, draw.choice([0.02, 0.3, 2.0]), monkeypatch)
    monkeypatch.setattr(monitor._probes, "coefficient", lambda _: {"llc_mean": 1.0})
    if looks_at_all:
        monkeypatch.setattr(monitor, "_is_quiet", lambda: False)
    seen = []
    for _ in range(300):
        clock.now += draw.choice([0.5, 1.0, 4.0])
        match draw.randint(0, 60):
            case 0:
                monitor.measure()
                step = None
            case 1:
                step = monitor.num_steps + draw.randint(-6, 9)
            case 2:
                monitor.load_state_dict(monitor.state_dict())
                step = None
            case 3:
                monitor.every = draw.randint(1, 12)
                step = None
            case _:
                step = None
        step = None if step is None else max(1, step)
        seen.append((monitor.step(step=step), monitor.num_steps, monitor._postponed))
    return seen, monitor.to_xarray()


@pytest.mark.parametrize("seed", range(12))
def test_steps_that_are_passed_over_are_those_at_which_nothing_is_due(seed):
    with pytest.MonkeyPatch.context() as patch:
        quick, dataset = drawn_loop(seed, patch, looks_at_all=False)
    with pytest.MonkeyPatch.context() as patch:
        slow, expected = drawn_loop(seed, patch, looks_at_all=True)
    assert quick == slow
    assert dataset.identical(expected)
    assert any(measured for measured, _, _ in quick)


@pytest.mark.parametrize(
    ("cost", "every", "budget"), [(0.5, 10, 0.05), (2.0, 3, 0.2), (0.001, 7, 0.05)]
)
def test_measurements_keep_to_the_budget(cost, every, budget, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(monitor_module, "perf_counter", clock)
    monitor = monitored(small(), probes=["update_ratio"], every=every, budget=budget)

    take_time(monitor, clock, cost, monkeypatch)
    counted = monitor_module.COUNTED * budget
    monitor.step()
    for step in range(2, 2001):
        clock.now += 0.1
        if monitor.step():
            assert monitor.overhead <= counted * (1 + 1e-9)
        assert monitor.num_steps == step
    dataset = monitor.to_xarray()
    spent, loop = monitor._spent, 0.1 * 1999
    assert spent == pytest.approx(float(dataset.seconds.sum()) + cost / 4)
    assert spent <= counted * loop
    due, made = 2000 // every, len(dataset.step)
    # Nothing more would have been affordable, or nothing more was due.
    assert made == due or spent > counted * loop - cost - 0.1 * counted * every
    postponed = int(dataset.postponed.sum()) + monitor._postponed
    assert f"{postponed} postponed" in repr(monitor)
    assert due - made <= postponed <= due
    assert (postponed > 0) == (cost > 0.1)


def test_without_a_budget_every_step_that_is_due_is_measured():
    net = small()
    monitor = monitored(net, every=3, probes=["update_ratio"])
    Loop(net).run(10, monitor)
    dataset = monitor.to_xarray()
    assert dataset.step.values.tolist() == [3, 6, 9]
    assert dataset.postponed.sum() == 0
    assert np.isfinite(dataset.step_loss).all()
    assert dataset.sizes == {"step": 3, "layer": 4}
    assert dataset.update_ratio.attrs["description"].startswith("|w - w0|")


def test_weights_that_are_not_finite_are_a_measurement_that_failed():
    net = small()
    monitor = monitored(net)
    Loop(net).run(5, monitor)
    kept = net[0].weight.detach().clone()
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    row = monitor.measure()
    assert row["outcome"] == "failed"
    assert row["reason"].startswith("weights: expected finite parameters, got NaN")
    with torch.no_grad():
        net[0].weight.copy_(kept)
    monitor.num_steps = 10
    assert monitor.measure()["outcome"] == "ok"
    dataset = monitor.to_xarray()
    assert dataset.outcome.values.tolist() == ["failed", "ok"]
    assert np.isnan(dataset.sharpness[0])
    assert np.isnan(dataset.layer_update_ratio[0]).all()


def test_a_gradient_lost_in_noise_has_no_noise_scale():
    x = torch.ones(4, 1).double()
    y = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]).double()
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    probes = {"noise_scale": {"population": 1000}}
    row = curvflow.Monitor(net, "sse", (x, y), probes=probes).measure()
    assert np.isnan(row["noise_scale"])
    assert row["gradient_squared_norm"] < 0


def test_the_coefficient_is_that_of_the_library_at_the_steps_named():
    net = small()
    monitor = monitored(net, probes=["update_ratio"], llc_at=[2], llc=FEW, seed=3)
    loop = Loop(net).run(2, monitor)
    fit = curvflow.llc(net, "cross_entropy", problem(), seed=3, **FEW)
    loop.run(1, monitor)
    dataset = monitor.to_xarray()
    assert dataset.llc_step.values.tolist() == [2]
    assert float(dataset.llc_mean[0]) == fit.llc_mean
    assert dataset.llc_verdict.values.tolist() == [fit.verdict]
    assert monitor.overhead == 0


def test_a_compiled_or_spread_module_is_measured_as_it_is():
    net = small()
    spread = nn.DataParallel(net)
    assert monitored(spread).measure()["sharpness"] == pytest.approx(
        monitored(net).measure()["sharpness"], rel=1e-12
    )


class Writer:
    """The method of torch.utils.tensorboard.SummaryWriter that is called."""

    def __init__(self):
        self.sent = {}

    def add_scalar(
        self,
        tag,
        scalar_value,
        global_step=None,
        walltime=None,
        new_style=False,
        double_precision=False,
    ):
        self.sent[tag, global_step] = scalar_value


class Run:
    """The methods of a run of Weights & Biases that are called, and its rule of steps.

    Its own steps count calls; rows of a step before that count are lost.
    """

    def __init__(self):
        self.count, self.axes, self.rows = 0, {}, []

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, data, step=None, commit=None):
        if step is None or step >= self.count:
            self.count = (self.count if step is None else step) + 1
            self.rows.append(data)

    @property
    def sent(self):
        assert self.axes == {"monitor/*": "monitor/step"}
        return {
            (name, row["monitor/step"]): value
            for row in self.rows
            for name, value in row.items()
            if name.startswith("monitor/") and name != "monitor/step"
        }


class Logger:
    """The method of others that is called."""

    def __init__(self):
        self.sent = {}

    def log(self, data, step=None):
        self.sent |= {(name, step): value for name, value in data.items()}


class MLflow:
    """The function of MLflow that is called."""

    def __init__(self):
        self.sent = {}

    def log_metrics(
        self,
        metrics,
        step=None,
        synchronous=None,
        run_id=None,
        timestamp=None,
        model_id=None,
        dataset=None,
    ):
        self.sent |= {(name, step): value for name, value in metrics.items()}


def test_finite_numbers_are_sent_wherever_they_are_wanted():
    run = Run()
    net, places = small(), [Writer(), run, MLflow(), Logger()]
    monitor = monitored(net, log_to=places, probes=["sharpness", "update_ratio"])
    loop = Loop(net)
    for _ in range(10):
        loop.run(1, monitor)
        for name in ("loss", "rate", "accuracy"):  # of the user's own
            run.log({name: 0.0})
    first = places[0].sent
    for step, sharpness in zip((5, 10), monitor.to_xarray().sharpness, strict=True):
        assert first["monitor/sharpness", step] == sharpness
        assert ("monitor/layer_update_ratio/2.bias", step) in first
    assert not any("trace" in name or "reason" in name for name, _ in first)
    for place in places[1:]:
        assert place.sent == first
    assert run.count == 32  # one more for each measurement
    other = Writer()
    monitored(net, log_to=other, log_as="second", probes=["sharpness"]).measure()
    assert other.sent
    assert all(name.startswith("second/") for name, _ in other.sent)
    # A name is a file of MLflow's, and none is a folder of others.
    names = {name for name, _ in first}
    assert not any(a.startswith(f"{b}/") for a in names for b in names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every: expected 1 or more, got 0"),
        ({"budget": 0.0}, "budget: expected a part of the loop's time"),
        ({"num_batches": 0}, "num_batches: expected 1 or more"),
        ({"llc_at": [0]}, "llc_at: expected steps"),
        ({"llc": {"num_draws": 9}}, "llc: expected steps"),
        ({"llc_at": [1], "llc": {"num_drawz": 9}}, "llc: expected .* got num_drawz"),
        ({"llc_at": [1], "llc": {"num_draws": 5}}, "llc: num_draws: expected a value"),
        ({"llc_at": [1], "llc": {"lr": -1.0}}, "llc: lr: expected"),
        ({"llc_at": [1], "llc": {"calibrate": "never"}}, "llc: calibrate: expected"),
        ({"probes": ["sharpnes"]}, "probes: expected some of .* Did you mean"),
        ({"probes": {"trace": {"num_probes": 1}}}, "probes.trace.num_probes: expected"),
        ({"probes": {"trace": {"steps": 1}}}, "probes.trace.steps: expected one of"),
        ({"log_to": 3}, "log_to: expected wandb, mlflow"),
        ({"log_to": "tensorboard"}, "log_to: expected wandb or mlflow"),
        ({"params": ["nothing"]}, "params: expected names of parameters"),
        (
            {"probes": {"noise_scale": {"population": 40}}},
            "noise_scale: population: expected at least the 48 samples of data, got 40",
        ),
        ({"size_of": len}, "probes.noise_scale: .* or leave noise_scale out"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(settings, message):
    with pytest.raises(InputError, match=message):
        monitored(small(), **settings)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.ones(3, 4), "data: expected a batch .inputs, targets., .* got Tensor"),
        ([], "data: expected batches, got none"),
        (
            (torch.ones(3, 9).double(), torch.zeros(3).long()),
            "module: expected to take",
        ),
    ],
)
def test_data_that_do_not_fit_are_refused_at_once(data, message):
    with pytest.raises(InputError, match=message):
        curvflow.Monitor(small(), "cross_entropy", data)


def test_half_precision_is_refused():
    x, y = problem()
    with pytest.raises(InputError, match="float32 or float64, got bfloat16"):
        curvflow.Monitor(small().bfloat16(), "cross_entropy", (x.bfloat16(), y))


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(RequestError, match="pip install wandb"):
        monitored(small(), log_to="wandb")


def _narrower(net):
    net[0], net[2] = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()


def _emptied(net):
    net[2] = nn.Flatten()


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (nn.Module.float, "got float32"),
        (nn.Module.bfloat16, "got bfloat16"),
        (_narrower, r"got float64 \(5, 4\)"),
        (_emptied, "got none"),
    ],
)
def test_a_module_that_becomes_another_is_said_in_one_line(change, got):
    x, y = problem()
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    monitor = curvflow.Monitor(net, LOSS, (x, y))
    monitor.measure()
    change(net)
    monitor.step(step=9)
    monitor.measure()
    dataset = monitor.to_xarray()
    assert list(dataset.outcome.values) == ["ok", "failed"]
    assert np.isfinite(dataset.sharpness.values[0])
    assert np.isnan(dataset.sharpness.values[1])
    assert re.search(got, str(dataset.reason.values[1]))
