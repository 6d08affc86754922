"""Training of whole tiles."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from curvflow.errors import InputError
from curvflow.schemas.kinds.train import kept_epochs, recorded_epochs
from curvflow.tasks.networks.problems import read
from curvflow.tasks.numerics import stream
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.train import member_bytes
from curvflow.tasks.training.cache_blocks import CPU_PASS_BYTES
from tests.tasks.toys import (
    ADAM,
    CPU,
    SGD,
    TANH_NET,
    as_data,
    assert_declared,
    blobs,
    train_all,
    train_member,
    waves,
    xor,
)

EVERY = {"checkpoints": {"every": 2}}


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def plain_training(outcome, data, params, steps_of):
    """Train one model by torch's own means from the same weights, in float64."""
    problem = read(str(outcome.arrays["network"]))
    layout = problem.network.layout
    first = torch.as_tensor(outcome.arrays["weights"][:1])
    tensors = [t[0].clone().requires_grad_() for t in layout.unflatten(first)]
    optimiser = torch.optim.SGD(tensors, lr=0.1, momentum=0.9)
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"])
    for rows in steps_of(params):
        optimiser.zero_grad()
        hidden = torch.tanh(functional.linear(x[rows], tensors[0], tensors[1]))
        outputs = functional.linear(hidden, tensors[2], tensors[3])
        if problem.loss == "cross_entropy":
            loss = functional.cross_entropy(outputs, y[rows].long())
        else:
            reduction = "sum" if problem.loss == "sse" else "mean"
            loss = functional.mse_loss(outputs, y[rows], reduction=reduction)
        loss.backward()
        optimiser.step()
    return torch.cat([t.detach().flatten() for t in tensors]).numpy()


@pytest.mark.parametrize(
    ("data", "loss"),
    [(blobs(), "auto"), (waves(), "mse"), (waves(), "sse"), (xor(), "auto")],
)
def test_full_batch_training_is_that_of_a_plain_loop(data, loss):
    settings = {"rule": {**SGD, "lr": 0.1}, "diverged_above": None, **EVERY}
    members = [train_member(data, seed=s, loss=loss, **settings) for s in range(3)]
    for member, outcome in zip(members, train_all(members), strict=True):
        final = plain_training(
            outcome, data, member.params, lambda p: [slice(None)] * p.epochs
        )
        np.testing.assert_allclose(
            outcome.arrays["weights"][-1], final, rtol=1e-9, atol=1e-12
        )


def test_batches_follow_the_members_own_stream():
    from curvflow.tasks.numerics import stream

    def steps(params):
        order = stream(params.seed, "order")
        for _ in range(params.epochs):
            rows = torch.randperm(30, generator=order)
            yield from rows.split(params.batch_size)

    data = blobs()
    members = [train_member(data, seed=s, batch_size=8, **EVERY) for s in range(2)]
    for member, outcome in zip(members, train_all(members), strict=True):
        final = plain_training(outcome, data, member.params, steps)
        np.testing.assert_allclose(
            outcome.arrays["weights"][-1], final, rtol=1e-9, atol=1e-12
        )


def test_results_are_as_declared_and_describe_themselves():
    data = blobs()
    outcome = train_all([train_member(data, seed=s, **EVERY) for s in range(2)])[0]
    assert_declared("train", outcome)
    arrays = outcome.arrays
    assert arrays["checkpoint"].tolist() == [0, 2, 4, 5]
    assert arrays["epoch"].tolist() == [0, 1, 2, 3, 4, 5]
    assert arrays["diverged_epoch"] == -1
    assert arrays["num_gradients"] == 5
    assert arrays["num_parameters"] == arrays["weights"].shape[1] == 24 + 21
    problem = read(str(arrays["network"]))
    final = torch.as_tensor(arrays["weights"][-1:])
    outputs = problem.network.outputs(final, torch.as_tensor(data["inputs"])[None])[0]
    labels = torch.as_tensor(data["targets"]).long()
    loss = functional.cross_entropy(outputs, labels).item()
    assert arrays["final_train_loss"] == pytest.approx(loss, rel=1e-12)
    accuracy = (outputs.argmax(1) == labels).double().mean().item()
    assert arrays["final_train_accuracy"] == pytest.approx(accuracy)


