"""Coefficients of modules without a study: one code with the probe."""

import inspect
import itertools
import math
import sys
import textwrap
from typing import get_type_hints

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.tasks.llc.library import ChainOptions, LlcOptions
from curvflow.tasks.llc.modules import mlp_of, module_targets
from curvflow.tasks.numerics.sampling.module_losses import ModuleLosses
from tests.tasks.scripts import script

SHORT = {
    "num_draws": 8,
    "num_chains": 2,
    "num_burnin_steps": 16,
    "num_steps_bw_draws": 2,
}
GIVEN = SHORT | {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-3,
    "localization": 1.0,
}
STAGES = {
    "data": {"use": "data.xor"},
    "fit": {
        "use": "train",
        "data": "data",
        "model": {"kind": "mlp", "hidden": [3], "activation": "tanh"},
        "rule": {"rule": "sgd", "lr": 0.1},
        "epochs": 20,
        "dtype": "float64",
    },
    "llc": {"use": "probe.llc", "weights": "fit", **SHORT, "seed": 3},
    "batches": {"use": "probe.llc", "weights": "fit", **GIVEN, "batch_size": 2},
    "wbic": {"use": "probe.wbic", "draws": "llc"},
    "factors": {"use": "probe.factors", "weights": "fit"},
    "chosen": {
        "use": "probe.llc",
        "weights": "fit",
        "preconditioner": "factors",
        **SHORT,
    },
    "metric": {
        "use": "probe.llc",
        "weights": "fit",
        "preconditioner": "factors",
        **GIVEN,
    },
}


class Wrapped(nn.Module):
    """The same function as a module that is no sequence of layers."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)


class Branching(Wrapped):
    """The same function, which looks at a number and so cannot be vectorised."""

    def forward(self, inputs):
        return self.inner(inputs) if inputs.sum().item() < 1e9 else inputs


class Narrow(Wrapped):
    """The same function, for a few samples at once."""

    def forward(self, inputs):
        assert len(inputs) <= 8
        return self.inner(inputs)


class Dictionary(Wrapped):
    def forward(self, batch):
        return self.inner(batch["x"])


class Power(nn.Module):
    """Output w^p of one weight, at its zero."""

    def __init__(self, power):
        super().__init__()
        self.weight, self.power = nn.Parameter(torch.zeros(1).double()), power

    def forward(self, inputs):
        return self.weight**self.power * torch.ones_like(inputs)


def mlp(*widths, activation=nn.Tanh, **how):
    torch.manual_seed(0)
    layers = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after, **how), activation()]
    return nn.Sequential(*layers[:-1]).double()


@pytest.fixture(scope="module")
def labelled():
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(30, 4, generator=source).double()
    return inputs, torch.randint(3, (30,), generator=source)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    study = curvflow.Study(study="same", stages=STAGES)
    return curvflow.run(study, store=tmp_path_factory.mktemp("store"))


def trained(results):
    """The study's network as a module, and its data as a batch."""
    weights = torch.as_tensor(results["fit"]["weights"].values).flatten()
    net, data = mlp(2, 3, 1), results["data"]
    torch.nn.utils.vector_to_parameters(weights, net.parameters())
    inputs = torch.as_tensor(data["inputs"].values)
    return net, (inputs, torch.as_tensor(data["targets"].values))


def assert_same_bits(dataset, stage):
    for name, array in dataset.items():
        expected = stage[name].values
        if array.dtype.kind in "US":
            assert str(array.values) == str(expected), name
        else:
            np.testing.assert_array_equal(array.values, expected, err_msg=name)


def test_a_library_call_gives_the_bits_of_a_study(results):
    net, data = trained(results)
    fit = curvflow.llc(net, "mse", data, **SHORT, seed=3)
    assert_same_bits(fit.to_xarray(), results["llc"])
    by_batches = curvflow.llc(net, nn.MSELoss(), data, **GIVEN, batch_size=2)
    assert_same_bits(by_batches.to_xarray(), results["batches"])
    criterion = curvflow.wbic(net, "mse", data, **SHORT, seed=3)
    assert_same_bits(criterion.to_xarray(), results["wbic"])
    assert criterion.llc.llc_mean == fit.llc_mean


