"""Weights trained elsewhere."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.kinds.weights.import_ import check
from curvflow.schemas.nodes import Member
from curvflow.tasks.networks.problems import read
from tests.tasks.toys import (
    RELU_NET,
    as_data,
    assert_declared,
    blobs,
    compute,
    make_batch_norm,
    make_frozen,
    make_resnet,
    make_scaled_norm,
    make_tied,
    member,
    train_all,
    train_member,
    waves,
    weights_of,
)

NAMES = tuple(f"layer{n}.{part}" for n in (1, 2, 3) for part in ("weight", "bias"))


def given(**params):
    kind = find_kind("weights.import")
    settings = {"path": "w.npz", "model": RELU_NET, **params}
    return kind.params.model_validate(settings)


def imported(arrays, data=None, **params):
    inputs = {"data": [data or blobs()]}
    (outcome,) = compute(
        "weights.import", [Member(given(**params), inputs, {"path": arrays})]
    )
    return outcome


def images():
    inputs = np.random.default_rng(0).normal(size=(12, 1, 4, 4))
    return as_data(dataset(inputs, np.arange(12) % 3))


def net():
    """The network RELU_NET, for blobs, as torch has it."""
    torch.manual_seed(0)
    layers = nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    return nn.Sequential(*layers).double()


def state(module):
    return {name: value.numpy() for name, value in module.state_dict().items()}


def named_as_ours():
    return dict(zip(NAMES, state(net()).values(), strict=True))


def cross_entropy(module, data, prefix=""):
    inputs, labels = (
        torch.as_tensor(data[prefix + name]) for name in ("inputs", "targets")
    )
    result = module(inputs.to(next(module.parameters()).dtype))
    return nn.functional.cross_entropy(result, labels.long()).item()


NORMED = {"kind": "vgg", "stages": [[2]], "batch_norm": True}


@pytest.mark.parametrize(("model", "data"), [(RELU_NET, blobs()), (NORMED, images())])
def test_what_training_kept_comes_back(model, data):
    fits = train_all([train_member(data, model=model)] * 2)
    kept = weights_of(fits[0])
    network = read(str(kept["network"])).network
    parts = network.split(torch.as_tensor(kept["weights"])[None])
    arrays = {
        name: tensor[0].numpy()
        for layout, part in zip(
            (network.layout, network.statistics), parts, strict=True
        )
        for name, tensor in layout.named(part).items()
    }
    result = imported(arrays, data, model=model)
    assert np.array_equal(result.arrays["weights"], kept["weights"])
    assert str(result.arrays["network"]) == str(kept["network"])
    loss = fits[0].arrays["final_train_loss"]
    assert result.arrays["final_train_loss"] == pytest.approx(loss, rel=1e-12)


def test_a_state_dict_has_the_losses_of_its_module():
    module, data = net(), blobs()
    names = dict(zip(NAMES, state(module), strict=True))
    outcome = imported(state(module), data, names=names)
    assert_declared("weights.import", outcome)
    result = outcome.arrays
    assert result["final_train_loss"] == pytest.approx(cross_entropy(module, data))
    expected = cross_entropy(module, data, "test_")
    assert result["final_test_loss"] == pytest.approx(expected)


@pytest.mark.parametrize("below", ["", "model."])
def test_a_list_of_tensors_is_refused_unless_its_numbers_are_mapped(below):
    arrays = list(named_as_ours().values())
    listed = {f"{below}{n}": array for n, array in enumerate(arrays)}
    at = " at 'model'" if below else ""
    says = f"expected a dictionary of tensors, got a list of {len(NAMES)} tensors{at}."
    with pytest.raises(InputError, match=says):
        imported(listed)
    mapped = imported(listed, names=dict(zip(NAMES, listed, strict=True)))
    same = imported(named_as_ours())
    assert np.array_equal(mapped.arrays["weights"], same.arrays["weights"])


def test_losses_without_test_samples_and_of_sums():
    shapes = (5, 3), (5,), (4, 5), (4,), (2, 4), (2,)
    zeros = {name: np.zeros(shape) for name, shape in zip(NAMES, shapes, strict=True)}
    data = waves()
    of_mean, of_sum = (imported(zeros, data, loss=loss) for loss in ("mse", "sse"))
    square = data["targets"] ** 2
    assert of_mean.arrays["final_train_loss"] == pytest.approx(square.mean())
    assert of_sum.arrays["final_train_loss"] == pytest.approx(square.sum())
    assert np.isnan(of_mean.arrays["final_test_loss"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer3.bias": None}, r"tensor 'layer3.bias' of shape \(3,\), got none"),
        ({"layer2.bias": np.zeros(5)}, r"shape \(4,\) of the array 'layer2.bias', got"),
        ({"layer9.bias": np.zeros(5)}, "got 'layer9.bias' too"),
    ],
)
def test_arrays_that_are_not_the_networks_are_refused(change, says):
    arrays = {k: v for k, v in (named_as_ours() | change).items() if v is not None}
    with pytest.raises(InputError, match=says):
        imported(arrays)


@pytest.mark.parametrize(
    ("arrays", "names", "says"),
    [
        ({"w": np.zeros(3)}, {"a": "v.w"}, "names.a: expected an array"),
        ({"array": np.zeros(3)}, {}, "expected a file of named arrays, got a single"),
        ({"w": np.array([1.0, np.nan])}, {}, "got NaN in the array 'w'"),
        (
            {"w": np.zeros(3)},
            {"layer1.bias": "v"},
            "names.layer1.bias: expected an array",
        ),
    ],
)
def test_files_without_weights_are_refused_while_planning(arrays, names, says):
    with pytest.raises(InputError, match=says):
        check(given(names=names), {"path": arrays})


@pytest.mark.parametrize(("wrong", "said"), [(np.inf, "finite"), ("a", "real")])
def test_infinity_and_text_are_refused_where_they_would_be_weights(wrong, said):
    arrays = named_as_ours()
    name = next(iter(arrays))
    beside = {"callbacks.best": np.array(np.inf)}
    check(given(), {"path": arrays | beside})
    arrays[name] = np.full(arrays[name].shape, wrong)
    with pytest.raises(InputError, match=f"{said} numbers.*'{name}'"):
        imported(arrays)


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        (np.complex64, "complex numbers"),
        (np.complex128, "complex numbers"),
        (np.str_, "texts"),
        (np.bytes_, "bytes"),
    ],
)
def test_arrays_of_no_real_numbers_are_said_to_be_such(dtype, says):
    arrays = named_as_ours()
    arrays["layer2.weight"] = arrays["layer2.weight"].astype(dtype)
    expected = f"real numbers, got {says} in the array 'layer2.weight'"
    with pytest.raises(InputError, match=expected):
        imported(arrays)


@pytest.mark.parametrize("kind", [np.int8, np.int64, bool])
def test_integers_are_no_parameters(kind):
    arrays = named_as_ours()
    name = next(iter(arrays))
    arrays[name] = np.ones(arrays[name].shape, kind)
    message = f"real numbers of the parameter '{name}', got {np.dtype(kind)}.*as floats"
    with pytest.raises(InputError, match=message):
        imported(arrays)


def test_the_count_of_a_batch_norms_batches_is_left_out():
    arrays = named_as_ours() | {"norm1.num_batches_tracked": np.array(7)}
    assert np.array_equal(
        imported(arrays).arrays["weights"],
        imported(named_as_ours()).arrays["weights"],
    )


OWN = {"factory": "tests.tasks.toys:make_frozen_norm", "kwargs": {}}


def of_own(module):
    """Return the arrays of a module's file, without counters and masks."""
    arrays = {n: a for n, a in state(module).items() if a.dtype.kind == "f"}
    return arrays | {"1.num_batches_tracked": np.array(3)}