def test_curves_end_at_the_final_values_and_norms_are_those_of_the_weights():
    outcome = train_all([train_member(blobs(), checkpoints={"every": 1})] * 2)[0]
    arrays = outcome.arrays
    for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert np.isfinite(arrays[name]).all()
        assert arrays[f"final_{name}"] == arrays[name][-1]
    weights = arrays["weights"]
    np.testing.assert_allclose(
        arrays["norm_l2"], np.linalg.norm(weights, axis=1), rtol=1e-12
    )
    moved = np.linalg.norm(np.diff(weights, axis=0), axis=1)
    np.testing.assert_allclose(arrays["update_norm"], [0, *moved], rtol=1e-9)
    sizes = [18, 6, 18, 3]
    pieces = np.split(weights[-1], np.cumsum(sizes)[:-1])
    total = sum(np.linalg.norm(piece) for piece in pieces)
    assert arrays["norm_tensor_sum"] == pytest.approx(total, rel=1e-12)


def test_recording_less_often_changes_no_result():
    often, seldom = (
        train_all([train_member(blobs(), epochs=7, record_every=n)] * 2)[0].arrays
        for n in (1, 3)
    )
    assert seldom["epoch"].tolist() == [0, 3, 6, 7]
    for name in ("train_loss", "update_norm"):
        assert np.array_equal(often[name][[0, 3, 6, 7]], seldom[name])
    assert np.array_equal(often["weights"], seldom["weights"])


def test_epochs_kept_and_recorded_end_with_the_last():
    params = train_member(xor(), epochs=6, checkpoints={"every": 3}).params
    assert kept_epochs(params) == (0, 3, 6)
    assert recorded_epochs(params) == (0, 1, 2, 3, 4, 5, 6)
    assert kept_epochs(train_member(xor()).params) == (5,)


def test_equal_seeds_start_alike_under_every_rule():
    rules = [SGD, ADAM, {**ADAM, "lr": 0.5}]
    members = [train_member(blobs(), rule=rule, seed=1, **EVERY) for rule in rules]
    first = [outcome.arrays["weights"][0] for outcome in train_all(members)]
    assert np.array_equal(first[0], first[1])
    assert np.array_equal(first[0], first[2])


def test_a_rules_own_initial_law_overrides_the_models():
    rules = [{**SGD, "init": {"normal": sd}} for sd in (0.1, 2.0)]
    members = [train_member(blobs(), rule=rule, **EVERY) for rule in rules]
    small, large = (o.arrays["weights"][0] for o in train_all(members))
    np.testing.assert_allclose(large, 20 * small, rtol=1e-12)


def mixed_tile(widths):
    """Members of seeds 0, 1, ... under two rules in turn."""
    return [
        train_member(
            blobs(), seed=seed, rule=(SGD, ADAM)[seed % 2], batch_size=7, epochs=20
        )
        for seed in range(widths)
    ]


def test_results_do_not_depend_on_the_width_of_the_tile():
    reference = train_all(mixed_tile(5))
    for width in (2, 3):
        for result, expected in zip(
            train_all(mixed_tile(width)), reference, strict=False
        ):
            for name, array in result.arrays.items():
                if array.dtype.kind == "f":
                    np.testing.assert_allclose(
                        array, expected.arrays[name], rtol=1e-10, atol=1e-12
                    )


def test_two_calls_are_bitwise_equal():
    first, second = train_all(mixed_tile(4)), train_all(mixed_tile(4))
    for a, b in zip(first, second, strict=True):
        assert all(same(a.arrays[n], b.arrays[n]) for n in a.arrays)


def test_divergence_is_a_result_and_touches_no_sibling():
    def tile(lr):
        return [
            train_member(
                waves(), seed=seed, rule={**SGD, "lr": rate}, epochs=40, **EVERY
            )
            for seed, rate in enumerate([0.01, lr, 0.02])
        ]

    calm, wild = train_all(tile(0.01)), train_all(tile(1e6))
    for number in (0, 2):
        for name, array in calm[number].arrays.items():
            assert same(array, wild[number].arrays[name]), name
    lost = wild[1]
    assert_declared("train", lost)
    epoch = int(lost.arrays["diverged_epoch"])
    assert lost.status == "diverged"
    cause = "loss above 10000 times the initial one"
    assert lost.reason == f"{cause} at epoch {epoch}"
    assert 0 < epoch < 40
    assert lost.arrays["num_gradients"] == epoch
    curve = lost.arrays["train_loss"]
    assert np.isfinite(curve[:epoch]).all()
    assert np.isnan(curve[epoch:]).all()
    kept = lost.arrays["checkpoint"] < epoch
    assert np.isfinite(lost.arrays["weights"][kept]).all()
    assert np.isnan(lost.arrays["weights"][~kept]).all()
    assert np.isnan(lost.arrays["norm_tensor_sum"])