def test_factors_give_the_bits_of_a_study(results):
    net, data = trained(results)
    K = curvflow.kronecker(net, "mse", data)
    for stage, asked in (("chosen", SHORT), ("metric", GIVEN)):
        fit = curvflow.llc(net, "mse", data, preconditioner=K, **asked)
        assert_same_bits(fit.to_xarray(), results[stage])
    plain = curvflow.llc(net, "mse", data, **GIVEN)
    assert not np.array_equal(plain.loss_trace, fit.loss_trace)


def test_factors_that_do_not_fit_are_refused(results):
    net, data = trained(results)
    K = curvflow.kronecker(net, "mse", data, layers=["0.*"])
    with pytest.raises(
        InputError, match=r"^preconditioner: expected factors of 13 par"
    ):
        curvflow.llc(net, "mse", data, preconditioner=K)
    fit = curvflow.llc(net, "mse", data, preconditioner=K, layers=["0.*"], **SHORT)
    assert "metric" in fit.variables
    with pytest.raises(InputError, match="sgnht cannot be combined with"):
        curvflow.llc(net, "mse", data, preconditioner=K, sampling_method="sgnht")


def test_the_result_is_what_the_draws_say(labelled):
    fit = curvflow.llc(mlp(4, 3, 3), "cross_entropy", labelled, **GIVEN)
    again = fit.to_xarray()
    nbeta, first = float(again["nbeta"]), float(again["init_loss"])
    assert fit.loss_trace.shape == (2, 8)
    assert fit.llc_mean == pytest.approx(nbeta * (fit.loss_trace.mean() - first))
    assert fit.ess == min(float(again["ess_bulk"]), float(again["ess_tail"]))
    assert again["loss_trace"].attrs["units"] == "loss"
    tree = fit.to_arviz()
    np.testing.assert_allclose(tree["posterior"]["llc"].mean(), fit.llc_mean)
    assert tree["constant_data"].attrs["reason"] == fit.reason
    assert repr(fit).startswith(f"LlcResult({fit.llc_mean:.4g} ± ")
    assert (fit.value, fit.sem) == (float(fit), fit.llc_sem)
    assert fit.work == float(again["gradient_equivalents"])


def test_the_criterion_is_that_of_the_draws(labelled):
    criterion = curvflow.wbic(mlp(4, 3, 3), "cross_entropy", labelled, **GIVEN)
    fit = curvflow.llc(mlp(4, 3, 3), "cross_entropy", labelled, **GIVEN)
    count = len(labelled[1])
    assert criterion.value == float(criterion)
    assert criterion.value == pytest.approx(count * fit.loss_trace.mean())
    assert criterion.sem == pytest.approx(fit.sem * math.log(count))
    assert criterion.work == fit.work