def test_a_module_of_ones_own_is_measured_at_the_statistics_of_the_file():
    trained = make_scaled_norm().double()
    outcome = imported(of_own(trained), model=OWN)
    assert_declared("weights.import", outcome)
    data, weights = blobs(), weights_of(outcome, slice(None))
    assert outcome.arrays["num_parameters"] == sum(
        p.numel() for p in trained.parameters()
    )
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"]).long()
    loss = nn.functional.cross_entropy(trained(x), y)
    assert float(outcome.arrays["final_train_loss"]) == pytest.approx(loss.item())

    def loss_at(flat_D):
        parts = torch.split(flat_D, [p.numel() for p in trained.parameters()])
        named = {
            name: part.view_as(p)
            for (name, p), part in zip(trained.named_parameters(), parts, strict=True)
        }
        outputs = torch.func.functional_call(trained, named, (x,))
        return nn.functional.cross_entropy(outputs, y)

    flat_D = nn.utils.parameters_to_vector(trained.parameters()).detach()
    exact = torch.autograd.functional.hessian(loss_at, flat_D)
    dense = member("probe.dense", {}, weights=weights, data=data)
    (found,) = compute("probe.dense", [dense])
    np.testing.assert_allclose(
        np.sort(found.arrays["eigenvalues"]),
        np.linalg.eigvalsh(exact.numpy()),
        rtol=1e-8,
        atol=1e-10,
    )


