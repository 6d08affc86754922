"""Slices of the loss of trained networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.landscape import LandscapeParams
from curvflow.schemas.nodes import Eigenvectors, Trajectory
from curvflow.tasks.networks.problems import read
from curvflow.tasks.probes.landscape import member_bytes
from tests.tasks.probes.checks import DATA, fits, probes
from tests.tasks.toys import (
    as_data,
    assert_declared,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    weights_of,
)

KIND = "probe.landscape"


def second_differences(arrays, name="train_loss"):
    (middle,) = np.flatnonzero(arrays["step"] == 0)
    around = arrays[name][:, middle - 1 : middle + 2]
    h = arrays["step"][1] - arrays["step"][0]
    return (around @ [1, -2, 1]) / h**2


def along_trajectory(case="tanh-ce", count=3, **params):
    data = DATA[case][1]
    result = []
    for fit in train_all(
        [
            train_member(
                data, model=DATA[case][0], epochs=6, checkpoints={"every": 2}, seed=seed
            )
            for seed in range(count)
        ]
    ):
        names = ("checkpoint", "weights", "network")
        kept = {name: fit.arrays[name] for name in names}
        trajectory = Trajectory("fit", "train", {}, kept, "t")
        taken = {"weights": weights_of(fit), "data": data, "trajectory": trajectory}
        settings = {"directions": "trajectory", **params}
        result.append(member(KIND, settings, **taken))
    return result


def images(count=24):
    rng = np.random.default_rng(0)
    return as_data(
        {
            "inputs": rng.normal(size=(count, 2, 6, 6)),
            "targets": np.arange(count) % 3,
            "test_inputs": rng.normal(size=(6, 2, 6, 6)),
            "test_targets": np.arange(6) % 3,
            "num_classes": np.array(3),
        },
        "images",
    )


NORMED = {
    "kind": "vgg",
    "stages": [[3], [4]],
    "hidden": [5],
    "batch_norm": True,
    "activation": "tanh",
}


def normed(**params):
    """A network with batch norms, whose kept statistics are not those of the start."""
    data = images()
    (fit,) = train_all([train_member(data, model=NORMED, epochs=3, batch_size=8)])
    taken = {"weights": weights_of(fit), "data": data}
    return [member(KIND, {"seed": seed, **params}, **taken) for seed in range(2)]


@pytest.mark.parametrize("case", DATA)
def test_curvature_of_the_slice_at_0_is_the_rayleigh_quotient(case):
    settings = {"distance": 1e-3, "num_points": 3, "directions": "random"}
    for asked, outcome in zip(
        probes(KIND, case, 2, **settings),
        compute(KIND, probes(KIND, case, 2, **settings)),
        strict=True,
    ):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        curvature = np.diagonal(arrays["curvature"])
        assert arrays["direction"].tolist() == arrays["other"].tolist() == [1, 2]
        np.testing.assert_allclose(
            arrays["rayleigh"] * arrays["direction_norm"] ** 2, curvature, rtol=1e-12
        )
        if case.startswith("tanh"):
            scale = np.abs(curvature).max()
            got = second_differences(arrays)
            np.testing.assert_allclose(got, curvature, atol=1e-4 * scale)
        largest = torch.linalg.eigvalsh(dense_of(asked)).abs().max().item()
        assert np.abs(arrays["rayleigh"]).max() <= largest


def test_eigenvectors_are_those_of_the_dense_hessian():
    members = probes(KIND, "tanh-ce", 3, num_directions=3, distance=1e-2, num_points=3)
    for asked, outcome in zip(members, compute(KIND, members), strict=True):
        arrays, values = outcome.arrays, torch.linalg.eigvalsh(dense_of(asked)).numpy()
        top = values[np.abs(values).argsort()[::-1][:3]]
        np.testing.assert_allclose(arrays["rayleigh"], top, rtol=1e-6)
        np.testing.assert_allclose(arrays["direction_norm"], 1, rtol=1e-12)
        np.testing.assert_allclose(second_differences(arrays), top, rtol=1e-3)
        assert arrays["converged"].all()
        assert (arrays["residuals"] <= 1e-6 * np.abs(top)).all()
        off = arrays["curvature"] - np.diag(np.diagonal(arrays["curvature"]))
        assert np.abs(off).max() < 1e-5
        assert arrays["along"].tolist() == [f"eigenvector {k}" for k in (1, 2, 3)]


def test_eigenvectors_that_have_not_converged_are_flagged():
    settings = {"max_iterations": 1, "oversampling": 0, "num_points": 3}
    (result, _) = compute(KIND, probes(KIND, "relu-ce", 2, **settings))
    assert not result.arrays["converged"].all()


def with_stored(k=2, **params):
    asked = probes("probe.eigenvalues", "tanh-ce", 2, k=k, eigenvectors=True)
    return [
        member(
            KIND,
            {"directions": "stored", "num_points": 5, **params},
            weights=probed.one("weights"),
            data=probed.one("data"),
            eigen=Eigenvectors("eigen", "probe.eigenvalues", {}, outcome.arrays, "e"),
        )
        for probed, outcome in zip(
            asked, compute("probe.eigenvalues", asked), strict=True
        )
    ]


def test_stored_eigenvectors_give_the_same_slices_and_no_search():
    stored = compute(KIND, with_stored())
    for a, b in zip(
        stored, compute(KIND, probes(KIND, "tanh-ce", 2, num_points=5)), strict=True
    ):
        np.testing.assert_allclose(
            a.arrays["train_loss"], b.arrays["train_loss"], atol=1e-5
        )
        assert a.arrays["along"].tolist() == ["eigenvector 1", "eigenvector 2"]
        assert a.arrays["num_matvecs"] == 2 < b.arrays["num_matvecs"]


def test_stored_eigenvectors_that_lack_are_refused():
    with pytest.raises(InputError, match="expected 3 eigenvectors of 45 parameters"):
        compute(KIND, with_stored(num_directions=3))
    (probed, _) = with_stored()
    bare = replace(probed.one("eigen"), arrays={"converged": np.ones(2, bool)})
    with pytest.raises(InputError, match="Set eigenvectors: true in probe"):
        compute(KIND, [replace(probed, inputs={**probed.inputs, "eigen": [bare]})] * 2)


def test_the_slice_at_0_is_the_loss_and_accuracy_of_the_weights():
    settings = {"directions": "random", "num_points": 5, "plane": True}
    members = probes(KIND, "tanh-ce", 2, **settings)
    for fit, outcome in zip(fits("tanh-ce"), compute(KIND, members), strict=False):
        arrays = outcome.arrays
        for name in ("train", "test"):
            for what in ("loss", "accuracy"):
                expected = fit.arrays[f"final_{name}_{what}"]
                at_0 = arrays[f"{name}_{what}"][:, 2]
                np.testing.assert_allclose(at_0, expected, rtol=1e-9)
            loss = arrays[f"centre_{name}_loss"]
            np.testing.assert_allclose(loss, arrays[f"{name}_loss"][0, 2], rtol=1e-14)


def test_the_plane_holds_both_lines():
    settings = {"directions": "random", "num_points": 5, "plane": True}
    for outcome in compute(KIND, probes(KIND, "relu-ce", 2, **settings)):
        arrays = outcome.arrays
        for name in ("train_loss", "test_loss"):
            lines, plane = arrays[name], arrays[f"plane_{name}"]
            np.testing.assert_allclose(plane[:, 2], lines[0], rtol=1e-12)
            np.testing.assert_allclose(plane[2, :], lines[1], rtol=1e-12)
        assert arrays["num_evaluations"] == 1 + 2 * 5 + 25


def test_near_0_the_quadratic_model_is_the_slice():
    settings = {"directions": "random", "distance": 1e-2, "num_points": 5}
    settings |= {"plane": True}
    (result, _) = compute(KIND, probes(KIND, "tanh-mse", 2, **settings))
    arrays = result.arrays
    t = np.stack(np.meshgrid(arrays["step"], arrays["step"], indexing="ij"), axis=-1)
    model = arrays["centre_train_loss"] + t @ arrays["slope"]
    model = model + 0.5 * np.einsum("abi,ij,abj->ab", t, arrays["curvature"], t)
    rise = np.ptp(arrays["plane_train_loss"])
    gap = np.abs(model - arrays["plane_train_loss"]).max()
    assert gap < 1e-3 * rise


def test_the_loss_of_sse_is_the_mean_over_samples():
    members = probes(KIND, "relu-sse", 2, directions="random", num_points=3)
    for fit, outcome in zip(fits("relu-sse"), compute(KIND, members), strict=False):
        mean = fit.arrays["final_train_loss"] / 20
        np.testing.assert_allclose(outcome.arrays["centre_train_loss"], mean, rtol=1e-9)


def test_without_test_samples_there_is_no_test_loss():
    (result, _) = compute(
        KIND, probes(KIND, "tanh-mse", 2, directions="random", num_points=3)
    )
    assert np.isnan(result.arrays["test_loss"]).all()
    assert result.arrays["num_nonfinite"] == 0


def test_losses_that_are_not_finite_are_kept_and_counted():
    settings = {"directions": "random", "distance": 1e160, "num_points": 3}
    (result, _) = compute(KIND, probes(KIND, "relu-sse", 2, **settings))
    losses = result.arrays["train_loss"]
    assert np.isfinite(losses[:, 1]).all()
    assert not np.isfinite(losses[:, [0, 2]]).any()
    assert result.arrays["num_nonfinite"] == 4


def test_a_trajectory_has_its_farthest_checkpoint_at_step_1():
    members = along_trajectory(num_points=5, plane=True)
    for asked, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        assert arrays["checkpoint"].tolist() == [0, 2, 4, 6]
        np.testing.assert_allclose(arrays["path"].max(0), 1, rtol=1e-12)
        assert arrays["path"].min() >= -1
        np.testing.assert_allclose(arrays["path"][-1], 0, atol=1e-12)
        assert arrays["explained"][0] > arrays["explained"][1] > 0
        assert arrays["explained"].sum() <= 1 + 1e-12
        kept = asked.one("trajectory")["weights"]
        length = np.linalg.norm(kept[0] - kept[-1])
        assert arrays["direction_norm"][0] == pytest.approx(length, rel=0.1)


def test_more_directions_than_a_trajectory_has_are_refused():
    with pytest.raises(InputError, match="num_directions: expected at most 3"):
        compute(KIND, along_trajectory(count=2, num_directions=4))


def test_batch_norms_are_taken_with_the_statistics_kept():
    settings = {"distance": 1e-3, "num_points": 3, "num_directions": 2}
    for outcome in compute(KIND, normed(directions="random", **settings)):
        arrays = outcome.arrays
        curvature = np.diagonal(arrays["curvature"])
        # Pooling has kinks, but none that steps so small meet.
        np.testing.assert_allclose(second_differences(arrays), curvature, rtol=1e-3)
    for outcome in compute(KIND, normed(**settings)):
        assert outcome.arrays["converged"].all()
        got = second_differences(outcome.arrays)
        np.testing.assert_allclose(got, outcome.arrays["rayleigh"], rtol=1e-3)


def test_scales_of_norms_and_biases_stay_unless_requested():
    still, _ = compute(KIND, normed(directions="random", num_points=3))
    (probed, _) = normed()
    layout = read(str(probed.one("weights")["network"])).network.layout
    weights = probed.one("weights")["weights"]
    parts = np.split(weights[: layout.size], np.cumsum(layout.sizes)[:-1])
    of_filters = [
        part for part, shape in zip(parts, layout.shapes, strict=True) if len(shape) > 1
    ]
    norms = still.arrays["direction_norm"]
    length = np.linalg.norm(np.concatenate([p.ravel() for p in of_filters]))
    np.testing.assert_allclose(norms, length, rtol=1e-12)
    moved, _ = compute(KIND, normed(directions="random", num_points=3, biases=True))
    whole = np.linalg.norm(weights[: layout.size])
    np.testing.assert_allclose(moved.arrays["direction_norm"], whole, rtol=1e-12)


@pytest.mark.parametrize("directions", ["eigenvectors", "random", "trajectory"])
def test_results_do_not_depend_on_the_width_of_the_tile(directions):
    if directions == "trajectory":
        members = along_trajectory(count=5, num_points=5)
    else:
        members = probes(KIND, "tanh-ce", 5, directions=directions, num_points=5)
    members = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for seed, m in enumerate(members)
    ]
    reference = compute(KIND, members)
    for width in (2, 3):
        for result, expected in zip(
            compute(KIND, members[:width]), reference, strict=False
        ):
            for name in ("train_loss", "test_loss", "curvature", "slope"):
                np.testing.assert_allclose(
                    result.arrays[name], expected.arrays[name], rtol=1e-9, atol=1e-12
                )


def test_seeds_draw_other_directions_and_equal_seeds_equal_ones():
    members = probes(KIND, "tanh-ce", 1, directions="random", num_points=3) * 3
    seeded = [
        replace(m, params=m.params.model_copy(update={"seed": seed}))
        for m, seed in zip(members, (0, 1, 0), strict=True)
    ]
    a, b, c = (outcome.arrays["train_loss"] for outcome in compute(KIND, seeded))
    assert np.array_equal(a, c)
    assert not np.allclose(a[:, 0], b[:, 0])


def test_more_directions_than_parameters_are_refused():
    with pytest.raises(InputError, match="at most the 45 parameters, got 46"):
        compute(KIND, probes(KIND, "tanh-ce", 2, num_directions=46))


def test_a_plane_of_one_direction_is_refused():
    with pytest.raises(ValidationError, match="num_directions of at least 2"):
        LandscapeParams(plane=True, num_directions=1)


def test_golden_numbers():
    settings = {"directions": "random", "num_points": 3}
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2, **settings))[0].arrays
    np.testing.assert_allclose(arrays["train_loss"][:, 0], GOLDEN, rtol=1e-7)


GOLDEN = [1.2123523993774725, 1.107240077048733]


def test_memory_counts_points_and_data():
    (probed,) = probes(KIND, "tanh-ce", 1)
    (more,) = probes(KIND, "tanh-ce", 1, num_points=101)
    assert member_bytes(more) > member_bytes(probed) > 0


def tensors(asked):
    layout = read(str(asked.one("weights")["network"])).network.layout
    weights = asked.one("weights")["weights"][: layout.size]
    parts = np.split(weights, np.cumsum(layout.sizes)[:-1])
    return dict(zip(layout.names, parts, strict=True))


def test_directions_of_some_layers_move_these_alone():
    settings = {"directions": "random", "num_points": 3, "layers": ["layer2.*"]}
    for asked, outcome in zip(
        probes(KIND, "tanh-ce", 2, **settings),
        compute(KIND, probes(KIND, "tanh-ce", 2, **settings)),
        strict=True,
    ):
        arrays = outcome.arrays
        length = np.linalg.norm(tensors(asked)["layer2.weight"])
        np.testing.assert_allclose(arrays["direction_norm"], length, rtol=1e-12)
        assert arrays["along"][1] == "random 2 of layer2.*"


def test_eigenvectors_of_some_layers_are_those_of_their_dense_block():
    settings = {"num_points": 3, "distance": 1e-2, "layers": ["layer1.*"]}
    members = probes(KIND, "tanh-ce", 3, **settings)
    for asked, outcome in zip(members, compute(KIND, members), strict=True):
        sizes = {name: len(part) for name, part in tensors(asked).items()}
        first = sizes["layer1.weight"] + sizes["layer1.bias"]
        block = dense_of(asked)[:first, :first]
        values = torch.linalg.eigvalsh(block).numpy()
        top = values[np.abs(values).argsort()[::-1][:2]]
        np.testing.assert_allclose(outcome.arrays["rayleigh"], top, rtol=1e-6)
        got = second_differences(outcome.arrays)
        np.testing.assert_allclose(got, top, rtol=1e-3)


def test_about_zero_a_slice_is_the_loss_of_a_network_without_these_weights():
    settings = {"directions": "random", "num_points": 3, "plane": True}
    settings |= {"layers": ["layer2.*"], "centre": "zero"}
    members = probes(KIND, "tanh-ce", 2, **settings)
    for asked, outcome in zip(members, compute(KIND, members), strict=True):
        arrays = outcome.arrays
        # All outputs are zero, so that all classes are as likely.
        classes = int(asked.one("data")["num_classes"])
        assert arrays["centre_train_loss"] == pytest.approx(np.log(classes), rel=1e-12)
        assert np.ptp(arrays["train_loss"]) > 0
        # The loss is convex in the last layer.
        assert (second_differences(arrays) > 0).all()
        assert arrays["along"][0] == "random 1 of layer2.* about zero"
    (kept,) = {id(a.one("weights")) for a in members[:1]}
    assert kept == id(members[0].one("weights"))
    assert np.abs(tensors(members[0])["layer2.weight"]).min() > 0


def test_each_direction_has_a_layer_of_its_own():
    layers = ["layer1.weight", "layer2.weight"]
    settings = {"directions": "random", "num_points": 5, "plane": True}
    settings |= {"layers": layers, "layer_each": True, "distance": 1.0}
    members = probes(KIND, "tanh-ce", 2, centre="zero", **settings)
    for asked, outcome in zip(members, compute(KIND, members), strict=True):
        arrays, given = outcome.arrays, tensors(asked)
        lengths = [np.linalg.norm(given[name]) for name in layers]
        np.testing.assert_allclose(arrays["direction_norm"], lengths, rtol=1e-12)
        assert arrays["along"].tolist() == [
            f"random {k} of {name} about zero" for k, name in enumerate(layers, 1)
        ]
        # Without the last layer's weights the first one's do not matter.
        still = arrays["plane_train_loss"][:, 2]
        np.testing.assert_allclose(still, still[0], rtol=1e-12)
        assert np.ptp(arrays["plane_train_loss"][4]) > 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"directions": "stored", "layers": ["layer1.*"]}, "layers cannot be combined"),
        ({"directions": "trajectory", "centre": "zero"}, "centre zero cannot be"),
        ({"layers": ["a", "b"], "layer_each": True}, "layer_each cannot be combined"),
        (
            {"directions": "random", "layers": ["a"], "layer_each": True},
            "an entry for each of 2",
        ),
    ],
)
def test_layers_that_do_not_fit_the_directions_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        LandscapeParams(**settings)


def test_layers_that_are_not_there_are_refused():
    with pytest.raises(InputError, match=r"layers: .* got layer9"):
        compute(KIND, probes(KIND, "tanh-ce", 1, layers=["layer9.*"]))
