"""Modules of the user's own in training and evaluation, against a plain loop."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.optim.swa_utils import AveragedModel, update_bn

from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose, read
from tests.tasks import toys
from tests.tasks.toys import (
    blobs,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    weights_of,
)

EPOCHS = 4
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def factory(name, **kwargs):
    return {"factory": f"tests.tasks.toys:{name}", "kwargs": kwargs}


def fits(model, seeds=(0, 1), **params):
    given = {"model": model, "epochs": EPOCHS, "checkpoints": {"every": EPOCHS}}
    return train_all([train_member(blobs(), seed=s, **given, **params) for s in seeds])


def network_of(fit):
    return read(str(fit.arrays["network"])).network


def module_of(name, network, weights_W, **kwargs):
    """Return the module with the weights and statistics of a network."""
    module = getattr(toys, name)(**kwargs).double()
    split = network.split(torch.as_tensor(weights_W)[None])
    tensors = network.layout.named(split[0]) | network.statistics.named(split[1])
    held = {n: t[0].to(module.state_dict()[n].dtype) for n, t in tensors.items()}
    missing, _ = module.load_state_dict(held, strict=False)
    assert all(name.endswith(("num_batches_tracked", "mask")) for name in missing)
    return module


def loss_of(module):
    data = blobs()
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    return nn.functional.cross_entropy(module(x), y)


def looped(module, each_step=lambda: None):
    """Train a module as `train` does, in a plain loop."""
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss_of(module).backward()
        optimizer.step()
        each_step()


def assert_holds(module, network, weights_W):
    """Hold a network's parameters and statistics to those of a module."""
    kept = module.state_dict()
    split = network.split(torch.as_tensor(weights_W)[None])
    tensors = network.layout.named(split[0]) | network.statistics.named(split[1])
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor[0], kept[name].double(), **EXACT)


NORMS = [
    ("make_batch_norm", {}),
    ("make_batch_norm", {"momentum": 0.3, "affine": False}),
    ("make_batch_norm", {"momentum": None}),
    ("make_half_frozen_norm", {}),
]


@pytest.mark.parametrize(("name", "kwargs"), NORMS)
def test_a_batch_norm_trains_as_in_a_plain_loop(name, kwargs):
    for fit in fits(factory(name, **kwargs)):
        network, (start, end) = network_of(fit), fit.arrays["weights"]
        module = module_of(name, network, start, **kwargs)
        looped(module)
        assert_holds(module, network, end)
        before, after = (network.split(torch.as_tensor(w))[1] for w in (start, end))
        assert network.moves_statistics
        assert (before != after).any()


def test_curvature_of_a_batch_norm_is_that_of_its_running_statistics():
    runs = fits(factory("make_batch_norm"))
    probes = [
        member("probe.eigenvalues", {"k": 2}, weights=weights_of(f), data=blobs())
        for f in runs
    ]
    found = compute("probe.eigenvalues", probes)
    for fit, outcome in zip(runs, found, strict=True):
        exact = np.linalg.eigvalsh(exact_hessian("make_batch_norm", fit).numpy())
        exact = exact[np.abs(exact).argsort()[::-1]][:2]
        np.testing.assert_allclose(outcome.arrays["eigenvalues"], exact, rtol=1e-6)


def exact_hessian(name, fit, **kwargs):
    """Return the Hessian of the module itself by its trained parameters."""
    network = network_of(fit)
    module = module_of(name, network, fit.arrays["weights"][-1], **kwargs).eval()
    data, layout = blobs(), network.layout
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()

    def loss(flat_D):
        named = {n: t[0] for n, t in layout.named(flat_D[None]).items()}
        outputs = functional_call(module, named, (x,))
        return nn.functional.cross_entropy(outputs, y)

    state = module.state_dict()
    flat_D = torch.cat([state[name].flatten() for name in layout.names])
    return torch.autograd.functional.hessian(loss, flat_D)


def test_an_averaged_network_has_the_statistics_of_its_averaged_weights():
    for kwargs in ({}, {"momentum": None}):
        rule = {"rule": "swa", "lr": 0.1, "momentum": 0.9, "start": 0}
        (fit,) = fits(factory("make_batch_norm", **kwargs), seeds=[0], rule=rule)
        network, (start, end) = network_of(fit), fit.arrays["weights"]
        module = module_of("make_batch_norm", network, start, **kwargs)
        averaged = AveragedModel(module)
        looped(module, lambda m=module, a=averaged: a.update_parameters(m))
        update_bn([torch.as_tensor(blobs()["inputs"])], averaged)
        parameters, statistics = (
            part.numpy() for part in network.split(torch.as_tensor(end))
        )
        held = averaged.module.state_dict()
        for layout, found in (
            (network.layout, parameters),
            (network.statistics, statistics),
        ):
            named = layout.named(torch.as_tensor(found)[None])
            for name, tensor in named.items():
                if not name.endswith("num_batches_tracked"):
                    torch.testing.assert_close(tensor[0], held[name], **EXACT)