@pytest.mark.parametrize("lacking", ["running_mean", "running_var"])
@pytest.mark.parametrize("below", ["", "state_dict.model."])
@pytest.mark.parametrize("brings_others", [False, True])
def test_a_statistic_that_the_file_lacks_is_named_and_never_left_out(
    lacking, below, brings_others
):
    arrays = of_own(make_scaled_norm())
    arrays.pop(f"1.{lacking}")
    arrays = {below + name: array for name, array in arrays.items()}
    if brings_others:
        arrays["optimizer.0.exp_avg"] = np.ones(4)
    says = (
        rf"the statistic '1\.{lacking}' of shape \(4,\), got none\..*whole state_dict"
    )
    if brings_others and not below:
        says = r"1\.running|optimizer"
    with pytest.raises(InputError, match=says) as caught:
        imported(arrays, model=OWN)
    assert not re.search("remove|drop|leave", str(caught.value), re.IGNORECASE)


def test_a_statistic_of_another_name_is_suggested():
    arrays = of_own(make_scaled_norm())
    arrays["bn.running_var"] = arrays.pop("1.running_var")
    with pytest.raises(InputError, match=r"'1\.running_var' .*'bn\.running_var'\? Map"):
        imported(arrays, model=OWN)


def test_statistics_without_a_norm_in_the_model_are_not_to_be_removed_either():
    arrays = named_as_ours() | {"norm1.running_mean": np.zeros(5)}
    with pytest.raises(InputError, match=r"'norm1.running_mean' too.*Take the model"):
        imported(arrays)


@pytest.mark.parametrize("seed", range(8))
def test_a_missing_tensor_is_named_wherever_the_network_lies(seed):
    draw = np.random.default_rng(seed)
    nested, _ = random_nest(draw, named_as_ours())
    arrays, lacking = flat(nested), str(draw.choice(NAMES))
    arrays = {name: a for name, a in arrays.items() if not name.endswith(lacking)}
    with pytest.raises(InputError, match=f"expected the tensor '{lacking}' of shape"):
        imported(arrays)


def test_the_nearest_name_of_the_same_shape_is_suggested():
    arrays = named_as_ours()
    arrays["layer2.weihgt"] = arrays.pop("layer2.weight")
    arrays["layer2.weight_"] = np.zeros(3)
    with pytest.raises(InputError, match=r"Did you mean 'layer2.weihgt'\? Map"):
        imported(arrays)


def test_a_transposed_array_is_called_so():
    arrays = named_as_ours()
    arrays["layer1.weight"] = arrays["layer1.weight"].T
    with pytest.raises(InputError, match=r"got \(3, 5\), its transpose\. Take"):
        imported(arrays)