@pytest.mark.parametrize("kind", [Wrapped, Branching])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_losses_of_any_module_are_those_of_dense_layers(labelled, kind, batch_size):
    net = mlp(4, 3, 3)
    how = {"layers": None, "seed": 0, "dtype": None, "settings": {}}
    dense = module_targets(net, "cross_entropy", labelled, **how)
    other = module_targets(kind(net), nn.CrossEntropyLoss(), labelled, **how)
    owner_C = torch.zeros(3, dtype=torch.int64)
    assert other.losses(owner_C).is_vectorised == (kind is Wrapped)
    weights_CD = dense.weights + 0.1 * torch.randn(3, dense.weights.shape[1]).double()
    rows_CB = None if batch_size is None else torch.randint(30, (3, batch_size))
    for name in ("values", "gradients"):
        found, expected = (
            getattr(targets.losses(owner_C), name)(weights_CD.clone(), rows_CB)
            for targets in (other, dense)
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    rows_1n = torch.arange(12)[None]
    found, expected = (
        targets.gradient_variance(dense.weights, rows_1n) for targets in (other, dense)
    )
    torch.testing.assert_close(found, expected)
    columns = torch.randn(1, dense.weights.shape[1], 2).double()
    products = [targets.operator(2) @ columns for targets in (other, dense)]
    torch.testing.assert_close(*products)


def test_small_passes_add_up_to_the_whole(monkeypatch, labelled):
    how = {"layers": None, "seed": 0, "dtype": None, "settings": {}}
    losses = module_targets(Wrapped(mlp(4, 3, 3)), "cross_entropy", labelled, **how)
    weights_CD, owner_C = losses.weights.repeat(3, 1), torch.zeros(3).long()
    whole = losses.losses(owner_C)
    expected = whole.gradients(weights_CD, None)
    module = sys.modules[ModuleLosses.__module__]
    monkeypatch.setattr(module, "CHAIN_BYTES", 7 * whole.bytes_per_sample)
    monkeypatch.setattr(module, "PASS_BYTES", {"cpu": 14 * whole.bytes_per_sample})
    torch.testing.assert_close(whole.gradients(weights_CD, None), expected)


def test_no_pass_takes_more_samples_than_fit(monkeypatch, labelled):
    monkeypatch.setattr(sys.modules[ModuleLosses.__module__], "CHAIN_BYTES", 1)
    monkeypatch.setattr(sys.modules[mlp_of.__module__], "HESSIAN_BYTES", 1)
    how = {"layers": None, "seed": 0, "settings": {}}
    loader = DataLoader(TensorDataset(*labelled), batch_size=8)
    for dtype in (None, torch.float32):
        targets = module_targets(
            Narrow(mlp(4, 3, 3)), "cross_entropy", loader, dtype=dtype, **how
        )
        assert targets.num_samples == 30
        assert targets.first_losses.isfinite().all()
        weights_MD = targets.weights
        assert (targets.operator(2) @ weights_MD).isfinite().all()


@pytest.mark.parametrize("ignored", [-100, 0, 1])
@pytest.mark.parametrize("wrap", [lambda net: net, Wrapped], ids=["dense", "any"])
def test_samples_without_a_label_that_counts_are_left_out(labelled, ignored, wrap):
    inputs, labels = labelled
    masked = labels.where(torch.arange(30) % 3 > 0, ignored)
    kept, loss = masked != ignored, nn.CrossEntropyLoss(ignore_index=ignored)
    fits = [
        curvflow.llc(wrap(mlp(4, 3, 3)), of, data, **GIVEN, batch_size=8, seed=2)
        for of, data in (
            (loss, (inputs, masked)),
            (nn.CrossEntropyLoss(), (inputs[kept], labels[kept])),
        )
    ]
    for name, array in fits[1].variables.items():
        np.testing.assert_array_equal(fits[0].variables[name], array, err_msg=name)
    n = int(kept.sum())
    assert fits[0].variables["num_samples"] == n
    assert fits[0].variables["nbeta"] == n / math.log(n)
    whole = loss(mlp(4, 3, 3)(inputs), masked).item()
    assert fits[0].variables["init_loss"] == pytest.approx(whole, rel=1e-12)


class Tokens(nn.Module):
    """Logits (N, C, T) of inputs (N, T, F)."""

    def __init__(self):
        super().__init__()
        self.net = mlp(4, 3, 3)

    def forward(self, inputs):
        return self.net(inputs).movedim(-1, 1)


@pytest.mark.parametrize("seed", range(8))
def test_masked_and_weighed_labels_weigh_as_in_the_mean_over_all(monkeypatch, seed):
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(24, 5, 4, generator=draw).double()
    labels = torch.randint(3, (24, 5), generator=draw)
    labels[torch.rand(24, 5, generator=draw) < 0.5] = -100
    labels[:4], labels[4:, 0] = -100, 1
    weight = None if seed % 2 else torch.tensor([0.5, 2.0, 1.0]).double()
    loss, net = nn.CrossEntropyLoss(weight), Tokens()
    how = {"layers": None, "seed": 0, "dtype": None, "settings": {}}
    targets = module_targets(net, loss, (inputs, labels), **how)
    assert targets.num_samples == targets.num_counted(0) == 20
    whole, weights_CD = targets.losses(torch.zeros(2).long()), targets.weights
    module = sys.modules[ModuleLosses.__module__]
    monkeypatch.setattr(module, "CHAIN_BYTES", 3 * whole.bytes_per_sample)
    expected = loss(net(inputs), labels)
    (slope,) = whole.gradients(weights_CD, None)[1]
    assert whole.values(weights_CD, None).item() == pytest.approx(expected.item())
    parts = torch.autograd.grad(expected, list(net.parameters()))
    torch.testing.assert_close(slope, torch.cat([part.ravel() for part in parts]))
    # The mean over all batches of four is that over all samples.
    rows = torch.randperm(20, generator=draw).reshape(5, 1, 4)
    batches = [whole.gradients(weights_CD, batch) for batch in rows]
    means = [torch.stack(parts).mean(0) for parts in zip(*batches, strict=True)]
    assert means[0].item() == pytest.approx(expected.item())
    torch.testing.assert_close(means[1][0], slope)
    each = torch.arange(20)[:, None]
    single = whole.sample_losses(weights_CD.expand(20, -1), each, each)
    assert single.mean().item() == pytest.approx(expected.item())


def test_lists_loaders_and_dictionaries_are_the_batch_that_they_make(labelled):
    net, (inputs, labels) = mlp(4, 3, 3), labelled
    whole = curvflow.llc(net, "cross_entropy", labelled, **GIVEN).loss_trace
    parts = [(inputs[:11], labels[:11]), (inputs[11:], labels[11:])]
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=8)
    for data in (parts, loader):
        fit = curvflow.llc(net, "cross_entropy", data, **GIVEN)
        np.testing.assert_array_equal(fit.loss_trace, whole)
    named = {"x": inputs, "y": labels}

    def loss(outputs, batch):
        return nn.functional.cross_entropy(outputs, batch["y"], reduction="none")

    fit = curvflow.llc(Dictionary(net), loss, named, **GIVEN)
    np.testing.assert_allclose(fit.loss_trace, whole, rtol=1e-10)


