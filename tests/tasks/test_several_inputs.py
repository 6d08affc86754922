"""Data whose samples have several inputs, for modules that take them by name."""

import json
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.array import ArrayParams, check, samples_of, select
from curvflow.schemas.kinds.shared.several_inputs import pack
from curvflow.schemas.nodes import Member
from curvflow.tasks.networks.problems import load_samples, read
from curvflow.tasks.registry import Machine, find
from tests.tasks.toys import (
    as_data,
    assert_declared,
    compute,
    dense_of,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

COUNT, TOKENS = 14, 4


class Reader(nn.Module):
    """The masked mean of embeddings beside a number, and a head."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 2), nn.Linear(3, 2)

    def forward(self, input_ids, attention_mask, age):
        weights = attention_mask.to(age)[..., None]
        rows = torch.tanh(self.table(input_ids)) * weights
        mean = rows.sum(1) / weights.sum(1)
        logits = self.head(torch.cat([mean, age[:, None]], 1))
        return {"logits": logits, "hidden": mean}


class Brancher(Reader):
    """The same, which looks whether anything is masked, as Transformers do."""

    def forward(self, input_ids, attention_mask, age):
        if attention_mask.all():
            age = age + 0
        return super().forward(input_ids, attention_mask, age)


class Wrapper(nn.Module):
    """The same, of one array of real numbers."""

    def __init__(self):
        super().__init__()
        self.of = Reader()

    def forward(self, x):
        ids, mask = x[:, :TOKENS].abs().long() % 5, x[:, TOKENS:-1] > 0
        mask = torch.cat([torch.ones_like(mask[:, :1]), mask[:, 1:]], 1)
        return self.of(ids, mask, x[:, -1])["logits"]


@cache
def arrays():
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, TOKENS + 1, size=(COUNT, 1))
    return {
        "input_ids": draw.integers(0, 5, size=(COUNT, TOKENS)),
        "attention_mask": np.arange(TOKENS) < lengths,
        "age": draw.normal(size=COUNT),
        "y": np.arange(COUNT) % 2,
    }


INPUTS = ("input_ids", "attention_mask", "age")


def stored(**params):
    given = {"path": "a.npz", "inputs": list(INPUTS), "targets": "y", **params}
    files = {"path": arrays()}
    checked = ArrayParams.model_validate(given)
    check(checked, files)
    (outcome,) = find("data.array").compute(
        [Member(checked, {}, files=files)], Machine()
    )
    assert_declared("data.array", outcome)
    return as_data(outcome.arrays, json.dumps(params))


def flat():
    data = arrays()
    rows = [data[name].reshape(COUNT, -1).astype(float) for name in INPUTS]
    whole = {"x": np.concatenate(rows, 1), "y": data["y"]}
    (outcome,) = find("data.array").compute(
        [
            Member(
                ArrayParams.model_validate(
                    {"path": "a.npz", "inputs": "x", "targets": "y"}
                ),
                {},
                files={"path": whole},
            )
        ],
        Machine(),
    )
    return as_data(outcome.arrays, "flat")


def fits(data, name):
    model = {"factory": f"{__name__}:{name}"}
    how = {"model": model, "epochs": 3, "batch_size": 5}
    return train_all([train_member(data, seed=seed, **how) for seed in (0, 1)])


@cache
def both():
    return fits(stored(), "Reader"), fits(flat(), "Wrapper")


def test_a_module_of_several_inputs_trains_as_its_wrapper_of_one():
    for fit, twin in zip(*both(), strict=True):
        np.testing.assert_array_equal(fit.arrays["weights"], twin.arrays["weights"])
        assert [
            part[0] for part in json.loads(str(fit.arrays["network"]))["input_parts"]
        ] == list(INPUTS)


def test_a_module_that_branches_on_a_mask_is_computed_apart():
    for fit, twin in zip(fits(stored(), "Brancher"), both()[0], strict=True):
        problem = read(str(fit.arrays["network"]))
        assert "one after another" in problem.network.note
        got, expected = (f.arrays["weights"] for f in (fit, twin))
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def probed(kind, **params):
    several, one = (
        [member(kind, params, weights=weights_of(fit), data=data) for fit in of]
        for of, data in zip(both(), (stored(), flat()), strict=True)
    )
    return several, one


def test_curvature_and_chains_are_those_of_the_wrapper():
    several, one = probed("probe.dense")
    torch.testing.assert_close(
        matrix_of(several[0]), dense_of(one[0]), rtol=0, atol=1e-10
    )
    how = {
        "calibrate": "none", "sampling_method": "sgld", "lr": 1e-3, "batch_size": 4,
        "localization": 1.0, "num_draws": 8, "num_burnin_steps": 1, "num_chains": 2,
        "num_steps_bw_draws": 1,
    }  # fmt: skip
    several, one = (compute("probe.llc", of) for of in probed("probe.llc", **how))
    for got, expected in zip(several, one, strict=True):
        np.testing.assert_allclose(
            got.arrays["loss_trace"], expected.arrays["loss_trace"], rtol=1e-12
        )


def test_splits_and_subsets_keep_the_inputs_of_a_sample_together():
    whole = stored(test_fraction=0.3, seed=1)
    assert len(whole["test_inputs"]) == 4
    subset = member("data.modify", {"num_train": 6, "label_noise": 0.2}, data=whole)
    (outcome,) = compute("data.modify", [subset])
    assert_declared("data.modify", outcome)
    assert str(outcome.arrays["input_parts"]) == str(whole["input_parts"])
    rows = {row.tobytes() for row in whole["inputs"]}
    assert {row.tobytes() for row in outcome.arrays["inputs"]} <= rows
    assert fits(as_data(outcome.arrays, "subset"), "Reader")[0].status == "ok"


def test_whole_numbers_alone_stay_whole():
    data = stored(inputs={"input_ids": "input_ids", "mask": "attention_mask"})
    assert data["inputs"].dtype == np.int64
    assert data["inputs"].shape == (COUNT, 2 * TOKENS)
    params = ArrayParams(path="a", inputs=INPUTS, targets="y")
    assert samples_of(params, {"path": arrays()}).shape == (2 * TOKENS + 1,)


@pytest.mark.parametrize("name", ["crop", "flatten", "normalise", "permute_pixels"])
def test_what_changes_one_input_is_refused(name):
    value = {"crop": 1, "normalise": "unit"}.get(name, True)
    with pytest.raises(
        InputError, match=f"one input a sample for {name}, got input_ids"
    ):
        compute("data.modify", [member("data.modify", {name: value}, data=stored())])


def test_models_and_data_of_other_inputs_are_refused():
    with pytest.raises(InputError, match="one input a sample for mlp, got input_ids, "):
        train_all([train_member(stored(), epochs=1)])
    problem = read(str(both()[0][0].arrays["network"]))
    with pytest.raises(
        InputError, match=r"inputs of the training, input_ids.*one input"
    ):
        load_samples(problem, [flat()], "", "cpu", torch.float64)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inputs": ["input_ids", "no"]}, "expected an array of the file, got 'no'"),
        (
            {"test_inputs": ["age"], "test_targets": "y"},
            "expected the inputs input_ids, attention_mask, age, got age",
        ),
    ],
)
def test_names_that_do_not_fit_are_refused_while_planning(params, message):
    given = {"path": "a.npz", "inputs": list(INPUTS), "targets": "y", **params}
    with pytest.raises(InputError, match=message):
        select(ArrayParams.model_validate(given), {"path": arrays()})


def test_rows_that_are_not_as_many_and_large_numbers_are_refused():
    ids = arrays()["input_ids"]
    with pytest.raises(InputError, match="as many rows in each, got 14 of a, 13 of b"):
        pack("inputs", {"a": ids, "b": ids[1:]})
    with pytest.raises(InputError, match="whole numbers below 2\\^24 beside real ones"):
        pack("inputs", {"a": ids + (1 << 24), "b": ids.astype(float)})


def test_whole_numbers_of_any_kind_keep_their_values_or_are_refused():
    large, small = np.array([2**62 + 7], np.uint64), np.array([-(2**62) - 1])
    packed, _ = pack("inputs", {"a": large, "b": small, "c": np.array([200], np.uint8)})
    assert packed.tolist() == [[2**62 + 7, -(2**62) - 1, 200]]
    for beyond in (np.array([2**63], np.uint64), np.array([-(2**63)])):
        with pytest.raises(InputError, match=r"inputs.a: expected whole numbers below"):
            pack("inputs", {"a": beyond, "b": small})
    with pytest.raises(InputError, match="below 2\\^24 beside real ones, got 9223372"):
        pack("inputs", {"a": beyond, "b": np.array([0.5])})


def test_a_number_for_all_samples_and_a_name_twice_are_refused():
    with pytest.raises(InputError, match=r"inputs\.a: expected a row for each sample"):
        pack("inputs", {"a": np.array(3), "b": np.array(3)})
    params = ArrayParams(path="a.npz", inputs=("age", "age"), targets="y")
    with pytest.raises(InputError, match="expected each name once, got age, age"):
        select(params, {"path": arrays()})
    packed, _ = pack("inputs", {"a": np.empty((0, 2)), "b": np.empty((0, 3))})
    assert packed.shape == (0, 5)


def test_none_of_them_is_augmented():
    reader = {"factory": f"{__name__}:Reader"}
    noisy = train_member(stored(), model=reader, epochs=1, augment={"noise": 0.1})
    with pytest.raises(InputError, match="augment cannot be combined with several"):
        train_all([noisy])