def test_a_tile_that_diverges_whole_stops_early():
    outcomes = train_all(
        [
            train_member(
                waves(), rule={**SGD, "lr": 1e6}, epochs=10**6, record_every=10**6
            )
        ]
        * 2
    )
    assert [o.status for o in outcomes] == ["diverged"] * 2


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("loss", ["mse", "sse"])
@pytest.mark.parametrize("rate", [0.01, 2.0, 1e3, 1e200])
def test_divergence_does_not_depend_on_what_is_recorded(rate, loss, batch_size):
    often, seldom = (
        train_all(
            [
                train_member(
                    waves(),
                    model={"kind": "linear"},
                    rule={"rule": "sgd", "lr": lr},
                    loss=loss,
                    seed=seed,
                    epochs=50,
                    batch_size=batch_size,
                    record_every=every,
                    checkpoints={"every": 1},
                )
                for seed, lr in enumerate([rate, 1e-3, rate])
            ]
        )
        for every in (1, 50)
    )
    for first, other in zip(often, seldom, strict=True):
        assert (first.status, first.reason) == (other.status, other.reason)
        for name in ("diverged_epoch", "num_gradients", "weights", "final_train_loss"):
            assert same(first.arrays[name], other.arrays[name]), name
        assert same(first.arrays["train_loss"][[0, -1]], other.arrays["train_loss"])
    assert often[1].status == "ok"
    assert (often[0].status == "diverged") == (rate > 1)


def test_weights_that_are_infinite_from_the_start_diverge_at_epoch_zero():
    rule = {**SGD, "init": {"normal": 1e200}}
    outcome = train_all([train_member(waves(), rule=rule)] * 2)[0]
    assert outcome.reason == "non-finite loss or weights at epoch 0"
    assert outcome.arrays["num_gradients"] == 0


def test_a_loss_that_is_huge_but_finite_is_divergence_unless_that_is_waived():
    def trained(**settings):
        rule = {**SGD, "lr": 1e6}
        return train_all([train_member(waves(), rule=rule, epochs=2, **settings)] * 2)

    huge, waived = trained()[0], trained(diverged_above=None)[0]
    assert huge.status == "diverged"
    assert waived.status == "ok"
    assert float(waived.arrays["final_train_loss"]) > 1e4


def test_members_with_data_of_their_own_train_on_it():
    data = [blobs(seed=seed) for seed in range(2)]
    both = train_all([train_member(d) for d in data])
    for data_set, outcome in zip(data, both, strict=True):
        alone = train_all([train_member(data_set)] * 2)[0]
        np.testing.assert_allclose(
            outcome.arrays["weights"], alone.arrays["weights"], rtol=1e-10
        )


def test_data_of_unequal_size_train_side_by_side():
    outcomes = train_all(
        [train_member(blobs(n)) for n in (30, 20)]
        + [train_member(blobs(num_classes=4))]
    )
    assert [o.arrays["num_parameters"] for o in outcomes] == [45, 45, 52]
    alone = train_all([train_member(blobs(20))] * 2)[0]
    assert np.array_equal(outcomes[1].arrays["weights"], alone.arrays["weights"])


def test_xor_is_solved_and_counted_by_sign():
    member = train_member(xor(), epochs=300, dtype="float32", seed=0)
    arrays = train_all([member] * 2)[0].arrays
    assert arrays["final_train_accuracy"] == 1
    assert arrays["final_train_loss"] < 1e-3
    assert np.isnan(arrays["test_loss"]).all()


def test_other_regressions_have_no_accuracy():
    arrays = train_all([train_member(waves())] * 2)[0].arrays
    assert np.isnan(arrays["final_train_accuracy"])


def test_labels_of_xor_are_learnt_by_cross_entropy():
    arrays = train_all([train_member(xor("index"), epochs=300)] * 2)[0].arrays
    assert arrays["final_train_accuracy"] == 1


@pytest.mark.parametrize(
    ("data", "loss", "message"),
    [
        (
            blobs(),
            "mse",
            "loss: expected a loss for labels, got mse. Use cross_entropy or",
        ),
        (
            waves(),
            "cross_entropy",
            "loss: expected a loss for values, got cross_entropy.",
        ),
    ],
)
def test_losses_that_do_not_fit_the_targets_are_refused(data, loss, message):
    with pytest.raises(InputError, match=message):
        train_all([train_member(data, loss=loss)])