@pytest.mark.parametrize("wrap", [nn.Sequential, Wrapped])
def test_only_named_parameters_move(labelled, wrap):
    net = wrap(mlp(4, 3, 3))
    how = GIVEN | {"layers": ["*2.weight"], "keep_draws": True}
    fit = curvflow.llc(net, "cross_entropy", labelled, **how)
    moved_D = (fit.draws.std((0, 1)) > 0).tolist()
    assert moved_D == 15 * [False] + 9 * [True] + 3 * [False]
    assert int(fit.variables["num_parameters"]) == 9


def test_a_regular_minimum_has_half_its_parameters():
    torch.manual_seed(0)
    inputs = torch.randn(50, 3).double()
    net = Wrapped(nn.Linear(3, 1, bias=False).double())
    data = inputs, net(inputs).detach()
    how = {"nbeta": 2000.0, "num_draws": 300, "num_steps_bw_draws": 2}
    how["num_burnin_steps"] = 200
    fit = curvflow.llc(net, "mse", data, **how)
    steep = 2000.0 * np.linalg.eigvalsh((2 * inputs.T @ inputs / 50).numpy())
    expected = (steep / (steep + fit.variables["localization"])).sum() / 2
    assert expected == pytest.approx(1.5, rel=0.01)
    assert fit.verdict == "converged", fit.reason
    assert abs(fit.llc_mean - expected) < 4 * fit.llc_sem < 0.6


def test_a_crossing_of_fourth_power_has_a_quarter():
    data = torch.ones(4, 1).double(), torch.zeros(4, 1).double()
    how = {"nbeta": 1e6, "num_draws": 400, "num_chains": 8, "num_steps_bw_draws": 2}
    how["num_burnin_steps"] = 200
    fit = curvflow.llc(Power(2), "mse", data, **how)
    assert abs(fit.llc_mean - 0.25) < 4 * fit.llc_sem + 0.01


def test_single_precision_and_double_agree(labelled):
    net = mlp(4, 3, 3)
    double = curvflow.llc(net, "cross_entropy", labelled, **GIVEN)
    single = curvflow.llc(net, "cross_entropy", labelled, **GIVEN, dtype="float32")
    assert next(net.parameters()).dtype == torch.float64
    np.testing.assert_allclose(single.loss_trace, double.loss_trace, rtol=1e-5)