def test_a_buffer_that_is_no_running_mean_is_not_averaged():
    rule = {"rule": "swa", "lr": 0.1, "start": 0}
    with pytest.raises(InputError, match="got 'age', which changes otherwise"):
        fits(factory("make_ageing"), rule=rule)


def test_any_buffer_of_real_numbers_moves_with_training():
    for fit in fits(factory("make_ageing")):
        _, age = network_of(fit).split(torch.as_tensor(fit.arrays["weights"][-1]))
        assert age.tolist() == [EPOCHS]


def test_a_batch_of_one_sample_is_refused_with_the_remedy():
    with pytest.raises(InputError, match="more than one sample in every batch"):
        fits(factory("make_batch_norm"), batch_size=29)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("make_dropout", {}),
        ("make_random", {}),
        ("make_transformer", {"rate": 0.3}),
        ("make_batch_norm", {}),
        ("make_batch_norm", {"momentum": None}),
    ],
)
def test_training_does_not_depend_on_siblings(name, kwargs):
    several = fits(factory(name, **kwargs), seeds=(2, 0, 1), batch_size=10)
    pair = fits(factory(name, **kwargs), seeds=(1, 2), batch_size=10)
    (alone,) = fits(factory(name, **kwargs), seeds=[1], batch_size=10)
    for fit, other in ((pair[0], several[2]), (pair[1], several[0]), (alone, pair[0])):
        np.testing.assert_allclose(
            fit.arrays["weights"], other.arrays["weights"], **EXACT
        )


@pytest.mark.parametrize("draws", [True, False])
def test_draws_are_those_of_seed_and_step(draws):
    name = "make_random" if draws else "make_dropout"
    first, again = fits(factory(name), seeds=(0, 0))
    assert np.array_equal(first.arrays["weights"], again.arrays["weights"])
    network = network_of(first)
    weights_MW = torch.as_tensor(first.arrays["weights"][[-1, -1]])
    x = torch.as_tensor(blobs()["inputs"])[None]
    in_training = [
        network.training_outputs(*network.split(weights_MW), x, source(seed))[0]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(in_training[0], in_training[1])
    assert not torch.equal(in_training[0], in_training[2])
    # At evaluation nothing is drawn.
    module = module_of(name, network, weights_MW[0]).eval()
    torch.testing.assert_close(network.outputs(weights_MW, x)[0], module(x[0]))


def test_draws_that_depend_on_values_are_refused():
    network = pose(parse_model(factory("make_moody")), "auto", blobs()).network
    x = torch.as_tensor(blobs()["inputs"])[None]
    weights_MD = torch.zeros(2, network.num_parameters, dtype=torch.float64)
    weights_MD[:, network.layout.sizes[0] :][:, :4] = torch.tensor([[3.0], [-3.0]])
    with pytest.raises(InputError, match="same random draws in every call"):
        network.training_outputs(weights_MD, weights_MD[:, :0], x, source(0))


def test_draws_of_the_shape_of_weights_are_those_of_every_part_of_a_batch():
    (whole,), (parts,) = (
        fits(factory("make_variational"), seeds=[0], accumulation=count)
        for count in (1, 3)
    )
    first, last = whole.arrays["weights"]
    assert (first != last).any()
    np.testing.assert_allclose(parts.arrays["weights"][1], last, **EXACT)


def source(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda shape: torch.rand(2, *shape, generator=generator).double()


def test_a_dropout_of_ones_own_is_that_of_the_package():
    law = {"init": {"normal": 0.5}}
    own = factory("make_dropout", rate=0.4) | law
    mlp = {"kind": "mlp", "hidden": [6], "activation": "tanh", "dropout": 0.4} | law
    for fit, twin in zip(fits(own), fits(mlp), strict=True):
        np.testing.assert_allclose(
            fit.arrays["weights"], twin.arrays["weights"], **EXACT
        )


@pytest.mark.parametrize("name", ["make_dropout", "make_batch_norm"])
def test_rules_that_differentiate_twice_see_the_same_training(name):
    rule = {"rule": "spectral_sgd"}
    given = {"batch_size": 10, "rule": rule}
    ((first,), (again, _)) = (
        fits(factory(name), seeds=seeds, **given) for seeds in ([0], [0, 1])
    )
    np.testing.assert_allclose(
        first.arrays["weights"], again.arrays["weights"], rtol=1e-6, atol=1e-8
    )


def test_frozen_parameters_stay_as_they_were_drawn():
    runs = fits(factory("make_frozen"))
    frozen = []
    for seed, fit in enumerate(runs):
        network, (start, end) = network_of(fit), fit.arrays["weights"]
        assert network.layout.names == ("2.weight", "2.bias")
        assert network.statistics.names == ("0.weight", "0.bias")
        assert not network.moves_statistics
        module = module_of("make_frozen", network, start)
        looped(module)
        assert_holds(module, network, end)
        frozen.append(network.split(torch.as_tensor(end))[1])
        drawn = compute_first(seed)
        torch.testing.assert_close(frozen[-1], drawn)
        probe = member("probe.trace", {}, weights=weights_of(fit), data=blobs())
        torch.testing.assert_close(
            dense_frozen(probe, network), exact_hessian("make_frozen", fit)
        )
    assert not torch.equal(*frozen)


def compute_first(seed):
    """Return the frozen tensors that the module draws of a member's stream."""
    first = drawn_module("make_frozen", seed)[0]
    return torch.cat([first.weight.flatten(), first.bias]).double().detach()


def drawn_module(name, seed):
    """Return the module as it is built with the numbers of a member's stream."""
    from curvflow.tasks.numerics.streams import stream

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "init").initial_seed())
        return getattr(toys, name)()