def test_one_hot_targets_are_counted_by_their_largest_output():
    data = blobs(num_classes=2)
    rows = np.eye(2)[data["targets"].astype(int)]
    tests = np.eye(2)[data["test_targets"].astype(int)]
    arrays = {**data.arrays, "targets": rows, "test_targets": tests}
    one_hot = as_data(arrays, "one-hot")
    outcome = train_all([train_member(one_hot, epochs=40)] * 2)[0].arrays
    problem = read(str(outcome["network"]))
    final = torch.as_tensor(outcome["weights"][-1:])
    outputs = problem.network.outputs(final, torch.as_tensor(data["inputs"])[None])[0]
    right = outputs.argmax(1).numpy() == data["targets"]
    assert outcome["final_train_accuracy"] == pytest.approx(right.mean())
    assert 0.7 < right.mean() <= 1


def test_validation_samples_are_the_seeds_own_and_never_trained_on():
    settings = {"validation_fraction": 0.2, "batch_size": 8}
    outcomes = train_all([train_member(blobs(), seed=s, **settings) for s in range(3)])
    curves = [outcome.arrays["validation_loss"] for outcome in outcomes]
    assert np.isfinite(curves).all()
    data = blobs()
    for seed, outcome in enumerate(outcomes):
        order = torch.randperm(30, generator=stream(seed, "validation"))
        apart, kept = order[:6].numpy(), order[6:].numpy()
        fewer = {"inputs": data["inputs"][kept], "targets": data["targets"][kept]}
        rest = as_data({**data.arrays, **fewer}, f"rest{seed}")
        alone = train_all([train_member(rest, seed=seed, batch_size=8)] * 2)[0].arrays
        np.testing.assert_allclose(
            outcome.arrays["weights"], alone["weights"], rtol=1e-9, atol=1e-12
        )
        problem = read(str(alone["network"]))
        x = torch.as_tensor(data["inputs"][apart])[None]
        y = torch.as_tensor(data["targets"][apart]).long()[None]
        losses = problem.losses(torch.as_tensor(alone["weights"][-1:]), x, y)
        assert curves[seed][-1] == pytest.approx(losses.mean().item(), rel=1e-9)


def test_learning_rates_are_shown_as_written():
    rule = {"rule": "sgd", "lr": 0.1}
    outcome, _ = train_all([train_member(blobs(), rule=rule, dtype="float32")] * 2)
    assert set(outcome.arrays["lr"].tolist()) == {0.1}


@pytest.mark.parametrize(("fraction", "change"), [(0.01, "Raise"), (0.99, "Lower")])
def test_a_share_that_leaves_one_side_empty_is_refused(fraction, change):
    wanted = rf"^validation_fraction: .* of the 30 .* {fraction}\. {change} it\.$"
    with pytest.raises(InputError, match=wanted):
        train_all([train_member(blobs(), validation_fraction=fraction)] * 2)


def test_golden_numbers():
    arrays = train_all([train_member(blobs(), seed=s) for s in range(2)])[0].arrays
    results = [float(arrays[name]) for name in GOLDEN]
    np.testing.assert_allclose(results, list(GOLDEN.values()), rtol=1e-9)


GOLDEN = {
    "final_train_loss": 0.8832737226032645,
    "final_test_loss": 1.03999079735921,
    "norm_tensor_sum": 4.02764216658907,
}


def test_memory_grows_with_parameters_samples_and_checkpoints():
    small = member_bytes(train_member(blobs()))
    wide = {**TANH_NET, "hidden": [600]}
    assert 8 * 45 * 4 < small < 10**6
    assert member_bytes(train_member(blobs(), model=wide)) > 20 * small
    assert member_bytes(train_member(blobs(3000))) > 50 * small
    kept = train_member(blobs(), epochs=1000, checkpoints={"every": 1})
    assert member_bytes(kept) > 1000 * 45 * 8


def test_memory_follows_the_precision_and_the_bound_of_a_pass():
    wide = {**TANH_NET, "hidden": [600]}
    single, double = (
        member_bytes(train_member(blobs(300), model=wide, dtype=dtype, epochs=1))
        for dtype in ("float32", "float64")
    )
    assert 1.5 < double / single < 2.1
    huge = member_bytes(train_member(blobs(40_000), model=wide))
    assert 2 * CPU_PASS_BYTES < huge < 2 * CPU_PASS_BYTES + 10**7


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_to_the_same_weights():
    members = mixed_tile(4)
    on_gpu = find("train").compute(members, Machine("cuda:0"))
    for a, b in zip(on_gpu, find("train").compute(members, CPU), strict=True):
        np.testing.assert_allclose(
            a.arrays["weights"], b.arrays["weights"], rtol=1e-6, atol=1e-9
        )