def test_what_is_a_sequence_of_dense_layers_is_seen():
    spec = mlp_of(nn.Sequential(nn.Flatten(), mlp(4, 3, 5, 2, activation=nn.GELU)))
    assert (spec.hidden, spec.activation, spec.bias) == ((3, 5), "gelu", True)
    gaps = nn.Sequential(
        nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)
    )
    assert mlp_of(gaps) is None
    assert mlp_of(gaps.eval()).linear_layers == (1,)
    hooked = mlp(4, 3, 2)
    hooked[0].register_forward_hook(lambda *_: None)
    frozen = mlp(4, 3, 2)
    frozen[0].weight.requires_grad_(False)
    tied = nn.Linear(3, 3)
    others = [
        hooked,
        frozen,
        nn.Sequential(tied, nn.ReLU(), tied),
        nn.Sequential(nn.Linear(4, 3), nn.GELU(approximate="tanh"), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(),
    ]
    assert [mlp_of(net) for net in others] == len(others) * [None]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"lr": -1.0}, "lr: expected .* greater than 0, got -1"),
        ({"sampling_method": "mala", "batch_size": 2}, "batch_size cannot be combined"),
        ({"calibrate": "none"}, "expected sampling_method, lr, .* got null"),
        ({"batch_size": 31}, "batch_size: expected at most the 30 samples"),
        ({"layers": ["no.*"]}, r"Known: 0\.weight"),
    ],
)
def test_what_does_not_fit_is_refused(labelled, how, message):
    with pytest.raises(InputError, match=message):
        curvflow.llc(mlp(4, 3, 3), "cross_entropy", labelled, **how)


def test_chains_in_half_precision_are_refused(labelled):
    net, (inputs, labels) = mlp(4, 3, 3).bfloat16(), labelled
    data = inputs.bfloat16(), labels
    with pytest.raises(InputError, match=r"module: .*bfloat16\. Cast it"):
        curvflow.llc(net, "cross_entropy", data)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Softplus])  # mlp, and any module
def test_data_with_nan_in_a_later_batch_are_refused(labelled, activation):
    inputs, labels = labelled[0].clone(), labelled[1]
    inputs[[17, 23], 1] = torch.nan
    batches = [(inputs[:10], labels[:10]), (inputs[10:], labels[10:])]
    with pytest.raises(InputError, match=r"^data: .*2 samples .* is number 17\."):
        curvflow.llc(mlp(4, 3, 3, activation=activation), "cross_entropy", batches)


def test_a_loss_that_overflows_is_refused(labelled):
    inputs, labels = labelled[0].clone(), labelled[1]
    inputs[20] *= 1e200
    batches = [(inputs[:10], labels[:10]), (inputs[10:], labels[10:])]
    net = mlp(4, 3, activation=nn.ReLU)
    with pytest.raises(InputError, match=r"^data: .*got inf, although all"):
        curvflow.llc(net, lambda outputs, _: outputs.square().sum(1), batches)


def test_the_criterion_has_its_temperature(labelled):
    with pytest.raises(InputError, match="nbeta cannot be combined with wbic"):
        curvflow.wbic(mlp(4, 3, 3), "cross_entropy", labelled, nbeta=5.0)


def test_parameters_are_those_of_the_probe():
    signature = inspect.signature(curvflow.llc).parameters
    fields = LlcParams.model_fields
    of_the_module = {"net", "loss", "data", "forward", "allow", "store"}
    inputs = {"preconditioner"}  # of the probe, a stage that it takes
    assert set(fields) == set(signature) - of_the_module - inputs
    assert signature["dtype"].default is None
    for name in set(fields) - {"dtype"}:
        assert signature[name].default == fields[name].default, name


def test_options_have_the_types_of_the_arguments():
    hints = get_type_hints(curvflow.llc)
    arguments = {"net", "loss", "data", "store", "return"}
    options = {name: hints[name] for name in hints.keys() - arguments}
    assert get_type_hints(LlcOptions) == options
    del options["nbeta"]
    assert get_type_hints(ChainOptions) == options


MISSING = """
    dask distributed prefect zarr obstore ruamel typer rich jinja2 matplotlib sklearn
    numcodecs
"""


@pytest.mark.processes
def test_it_needs_no_engine_and_no_store(tmp_path):
    code = """
        import torch, curvflow
        net = torch.nn.Sequential(torch.nn.Linear(2, 1)).double()
        data = torch.ones(8, 2).double(), torch.ones(8, 1).double()
        fit = curvflow.llc(net, "mse", data, calibrate="none", sampling_method="sgld",
                           lr=1e-3, localization=1.0, num_burnin_steps=0, num_draws=8)
        fit.to_xarray(), fit.to_arviz()
        curvflow.wbic(net, "mse", data, num_draws=8, num_burnin_steps=1,
                      num_steps_bw_draws=1)
        """
    ended, _, said = script(textwrap.dedent(code), tmp_path, MISSING.split())
    assert ended == 0, said