def test_a_whole_state_dict_is_taken_with_its_masks_and_counts():
    trained = make_scaled_norm().double()
    model = {"factory": "tests.tasks.toys:make_scaled_norm"}
    whole = imported(state(trained), model=model)
    few = imported(of_own(trained), model=model)
    assert np.array_equal(whole.arrays["weights"], few.arrays["weights"])
    other = state(trained) | {"mask": np.array([False])}
    with pytest.raises(
        InputError, match=r"'mask' to be equal to the module's own, got"
    ):
        imported(other, model=model)


TRAINED = {"factory": "tests.tasks.toys:make_resnet"}


def test_a_residual_network_trained_elsewhere_has_its_loss_at_evaluation():
    torch.manual_seed(3)
    module, data = make_resnet().double(), images()
    for _ in range(3):  # running statistics far from those of a fresh one
        module(torch.as_tensor(data["inputs"]) * 3 + 1)
    found = imported(state(module), data, model=TRAINED).arrays
    expected = cross_entropy(module.eval(), data)
    assert found["final_train_loss"] == pytest.approx(expected, rel=1e-10)
    for lacking in ("running_mean", "running_var"):
        arrays = state(module)
        del arrays[f"norm.{lacking}"]
        with pytest.raises(
            InputError, match=rf"statistic 'norm.{lacking}' of shape \(2,\)"
        ):
            imported(arrays, data, model=TRAINED)


def test_a_cumulative_norm_needs_its_count():
    model = {
        "factory": "tests.tasks.toys:make_batch_norm",
        "kwargs": {"momentum": None},
    }
    module = make_batch_norm(momentum=None).double()
    module(torch.as_tensor(blobs()["inputs"]))
    imported(state(module), model=model)
    arrays = state(module)
    del arrays["1.num_batches_tracked"]
    with pytest.raises(InputError, match=r"statistic '1\.num_batches_tracked' of"):
        imported(arrays, model=model)


@pytest.mark.parametrize("dropped", [None, "first.weight", "head.weight"])
def test_a_tied_tensor_may_have_either_name_or_both(dropped):
    module = make_tied().double()
    arrays = {n: a for n, a in state(module).items() if n != dropped}
    model = {"factory": "tests.tasks.toys:make_tied"}
    found = imported(arrays, model=model).arrays
    expected = cross_entropy(module, blobs())
    assert found["final_train_loss"] == pytest.approx(expected, rel=1e-10)
    if dropped is None:
        other = arrays | {"head.weight": arrays["head.weight"] + 1}
        with pytest.raises(InputError, match=r"equal to 'first\.weight'"):
            imported(other, model=model)


def test_frozen_parameters_are_taken_by_name():
    model = {"factory": "tests.tasks.toys:make_frozen"}
    module = make_frozen().double()
    found = imported(state(module), model=model).arrays
    assert found["num_parameters"] == 15
    expected = cross_entropy(module, blobs())
    assert found["final_train_loss"] == pytest.approx(expected, rel=1e-10)


def random_nest(draw, arrays):
    """Return named arrays somewhere in nested dictionaries, and what precedes them."""
    nested, prefix = dict(arrays), ""
    for _ in range(draw.integers(0, 4)):
        key = str(draw.choice(["state_dict", "model", "module", "net", "0"]))
        if draw.random() < 0.5:  # as DataParallel and Lightning name them
            nested = {f"{key}.{name}": array for name, array in nested.items()}
        else:
            others = {"epoch": 3, "optimizer": {"state": {"0": np.ones(4)}}, "lr": 0.1}
            nested = {**others, key: nested}
        prefix = f"{key}.{prefix}"
    return nested, prefix


def flat(nested, start=""):
    """Return arrays by dotted names, as the files' reader does."""
    found = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            found |= flat(value, f"{start}{key}.")
        elif isinstance(value, np.ndarray):
            found[start + key] = value
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_network_is_found_wherever_it_lies_in_a_checkpoint(seed):
    nested, prefix = random_nest(np.random.default_rng(seed), named_as_ours())
    expected = imported(named_as_ours()).arrays["weights"]
    arrays = flat(nested)
    for given_prefix in (None, prefix):
        found = imported(arrays, prefix=given_prefix).arrays["weights"]
        assert np.array_equal(found, expected)
    check(given(prefix=prefix), {"path": arrays})


