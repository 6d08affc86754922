"""One localization for several estimates, and estimates that take it."""

import numpy as np
import pytest

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Localized, Member, Outcome
from curvflow.stores.local import LocalStore
from curvflow.tasks.registry import Machine, find

KIND = "aggregate.localization"
GAMMAS = (5.0, 17.0, 8.0, 6.0)


def estimate(gamma, nbeta=30.0, status="ok"):
    arrays = {"localization": np.array(gamma), "nbeta": np.array(nbeta)}
    return Localized("llc", "probe.llc", {}, arrays, "", status)


def made(nodes, **params) -> Outcome:
    checked = find_kind(KIND).params.model_validate({"over": "seed", **params})
    (outcome,) = find(KIND).compute([Member(checked, {"of": nodes})], Machine())
    return outcome


@pytest.mark.parametrize(
    ("take", "gamma"), [("largest", 17.0), ("median", 7.0), ("smallest", 5.0)]
)
def test_it_is_one_of_theirs(take, gamma):
    found = made([estimate(one) for one in GAMMAS], take=take).arrays
    assert found["localization"].item() == gamma
    assert (found["smallest"].item(), found["largest"].item()) == (5.0, 17.0)
    assert found["count"].item() == 4


def test_estimates_that_failed_are_counted_and_have_no_say():
    found = made([estimate(5.0), estimate(np.nan, status="diverged")]).arrays
    assert found["localization"].item() == 5.0
    assert found["count"].item() == found["diverged"].item() == 1
    with pytest.raises(InputError, match="an estimate with a localization, got none"):
        made([estimate(np.nan, status="diverged")])


def test_estimates_at_other_temperatures_are_refused():
    with pytest.raises(
        InputError, match=r"at one nbeta, got 30 to 60\. Leave the axis"
    ):
        made([estimate(5.0), estimate(5.0, nbeta=60.0)])


def study(seeds, **llc):
    sampled = {"use": "probe.llc", "weights": "fit", "num_chains": 2}
    short = {"num_draws": 8, "num_steps_bw_draws": 1}
    stages = {
        "xor": {"use": "data.xor"},
        "fit": {
            "use": "train",
            "data": "xor",
            "model": {"kind": "mlp", "hidden": [2]},
            "rule": {"rule": "sgd", "lr": 0.1},
            "epochs": 20,
            "seed": "${seed}",
        },
        "pilot": {**sampled, **short},
        "hold": {"use": KIND, "of": "pilot", "over": "seed"},
        "llc": {**sampled, **short, **(llc or {"hold": "hold"})},
    }
    return curvflow.Study(study="shared", axes={"seed": seeds}, stages=stages)


def test_all_estimates_are_at_it_and_one_more_computes_what_it_changes(tmp_path):
    store = str(tmp_path / "store")
    found = curvflow.run(study([0, 1]), store=store, workers=1)
    chosen = found["pilot"]["localization"].values
    assert len(set(chosen)) == 2
    assert set(found["llc"]["localization"].values) == {chosen.max()}
    given = curvflow.run(
        study([0, 1], localization=float(chosen.max())),
        store=str(tmp_path / "given"),
        workers=1,
    )
    assert np.array_equal(given["llc"]["llc_mean"], found["llc"]["llc_mean"])
    written = (
        len(LocalStore(tmp_path / "store").index().receipts) + 1
    )  # the table of one seed
    # The largest is there still, so that estimates at it stand.
    largest = int(chosen.argmax())
    fewer = curvflow.run(study([largest]), store=store, workers=1)
    assert fewer["llc"]["localization"].item() == chosen.max()
    assert fewer["llc"]["llc_mean"].item() == found["llc"]["llc_mean"][largest]
    assert len(LocalStore(tmp_path / "store").index().receipts) == written


def test_a_localization_given_twice_is_refused():
    with pytest.raises(StudyError, match=r"localization.*hold"):
        study([0, 1], localization=3.0, hold="hold")


def test_other_results_are_no_hold():
    with pytest.raises(StudyError, match="expected a stage that returns Hold"):
        study([0, 1], hold="pilot")
