"""Learning coefficients of samples and tokens, whose mean is that of the whole loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.nodes import DrawnLosses, NodeData
from curvflow.tasks.probes.learning_coefficients.llc import member_bytes
from tests.tasks.probes.checks import probes
from tests.tasks.probes.observables.gaussians import (
    MODELS,
    assert_near,
    computed,
    drawn,
)
from tests.tasks.test_tokens import DECODER, mean_loss, module_at, text
from tests.tasks.toys import (
    as_data,
    assert_declared,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)

KIND = "probe.llc_pointwise"
GIVEN = {
    "calibrate": "none",
    "sampling_method": "mala",
    "lr": 1e-3,
    "localization": 10.0,
    "num_burnin_steps": 4,
    "num_steps_bw_draws": 2,
    "num_draws": 8,
    "num_chains": 2,
}


@pytest.mark.parametrize("number", range(3))
def test_coefficients_of_groups_are_those_of_the_gaussian(number):
    model = MODELS[number]
    outcome = computed(KIND, drawn(model), observables={"subsets": model.groups})
    assert_declared(KIND, outcome)
    assert_near(outcome.arrays, "llc", model.known()[KIND])


def edge(outcome):
    return DrawnLosses("llc", "probe.llc", {}, outcome.arrays, "draws")


@pytest.fixture(scope="module")
def tokens():
    data = text(samples=6)
    (trained,) = train_all([train_member(data, model=DECODER, epochs=2)])
    inputs = {"weights": weights_of(trained), "data": data}
    kept = {"keep_losses": "tokens", "observed": "both", "keep_draws": True}
    (outcome,) = compute("probe.llc", [member("probe.llc", GIVEN | kept, **inputs)])
    return data, outcome


def test_losses_of_tokens_are_kept_at_every_draw(tokens):
    data, outcome = tokens
    assert_declared("probe.llc", outcome)
    arrays = outcome.arrays
    rows, places = arrays["observed_row"], arrays["observed_token"]
    for chain, draw in ((0, 0), (1, 5)):
        flat_D = torch.as_tensor(arrays["draws"][chain, draw])
        net = module_at(flat_D)
        for number in (0, 7, len(rows) - 1):
            prefix = "test_" if arrays["observed_is_test"][number] else ""
            row, place = rows[number], places[number]
            inputs, labels = (
                torch.as_tensor(data[prefix + name][[row]])
                for name in ("inputs", "targets")
            )
            with torch.no_grad():
                logits = net(inputs)[0, place].log_softmax(-1)
            expected = -float(logits[labels[0, place]])
            got = arrays["observed_losses"][chain, draw, number]
            assert got == pytest.approx(expected, rel=1e-10)
            assert arrays["observed_label"][number] == labels[0, place]
        whole = float(mean_loss(net, flat_D, data))
        assert arrays["loss_trace"][chain, draw] == pytest.approx(whole, rel=1e-10)


def test_the_coefficients_of_tokens_have_that_of_the_loss_as_their_mean(tokens):
    _, outcome = tokens
    whole = outcome.arrays["llc_mean"]
    names = {}
    for by in ("kept", "sample", "token", "all"):
        arrays = computed(KIND, edge(outcome), observables={"by": by}).arrays
        assert arrays["llc"].mean() == pytest.approx(whole, rel=1e-9)
        names[by] = arrays["observable"].tolist()
    assert names["kept"][5] == "train sample 1 token 1"
    assert names["token"] == [f"train token {place}" for place in range(4)]
    assert names["all"] == ["train"]


OF_LABELS = {
    "plain": "cross_entropy",
    "smooth": {"kind": "cross_entropy", "label_smoothing": 0.2},
    "weighed": {"kind": "cross_entropy", "class_weights": [0.5, 2.0, 1.0]},
}
# Averages over the draws, by their names, and what they are asked of.
ASKED = {
    "covariance": ("probe.covariances", {"rows": {"by": "kept"}}),
    "susceptibility": ("probe.susceptibility", {"shifts": {"by": "label"}}),
    "llc": (KIND, {"observables": {"by": "all"}}),
}


def observed(inputs, targets, loss):
    """Return chains about a network fitted to all rows, and averages over them."""
    parts = inputs, targets, inputs[:0], targets[:0]
    data = as_data(dataset_of(np.float64, 3, *parts), digest=f"{len(inputs)} rows")
    (fit,) = train_all([train_member(data, loss=loss)])
    settings = GIVEN | {"nbeta": 20.0, "keep_losses": "samples"}
    given = {"weights": weights_of(fit), "data": data}
    (outcome,) = compute("probe.llc", [member("probe.llc", settings, **given)])
    averages = {
        name: computed(kind, edge(outcome), **params).arrays[name]
        for name, (kind, params) in ASKED.items()
    }
    return outcome, averages


@pytest.mark.parametrize("loss", OF_LABELS)
def test_samples_whose_label_does_not_count_are_as_if_they_were_not_there(loss):
    random = np.random.default_rng(5)
    labels, inputs = random.integers(0, 3, 14), random.normal(size=(14, 2))
    counts = random.random(14) > 0.3
    assert 0 < counts.sum() < 14
    masked, got = observed(inputs, np.where(counts, labels, -100), OF_LABELS[loss])
    rest, wanted = observed(inputs[counts], labels[counts], OF_LABELS[loss])
    losses = masked.arrays["observed_losses"]
    assert np.isnan(losses[..., ~counts]).all()
    assert masked.arrays["observed_count"].tolist() == counts.tolist()
    np.testing.assert_allclose(losses[..., counts], rest.arrays["observed_losses"])
    for name in ASKED:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-8, atol=1e-12)
    number = int(np.flatnonzero(~counts)[0])
    with pytest.raises(InputError, match=f"a label that counts, got {number} of"):
        computed(KIND, edge(masked), observables={"subsets": {"none": [number]}})


def of_both_splits(labels, test_labels):
    """Return chains that observe the samples of both splits, of random inputs."""
    inputs = np.random.default_rng(6).normal(size=(8, 2))
    parts = inputs[: len(labels)], labels, inputs[-len(test_labels) :], test_labels
    data = as_data(dataset_of(np.float64, 3, *map(np.array, parts)), digest=str(labels))
    (fit,) = train_all([train_member(data, epochs=2)])
    settings = GIVEN | {"nbeta": 20.0, "keep_losses": "samples", "observed": "both"}
    given = {"weights": weights_of(fit), "data": data}
    (outcome,) = compute("probe.llc", [member("probe.llc", settings, **given)])
    return edge(outcome)


def test_samples_of_the_other_split_are_none_of_a_subset():
    draws = of_both_splits([0, 1, -100, 2, 0, 1], [2, -100])

    def refused(split, number):
        wanted = {"split": split, "subsets": {"some": [number]}}
        with pytest.raises(InputError) as caught:
            computed(KIND, draws, observables=wanted)
        return str(caught.value)

    # Number 4 is of a training sample, and number 1 counts in training alone.
    assert "numbers of the samples that 'llc' observes, got 4. Low" in refused(
        "test", 4
    )
    assert "a label that counts, got 1 of 'llc' without" in refused("test", 1)
    assert "a label that counts, got 2 of 'llc' without" in refused("train", 2)
    wanted = {"split": "train", "subsets": {"some": [1, 4]}}
    assert computed(KIND, draws, observables=wanted).arrays["llc"].shape == (1,)


def test_a_split_of_which_no_label_counts_is_refused():
    draws = of_both_splits([0, 1, 2], [-100, -100])
    message = r"expected test samples with a label that counts in 'llc', got none\. Obs"
    with pytest.raises(InputError, match=message):
        computed(KIND, draws, observables={"split": "test"})


@pytest.mark.parametrize("kept", ["samples", "labels"])
def test_more_draws_go_on_with_their_losses(kept):
    settings = {**GIVEN, "keep_losses": kept, "observed": "both", "max_observed": 6}
    whole = probes("probe.llc", "tanh-ce", 2, **settings | {"num_draws": 12})
    first = compute("probe.llc", probes("probe.llc", "tanh-ce", 2, **settings))
    longer = compute("probe.llc", whole)
    resumed = compute(
        "probe.llc",
        [
            replace(each, earlier=NodeData("llc", "probe.llc", {}, one.arrays, "d"))
            for each, one in zip(whole, first, strict=True)
        ],
    )
    for one, other in zip(longer, resumed, strict=True):
        for name in one.arrays:
            if name.startswith("observed"):
                assert np.array_equal(
                    one.arrays[name], other.arrays[name], equal_nan=True
                )


def test_without_kept_losses_the_chains_are_the_same():
    kept, plain = (
        compute("probe.llc", probes("probe.llc", "tanh-ce", 2, **GIVEN, **how))
        for how in ({"keep_losses": "labels"}, {})
    )
    for one, other in zip(kept, plain, strict=True):
        for name in ("loss_trace", "distance_trace", "llc_mean", "reason"):
            assert np.array_equal(one.arrays[name], other.arrays[name])
        assert "observed_losses" not in other.arrays
        shares = computed(KIND, edge(one)).arrays["llc"]
        count = one.arrays["observed_count"]
        total = (shares * count / count.sum()).sum()
        assert total == pytest.approx(float(one.arrays["llc_mean"]), rel=1e-9)


def test_memory_is_counted_for_what_is_kept():
    plain, kept, few = (
        member_bytes(probes("probe.llc", "tanh-ce", 1, **GIVEN, **how)[0])
        for how in (
            {},
            {"keep_losses": "samples", "observed": "both"},
            {"keep_losses": "samples", "max_observed": 5},
        )
    )
    draws = GIVEN["num_chains"] * GIVEN["num_draws"]
    assert kept - plain == 2 * 8 * draws * (30 + 8)
    assert few - plain == 2 * 8 * draws * 5
    (asked,) = probes("probe.llc", "tanh-ce", 1, **GIVEN, keep_losses="tokens")
    assert member_bytes(asked) > 0
    with pytest.raises(InputError, match="without labels of tokens, got tokens"):
        compute("probe.llc", [asked])