def test_two_networks_in_a_file_are_told_apart_by_their_prefix():
    ours, zeros = named_as_ours(), {n: 0 * a for n, a in named_as_ours().items()}
    both = flat({"model": ours, "ema": zeros})
    with pytest.raises(InputError, match=r"below 'model\.', 'ema\.'\. Choose"):
        imported(both)
    assert not imported(both, prefix="ema.").arrays["weights"].any()
    with pytest.raises(InputError, match=r"prefix: .*names such as model\.layer1"):
        check(given(prefix="best."), {"path": both})


@pytest.mark.parametrize("seed", range(8))
def test_a_prefix_may_end_above_the_only_network_below_it(seed):
    draw = np.random.default_rng(seed)
    above, below = (
        "state_dict_ema.",
        "".join(draw.choice(["module.", "net.", "_orig_mod."], 1 + seed % 3)),
    )
    ours = {n: a + 1 for n, a in named_as_ours().items()}
    arrays = {f"state_dict.{n}": a for n, a in named_as_ours().items()}
    arrays |= {above + below + n: a for n, a in ours.items()}
    arrays[f"{above}updates"] = np.array(3)
    names = {"layer1.weight": "layer1.weight"}
    for prefix in (above, above.removesuffix("."), above + below):
        check(given(prefix=prefix, names=names), {"path": arrays})
        found = imported(arrays, prefix=prefix).arrays["weights"]
        assert np.array_equal(found, imported(ours).arrays["weights"])
    arrays |= {f"{above}again.{n}": a for n, a in ours.items()}
    with pytest.raises(InputError, match=f"got it below '{above}.*', '{above}again"):
        imported(arrays, prefix=above)


@pytest.mark.parametrize("lost", NAMES)
def test_a_network_that_lacks_a_tensor_is_not_replaced_by_a_copy_below(lost):
    ours = named_as_ours()
    arrays = {f"model.{n}": a for n, a in ours.items() if n != lost}
    arrays |= {f"model.ema.{n}": a + 1 for n, a in ours.items()}
    for prefix in ("model", "model."):
        with pytest.raises(InputError, match=f"the tensor '{lost}' of shape"):
            imported(arrays, prefix=prefix)


WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@pytest.mark.parametrize("seed", range(12))
def test_parts_of_names_that_wrappers_add_do_not_count(seed):
    draw = np.random.default_rng(seed)
    arrays, ours = {}, named_as_ours()
    around = {layer: draw.choice(WRAPPERS, draw.integers(3)) for layer in "123"}
    for name, array in ours.items():
        layer, _, part = name.partition(".")
        path = [layer, *around[layer[-1]], part]
        arrays[".".join(["module", *draw.choice(WRAPPERS, 0), *path])] = array
    expected = imported(ours).arrays["weights"]
    assert np.array_equal(imported(arrays).arrays["weights"], expected)
    # Names that have such parts are those of the file.
    names = {
        name: theirs.removeprefix("module.")
        for name, theirs in zip(ours, arrays, strict=True)
    }
    check(given(names=names), {"path": arrays})
    assert np.array_equal(imported(arrays, names=names).arrays["weights"], expected)


def test_two_arrays_that_differ_by_a_wrapper_alone_keep_their_names():
    arrays = named_as_ours()
    arrays["layer1._orig_mod.weight"] = arrays["layer1.weight"] + 1
    with pytest.raises(InputError, match=r"got 'layer1\._orig_mod\.weight' too"):
        imported(arrays)