def test_buffers_that_are_drawn_are_those_of_the_seed():
    features = []
    for seed, fit in enumerate(fits(factory("make_features"))):
        network, (start, end) = network_of(fit), fit.arrays["weights"]
        drawn = drawn_module("make_features", seed).double()
        module = module_of("make_features", network, start)
        assert_same(module.state_dict(), drawn.state_dict())
        looped(module)
        assert_holds(module, network, end)
        features.append(module.features)
        exact = exact_hessian("make_features", fit)
        probe = member("probe.trace", {}, weights=weights_of(fit), data=blobs())
        assert_same({"": toys.matrix_of(probe)}, {"": exact})
    assert not torch.equal(*features)


def assert_same(found, expected):
    torch.testing.assert_close(dict(found), dict(expected), rtol=1e-6, atol=1e-8)


def dense_frozen(probe, network):
    D = network.num_parameters
    return dense_of(probe)[:D, :D]


def test_a_tied_tensor_is_one_parameter():
    (fit, _) = fits(factory("make_tied"))
    network = network_of(fit)
    assert network.layout.names == ("first.weight", "first.bias", "head.bias")
    start, end = fit.arrays["weights"]
    module = toys.make_tied().double()
    nn.utils.vector_to_parameters(torch.as_tensor(start), module.parameters())
    looped(module)
    found = nn.utils.parameters_to_vector(module.parameters()).detach()
    np.testing.assert_allclose(end, found, **EXACT)
    probe = member("probe.trace", {}, weights=weights_of(fit), data=blobs())

    def loss(flat_D):
        named = {n: t[0] for n, t in network.layout.named(flat_D[None]).items()}
        named["head.weight"] = named["first.weight"]
        x = torch.as_tensor(blobs()["inputs"])
        y = torch.as_tensor(blobs()["targets"]).long()
        outputs = functional_call(module, named, (x,))
        return nn.functional.cross_entropy(outputs, y)

    exact = torch.autograd.functional.hessian(loss, torch.as_tensor(end))
    torch.testing.assert_close(dense_of(probe), exact, **EXACT)


def test_what_a_module_keeps_is_told_in_its_description():
    text = pose(parse_model(factory("make_half_frozen_norm")), "auto", blobs()).text
    kept = [name for name, _ in json.loads(text)["statistics"]]
    assert kept == [f"{n}.running_{part}" for n in (1, 3) for part in ("mean", "var")]


def test_transformer_layers_are_computed_together_in_both_modes():
    problem = pose(parse_model(factory("make_transformer", rate=0.2)), "auto", blobs())
    assert problem.network.note == ""
    assert torch.backends.mha.get_fastpath_enabled()


def test_rules_that_take_products_train_attention():
    model = factory("make_transformer")
    rule = {"rule": "metric", "lr": 0.05, "rate": 0.01}
    (alone,), pair = (fits(model, seeds=s, rule=rule) for s in ([0], [0, 1]))
    np.testing.assert_allclose(
        alone.arrays["weights"], pair[0].arrays["weights"], rtol=1e-6, atol=1e-9
    )