@pytest.mark.parametrize("seed", range(12))
def test_copies_of_a_network_anywhere_in_a_file_are_told_apart(seed):
    draw = np.random.default_rng(seed)
    places = draw.permutation(["", "ema.", "model.", "model.shadow.", "best.net."])
    chosen = places[: draw.integers(2, 5)]
    copies = {
        place: {name: array + n for name, array in named_as_ours().items()}
        for n, place in enumerate(chosen)
    }
    arrays = {place + name: a for place in chosen for name, a in copies[place].items()}
    with pytest.raises(InputError, match="expected the network once, got it below"):
        imported(arrays)
    for place in chosen:
        expected = imported(copies[place]).arrays["weights"]
        for prefix in {place, place.removesuffix(".")}:
            check(given(prefix=prefix), {"path": arrays})
            found = imported(arrays, prefix=prefix).arrays["weights"]
            assert np.array_equal(found, expected)


def test_what_lies_beside_a_network_below_its_prefix_is_refused():
    more = named_as_ours() | {"layer4.weight": np.zeros((3, 3))}
    with pytest.raises(InputError, match=r"got 'layer4.weight' too"):
        imported(flat({"model": more, "optimizer": {"0": np.ones(3)}}))


@pytest.mark.parametrize("seed", range(8))
def test_arrays_that_are_to_be_ignored_are_left_aside_and_none_that_is_needed(seed):
    draw = np.random.default_rng(seed)
    ours, prefix = named_as_ours(), draw.choice(["", "model.", "a.b.", "0."])
    more = {
        "layer1.masked_bias": np.array(-1e4),
        "layer2.attn.bias": np.tril(np.ones((3, 3), bool)),
        "rotary.freqs": np.full(2, np.nan),
        "layer3.scale": np.array(1 + 1j),
    }
    kept = {n: a for n, a in more.items() if draw.random() < 0.7}
    arrays = {prefix + n: a for n, a in {**ours, **kept}.items()}
    patterns = [f"*.{name.rpartition('.')[2]}" for name in kept]
    if "layer2.attn.bias" in kept:
        patterns.append("layer2.attn.*")
    check(given(ignore=patterns), {"path": arrays})
    found = imported(arrays, ignore=patterns).arrays["weights"]
    assert np.array_equal(found, imported(ours).arrays["weights"])
    if kept:
        with pytest.raises(InputError):
            imported(arrays)
    lost = {n: a for n, a in arrays.items() if not n.endswith("layer3.bias")}
    with pytest.raises(InputError, match=r"tensor 'layer3\.bias' of shape"):
        imported(lost, ignore=[*patterns, "*.bias"])
    with pytest.raises(InputError, match=r"ignore: .* got '\*\.maks'"):
        check(given(ignore=["*.maks"]), {"path": arrays})


def test_numbers_that_are_not_finite_count_only_below_the_prefix():
    arrays = flat({"model": named_as_ours(), "old": {"x": np.array([np.nan])}})
    check(given(prefix="model."), {"path": arrays})
    with pytest.raises(InputError, match="finite numbers, got NaN in the array 'old"):
        check(given(), {"path": arrays})


def test_a_part_of_a_name_is_no_prefix():
    """Of a Sequential of 13 layers `1` + `0.weight` is that of another layer."""
    own = {"factory": "tests.tasks.toys:make_linear", "kwargs": {"inputs": 3}}
    held = {"10.weight": np.ones((2, 3)), "10.bias": np.ones(2)}
    wanted = {"weight": "0.weight", "bias": "0.bias"}
    two = as_data(dataset(blobs()["inputs"], np.arange(30) % 2))
    with pytest.raises(
        InputError, match=r"expected the tensor 'weight' of shape \(2, 3\)"
    ):
        imported(held, two, model=own, names=wanted)
    below = {"net.0.weight": held["10.weight"], "net.0.bias": held["10.bias"]}
    found = imported(held | below, two, model=own, names=wanted)
    assert found.arrays["weights"].tolist() == [1.0] * 8


def test_a_file_without_arrays_lacks_those_of_the_network():
    check(given(), {"path": {}})
    with pytest.raises(InputError, match=r"names such as none, got 'net\.'"):
        check(given(prefix="net."), {"path": {}})
    with pytest.raises(InputError, match=r"expected the tensor 'layer1\.weight'"):
        imported({})
