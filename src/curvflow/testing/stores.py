"""The contract of stores: a store's own tests inherit `StoreContract`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from curvflow.errors import (
    CorruptPayloadError,
    RemovedPayloadError,
    UnknownNameError,
)
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Array, Outcome, Status
from curvflow.schemas.records.receipts import (
    CodeRecord,
    Pin,
    Receipt,
    RunRecord,
    Settlement,
    part_digests,
    result_digest,
)
from curvflow.stores.base import Store
from curvflow.stores.log import Log

ARRAYS = {
    "numbers": np.linspace(-1, 1, 24).reshape(3, 4, 2),
    "scalar": np.array([1.5, -0.0, 7.0]),
    "single": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
    "zeros": np.zeros((3, 5)),
    "nothing": np.zeros((3, 0)),
    "nan": np.full((3, 2), np.nan),
    "infinite": np.array([[np.inf, -np.inf]] * 3),
    "flag": np.array([True, False, True]),
    "tiny": np.arange(-3, 3, dtype=np.int8).reshape(3, 2),
    "bytes": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "count": np.array([1, 2**62, -5]),
    "big": np.arange(3, dtype=">f8"),
    "word": np.array(["", "sgd", "größer ∂"]),
    "words": np.array([["a", "bb"], ["", "c"], ["d" * 300, "e"]]),
}


def arrays_of(seed: int = 0, nodes: int = 3) -> dict[str, Array]:
    """Return the arrays of a payload of some nodes."""
    return {
        "loss": np.random.default_rng(seed).normal(size=(nodes, 4)),
        "epoch": np.tile(np.array([0, 5, 10]), (nodes, 1)),
        "weights": np.random.default_rng(seed + 1).normal(size=(nodes, 3, 6)),
    }


OUTPUTS = (
    Variable("loss", "loss", ("step",)),
    Variable("epoch", "epoch", ("epoch",), dtype="int64"),
    Variable("weights", "weights", ("epoch", "parameter"), sliced="epoch"),
)


def receipt_of(
    arrays: Mapping[str, Array],
    slot: int,
    *,
    key: str | None = None,
    payload: str | None = None,
    outputs: Sequence[Variable] = (),
    status: Status = "ok",
) -> Receipt:
    """Return a receipt of one node of a payload."""
    node = {name: np.asarray(array[slot]) for name, array in arrays.items()}
    declared = outputs or [Variable(name, name) for name in arrays]
    parts = part_digests(declared, Outcome(node, status))
    return Receipt(
        key=key or f"key-{slot}",
        stage="fit",
        coords={"rule": "sgd", "seed": slot},
        kind="train",
        version=1,
        params={"seed": slot, "lr": 0.1, "whole": 1.0, "hidden": [12]},
        inputs={"data": "d" * 64},
        digest=result_digest(parts, status, ""),
        parts=parts,
        status=status,
        payload=payload,
        slot=slot,
        seconds=0.25,
        width=len(next(iter(arrays.values()))),
    )


def publish(
    store: Store, arrays: Mapping[str, Array], keys: Iterable[str], **options: Any
) -> list[Receipt]:
    """Write a payload and commit a receipt for each key."""
    payload = store.write_payload(arrays)
    receipts = [
        receipt_of(arrays, slot, key=key, payload=payload, **options)
        for slot, key in enumerate(keys)
    ]
    return store.commit(receipts)


def begin(store: Store, study: str = "study") -> RunRecord:
    """Begin a run of a study."""
    return store.begin_run(
        study,
        document={"axes": {"seed": 2}},
        environment={"python": "3.11"},
        options={"workers": 1},
    )


def end(store: Store, run: RunRecord, **changes: Any) -> RunRecord:
    """End a run, with some of its record changed."""
    given: dict[str, Any] = {
        "seconds": 1.5,
        "counts": {"executed": {"fit": 2}},
        "failures": [],
        "tables": {"fit": {"dims": ["seed"], "nodes": [[[0], [1, 0]]]}},
    }
    return store.end_run(run, **(given | changes))


class StoreContract:
    """Tests of what every store must do.

    Inherit it in a test class with a fixture `store`, and `other` where the store can
    be opened twice, and say by `lose` and `swap` how a payload is damaged.
    """

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError

    @pytest.fixture
    def other(self, store: Store) -> Store:
        """Return a second opening of the same store, if it can have one."""
        return store

    def lose(self, store: Store, payload: str) -> None:
        """Remove the content of a payload."""
        raise NotImplementedError

    def swap(self, store: Store, payload: str, other: str) -> None:
        """Put the content of `other` where `payload` is."""
        raise NotImplementedError

    @pytest.mark.parametrize("name", ARRAYS)
    def test_a_variable_of_any_type_comes_back_as_it_was(
        self, store: Store, name: str
    ) -> None:
        arrays = {name: ARRAYS[name]}
        for receipt in publish(store, arrays, ["a", "b", "c"]):
            got = store.read(receipt, [name])[name]
            expected = ARRAYS[name][receipt.slot]
            np.testing.assert_array_equal(got, expected)
            assert got.dtype.kind == ARRAYS[name].dtype.kind
            assert got.shape == expected.shape

    def test_text_held_as_objects_comes_back_as_text(self, store: Store) -> None:
        arrays = {"word": np.array(["a", "bcd"], dtype=object)}
        receipts = publish(store, arrays, ["a", "b"])
        assert [str(store.read(r, ["word"])["word"]) for r in receipts] == ["a", "bcd"]

    def test_all_variables_of_a_payload_are_read_in_one_call(
        self, store: Store
    ) -> None:
        for receipt in publish(store, ARRAYS, ["a", "b", "c"]):
            got = store.read(receipt, list(ARRAYS))
            assert list(got) == list(ARRAYS)
            for name, array in got.items():
                np.testing.assert_array_equal(array, ARRAYS[name][receipt.slot])

    def test_results_of_several_payloads_are_read_together_and_in_order(
        self, store: Store
    ) -> None:
        receipts = publish(store, arrays_of(0), ["a", "b", "c"], outputs=OUTPUTS)
        receipts += publish(store, arrays_of(1), ["d", "e", "f"], outputs=OUTPUTS)
        mixed = [receipts[number] for number in (4, 0, 2, 5, 0)]
        rows = store.read_many(mixed, ["loss", "weights@5", "weights"])
        for receipt, got in zip(mixed, rows, strict=True):
            assert not isinstance(got, Exception)
            alone = store.read(receipt, ["loss", "weights@5", "weights"])
            assert list(got) == list(alone)
            for name, array in got.items():
                np.testing.assert_array_equal(array, alone[name])
                assert (array.shape, array.dtype) == (
                    alone[name].shape,
                    alone[name].dtype,
                )

    def test_a_lost_payload_stands_in_the_place_of_its_results_alone(
        self, store: Store
    ) -> None:
        kept = publish(store, arrays_of(0), ["a", "b"], outputs=OUTPUTS)
        lost = publish(store, arrays_of(1), ["c", "d"], outputs=OUTPUTS)
        more = publish(store, arrays_of(2), ["e"], outputs=OUTPUTS)
        for receipt in (lost[0], more[0]):
            self.lose(store, receipt.payload)
        before = store.index().number
        rows = store.fetch_many([*lost, *kept, *more], ["loss"])
        unread = [n for n, row in enumerate(rows) if isinstance(row, Exception)]
        assert unread == [0, 1, 4]
        assert set(store.index().receipts) == {"a", "b"}
        assert store.index().number == before + 1  # one entry of the log for them all

    def test_equal_payloads_coincide_and_others_do_not(self, store: Store) -> None:
        first = store.write_payload(arrays_of(0))
        assert store.write_payload(arrays_of(0)) == first
        assert store.write_payload(arrays_of(1)) != first
        renamed = {f"{name}_": array for name, array in arrays_of(0).items()}
        assert store.write_payload(renamed) != first

    def test_what_is_read_and_written_shares_no_memory_with_the_store(
        self, store: Store
    ) -> None:
        arrays = arrays_of()
        (receipt,) = publish(store, arrays, ["a"])
        expected = arrays["loss"][0].copy()
        arrays["loss"][:] = 0
        for _ in range(3):
            got = store.read(receipt, ["loss"])["loss"]
            np.testing.assert_array_equal(got, expected)
            got[:] = 0

    def test_slices_and_the_whole_of_a_sliced_variable_are_read(
        self, store: Store
    ) -> None:
        arrays = arrays_of()
        receipts = publish(store, arrays, ["a", "b", "c"], outputs=OUTPUTS)
        for slot, receipt in enumerate(receipts):
            got = store.read(receipt, ["weights@5", "weights", "weights@10", "epoch"])
            weights = arrays["weights"][slot]
            np.testing.assert_array_equal(got["weights@5"], weights[1])
            np.testing.assert_array_equal(got["weights@10"], weights[2])
            np.testing.assert_array_equal(got["weights"], weights)
            assert got["epoch"].tolist() == [0, 5, 10]

    def test_a_part_that_the_result_lacks_is_refused_by_name(
        self, store: Store
    ) -> None:
        (receipt,) = publish(store, arrays_of(), ["a"], outputs=OUTPUTS)
        with pytest.raises(UnknownNameError, match=r"'weights@7'.*'weights@"):
            store.read(receipt, ["weights@7"])
        with pytest.raises(UnknownNameError, match="'weight'"):
            store.read(receipt, ["weight"])

    def test_nothing_is_read_when_nothing_is_asked(self, store: Store) -> None:
        assert store.read(replace(receipt_of(arrays_of(), 0)), []) == {}

    def test_a_diverged_part_is_read_without_a_digest(self, store: Store) -> None:
        arrays = arrays_of(nodes=2)
        arrays["loss"][1, 2] = np.nan
        receipts = publish(store, arrays, "ab", outputs=OUTPUTS, status="diverged")
        assert receipts[1].parts["loss"] == "diverged"
        np.testing.assert_array_equal(
            store.read(receipts[1], ["loss"])["loss"], arrays["loss"][1]
        )

    def test_a_payload_is_present_until_it_is_lost(self, store: Store) -> None:
        names = [store.write_payload(arrays_of(seed)) for seed in range(3)]
        assert store.present([*names, "f" * 64]) == set(names)
        self.lose(store, names[1])
        assert store.present(names) == {names[0], names[2]}
        assert store.present([]) == set()

    def test_a_lost_payload_is_reported_with_payload_and_slot(
        self, store: Store
    ) -> None:
        receipt = publish(store, arrays_of(), ["a", "b"])[1]
        self.lose(store, receipt.payload)
        with pytest.raises(CorruptPayloadError, match=f"{receipt.payload[:12]}.*miss"):
            store.read(receipt, ["loss"])

    def test_a_foreign_payload_under_the_id_is_never_read_as_ours(
        self, store: Store, other: Store
    ) -> None:
        (receipt,) = publish(store, arrays_of(0), ["a"], outputs=OUTPUTS)
        foreign = store.write_payload(arrays_of(5))
        self.swap(store, receipt.payload, foreign)
        for part in ("loss", "weights", "weights@5"):
            with pytest.raises(CorruptPayloadError, match=r"slot 0: .* not what was"):
                other.read(receipt, [part])

    def test_a_foreign_payload_with_other_variables_is_refused(
        self, store: Store, other: Store
    ) -> None:
        (receipt,) = publish(store, arrays_of(0), ["a"], outputs=OUTPUTS)
        foreign = store.write_payload(
            {"loss": np.zeros((1, 4)), "weights": np.zeros((1, 2, 6))}
        )
        self.swap(store, receipt.payload, foreign)
        for part in ("epoch", "weights", "weights@10"):
            with pytest.raises(CorruptPayloadError, match="slot 0"):
                other.read(receipt, [part])

    def test_computing_again_heals_a_corrupt_payload(self, store: Store) -> None:
        (receipt,) = publish(store, arrays_of(0), ["a"], outputs=OUTPUTS)
        self.swap(store, receipt.payload, store.write_payload(arrays_of(5)))
        with pytest.raises(CorruptPayloadError):
            store.read(receipt, ["loss"])
        assert store.write_payload(arrays_of(0)) == receipt.payload
        assert store.read(receipt, ["loss"])["loss"].shape == (4,)

    def test_the_layout_tells_shapes_and_types_without_reading(
        self, store: Store
    ) -> None:
        layout = store.layout(store.write_payload(ARRAYS))
        for name, array in ARRAYS.items():
            assert layout[name].shape == array.shape[1:]
            kind = "O" if array.dtype.kind == "U" else array.dtype.kind
            assert layout[name].dtype.kind == kind
        with pytest.raises(CorruptPayloadError, match="missing"):
            store.layout("f" * 64)

    def test_an_empty_store_has_an_empty_index(self, store: Store) -> None:
        index = store.index()
        assert (index.number, index.receipts, index.runs, index.rows) == (0, {}, [], {})

    def test_receipts_come_back_as_they_were_committed(
        self, store: Store, other: Store
    ) -> None:
        receipts = [replace(r) for r in publish(store, arrays_of(), ["a", "b", "c"])]
        index = other.index()
        assert [index.receipts[key] for key in "abc"] == receipts
        assert [index.rows[1, row] for row in range(3)] == receipts
        assert list(index.receipts["a"].parts) == list(receipts[0].parts)
        assert isinstance(index.receipts["a"].params["whole"], float)

    def test_receipts_that_differ_in_every_field_come_back(
        self, store: Store, other: Store
    ) -> None:
        first = replace(receipt_of(arrays_of(), 0), params={"x": 1, "y": None})
        second = Receipt(
            "k2", "s2", {}, "kind2", 2, {"x": 1.0}, {}, "e", {}, "diverged", "step 3"
        )
        third = replace(first, key="k3", params={"x": True, "z": {"deep": [1, 2.0]}})
        store.commit([first, second, third])
        got = [other.index().rows[1, row] for row in range(3)]
        assert got == [first, second, third]
        assert [type(r.params["x"]) for r in got] == [int, float, bool]

    def test_of_two_commits_of_a_key_the_first_wins(
        self, store: Store, other: Store
    ) -> None:
        first = publish(store, arrays_of(0), ["a", "b"])
        second = publish(other, arrays_of(1), ["b", "c", "a"])
        assert second[0] == first[1]
        assert second[2] == first[0]
        assert second[1].key == "c"
        assert store.index().receipts["b"] == first[1]
        assert sorted(store.index().receipts) == ["a", "b", "c"]

    def test_committing_the_same_result_again_adds_no_entry(
        self, store: Store, other: Store
    ) -> None:
        publish(store, arrays_of(0), ["a", "b"])
        again = publish(other, arrays_of(0), ["a", "b"])
        assert [r.key for r in again] == ["a", "b"]
        assert other.index().number == 1

    def test_a_key_given_twice_in_one_commit_counts_once(self, store: Store) -> None:
        first, two = receipt_of(arrays_of(0), 0), receipt_of(arrays_of(1), 0)
        assert store.commit([first, two]) == [first, first]
        assert list(store.index().rows) == [(1, 0)]

    def test_a_commit_of_nothing_adds_no_entry(self, store: Store) -> None:
        assert store.commit([]) == []
        assert store.index().number == 0

    def test_retiring_one_payload_spares_what_was_computed_again(
        self, store: Store, other: Store
    ) -> None:
        (receipt,) = publish(store, arrays_of(nodes=1), ["a"])
        again = replace(receipt, payload="elsewhere")
        store.retire([receipt.key], "rotten", payload=receipt.payload)
        assert receipt.key not in store.index().receipts
        store.commit([again])
        other.retire([receipt.key], "rotten", payload=receipt.payload)
        assert store.index().receipts[receipt.key].payload == "elsewhere"

    def test_retiring_up_to_a_number_spares_what_came_later(
        self, store: Store, other: Store
    ) -> None:
        publish(store, arrays_of(0), ["a", "b"])
        seen = other.index().number
        store.retire(["a"], "seen first")
        (again,) = publish(store, arrays_of(0), ["a"])
        other.retire(["a"], "seen late", upto=seen)
        assert store.index().number == 3
        other.retire(["b", "a"], "seen late", upto=seen)
        index = store.index()
        assert (index.number, index.receipts) == (4, {"a": again})
        assert index.retired["b"] == "seen late"
        other.retire(["a"], "seen now", upto=index.number)
        assert store.index().receipts == {}

    def test_a_retired_key_may_be_committed_again(
        self, store: Store, other: Store
    ) -> None:
        old = publish(store, arrays_of(0), ["a", "b"])
        other.retire(["a", "unknown"], "payload lost")
        assert list(store.index().receipts) == ["b"]
        (new,) = publish(store, arrays_of(1), ["a"])
        index = other.index()
        assert index.receipts["a"] == new
        assert index.rows[1, 0] == old[0]
        assert index.rows[3, 0] == new

    def test_the_past_is_read_as_of_a_number(self, store: Store) -> None:
        publish(store, arrays_of(0), ["a"])
        run = begin(store)
        store.retire(["a"], "why not")
        publish(store, arrays_of(1), ["a", "b"])
        end(store, run)
        past = [store.index(as_of=number) for number in range(7)]
        assert [sorted(index.receipts) for index in past] == [
            [], ["a"], ["a"], [], ["a", "b"], ["a", "b"], ["a", "b"],
        ]  # fmt: skip
        assert [index.number for index in past] == [0, 1, 2, 3, 4, 5, 5]
        assert [len(index.runs) for index in past] == [0, 0, 1, 1, 1, 1, 1]
        assert [index.runs[0].status for index in past[4:]] == [
            "interrupted", "done", "done",
        ]  # fmt: skip

    def test_an_index_does_not_change_under_its_reader(self, store: Store) -> None:
        publish(store, arrays_of(0), ["a"])
        index = store.index()
        publish(store, arrays_of(1), ["b"])
        begin(store)
        index.receipts.pop("a")
        assert (index.number, index.runs, list(index.rows)) == (1, [], [(1, 0)])
        assert sorted(store.index().receipts) == ["a", "b"]

    def test_runs_are_numbered_within_their_study(
        self, store: Store, other: Store
    ) -> None:
        runs = [begin(store, "x"), begin(other, "y"), begin(store, "x")]
        assert [run.number for run in runs] == [1, 1, 2]
        assert [run.begun for run in runs] == [1, 2, 3]
        assert other.index().runs == runs
        assert runs[0].started.endswith("+00:00")

    def test_a_run_that_ended_keeps_its_counts_failures_and_tables(
        self, store: Store, other: Store
    ) -> None:
        run, cut_short = begin(store), begin(store)
        failures = [{"stage": "fit", "coords": {"seed": 1}, "error": "no"}]
        ended = end(other, run, failures=failures)
        assert (ended.number, ended.begun, ended.ended) == (1, 1, 3)
        assert ended.status == "failed"
        assert ended.seconds == 1.5
        assert ended.document == {"axes": {"seed": 2}}
        assert ended.tables["fit"]["nodes"] == [[[0], [1, 0]]]
        assert store.index().runs == [ended, cut_short]
        assert cut_short.status == "interrupted"

    def test_the_journal_keeps_its_lines_per_run(
        self, store: Store, other: Store
    ) -> None:
        first, second = begin(store), begin(store)
        store.append_event(first, {"event": "begins", "stage": "fit"})
        other.append_event(first, {"event": "committed", "keys": ["a"]})
        store.append_event(second, {"event": "failed"})
        assert [note["event"] for note in other.journal(first)] == [
            "begins",
            "committed",
        ]
        assert store.journal(second) == [{"event": "failed"}]
        assert store.index().number == 2

    def test_a_run_without_notes_has_an_empty_journal(self, store: Store) -> None:
        assert store.journal(begin(store)) == []

    def test_a_key_is_claimed_by_one_run_at_a_time(
        self, store: Store, other: Store
    ) -> None:
        assert store.claims.take(1, ["a", "b"], lambda _: False) == ["a", "b"]
        assert other.claims.take(2, ["c", "b", "a"], lambda _: False) == ["c"]
        assert store.claims.take(1, ["a", "c"], lambda _: False) == ["a"]
        assert other.claims.holders() == {"a": 1, "b": 1, "c": 2}

    def test_claims_of_a_run_that_is_gone_are_taken_over(
        self, store: Store, other: Store
    ) -> None:
        store.claims.take(1, ["a", "b"], lambda _: False)
        assert other.claims.take(2, ["b"], lambda run: run == 1) == ["b"]
        assert store.claims.holders() == {"a": 1, "b": 2}

    def test_what_is_released_can_be_claimed(self, store: Store, other: Store) -> None:
        store.claims.take(1, ["a", "b"], lambda _: False)
        other.claims.release(2, ["a"])  # not its own: nothing happens
        assert other.claims.take(2, ["a"], lambda _: False) == []
        store.claims.release(1, ["a"])
        assert other.claims.take(2, ["a", "b"], lambda _: False) == ["a"]

    def test_claims_are_swept_when_all_who_made_them_are_gone(
        self, store: Store, other: Store
    ) -> None:
        store.claims.take(1, ["a"], lambda _: False)
        other.claims.take(2, ["b"], lambda _: False)
        store.claims.sweep(lambda run: run == 1, readers=store.heartbeats)
        assert other.claims.holders() == {"a": 1, "b": 2}
        store.claims.sweep(lambda _: True, readers=store.heartbeats)
        assert store.claims.holders() == {}
        assert other.claims.take(3, ["a", "b"], lambda _: True) == ["a", "b"]
        assert store.claims.take(4, ["a", "c"], lambda _: False) == ["c"]

    def test_claims_leave_the_log_alone(self, store: Store) -> None:
        store.claims.take(1, ["a"], lambda _: False)
        assert store.index().number == 0

    def test_a_partial_is_replaced_read_and_dropped(
        self, store: Store, other: Store
    ) -> None:
        assert store.load_snapshot("tile1") is None
        store.save_snapshot("tile1", {"step": np.array(1), "w": np.zeros((2, 3))})
        kept = {"step": np.array(2), "w": np.ones((2, 3)), "name": np.array(["a", "é"])}
        store.save_snapshot("tile1", kept)
        got = other.load_snapshot("tile1")
        assert got.keys() == kept.keys()
        for name, array in kept.items():
            np.testing.assert_array_equal(got[name], array)
            assert got[name].shape == array.shape
        assert other.load_snapshot("tile2") is None
        other.drop_snapshot("tile1")
        other.drop_snapshot("tile1")
        assert store.load_snapshot("tile1") is None

    def test_a_partial_shares_no_memory_with_the_store(self, store: Store) -> None:
        kept = np.zeros(3)
        store.save_snapshot("tile1", {"w": kept})
        kept[:] = 1
        store.load_snapshot("tile1")["w"][:] = 2
        np.testing.assert_array_equal(store.load_snapshot("tile1")["w"], np.zeros(3))

    def test_the_latest_sign_of_life_of_each_run_is_told(
        self, store: Store, other: Store
    ) -> None:
        first, second = begin(store), begin(store)
        assert store.heartbeats() == {}
        sign = {"count": 0, "pid": 1, "host": "ö"}
        store.write_heartbeat(first, sign)
        store.write_heartbeat(second, sign)
        store.write_heartbeat(first, sign | {"count": 1})
        signs = {first.begun: sign | {"count": 1}, second.begun: sign}
        assert other.heartbeats() == signs
        store.write_heartbeat(first, None)
        store.write_heartbeat(first, None)
        assert other.heartbeats() == {second.begun: signs[second.begun]}
        assert store.journal(first) == []

    def test_codes_are_recorded_once(self, store: Store, other: Store) -> None:
        code = CodeRecord("train", 1, 1, {"fit": "d1"})
        store.record_codes({"f1": code})
        other.record_codes({"f1": replace(code, version=9)})
        other.record_codes({"f1": code, "f2": code})
        assert store.index().codes == {"f1": code, "f2": code}
        assert store.index().number == 2

    def test_settlements_come_back_in_order(self, store: Store, other: Store) -> None:
        settlement = Settlement("train", [["f1", "f2"]], "renamed", {"compared": 3})
        two = Settlement("probe.norms", [["f3", "f4"]], "moved")
        store.settle([settlement])
        other.settle([two, settlement])
        assert store.index().settlements == [settlement, two, settlement]

    def test_receipts_outlive_payloads_that_are_evicted(
        self, store: Store, other: Store
    ) -> None:
        receipts = publish(store, arrays_of(), ["a", "b"])
        assert store.live("ab") == dict(zip("ab", receipts, strict=True))
        number = store.evict([receipts[0].payload], "old")
        assert number == 2
        index = other.index()
        assert index.evicted == {receipts[0].payload}
        assert index.receipts == dict(zip("ab", receipts, strict=True))
        assert other.live(["a", "b", "unknown"]) == {}

    def test_an_evicted_result_is_restored_by_the_same_result(
        self, store: Store, other: Store
    ) -> None:
        (old,) = publish(store, arrays_of(nodes=1), ["a"])
        store.evict([old.payload], "old")
        twin = replace(old, digest="e" * 64, payload="f" * 64)
        assert store.commit([twin]) == [old]
        assert other.live(["a"]) == {}
        again = replace(old, payload="0" * 64, slot=4)
        assert store.commit([again]) == [again]
        assert other.live(["a"]) == {"a": again}
        assert other.index().rows[1, 0] == old

    def test_what_collection_removed_is_told_and_never_struck_off(
        self, store: Store, other: Store
    ) -> None:
        receipts = publish(store, arrays_of(), ["a", "b"])
        store.evict([receipts[0].payload], "old")
        self.lose(store, receipts[0].payload)
        for reader in (store, other):
            with pytest.raises(RemovedPayloadError, match="--revive fit"):
                reader.fetch(receipts[1], ["loss"])
        assert other.index().number == 2
        assert set(other.index().receipts) == {"a", "b"}

    def test_a_result_computed_again_stands_for_the_one_removed(
        self, store: Store
    ) -> None:
        (old,) = publish(store, arrays_of(nodes=1), ["a"])
        store.evict([old.payload], "old")
        self.lose(store, old.payload)
        (again, _) = publish(store, arrays_of(nodes=2), ["a", "b"])
        assert (again.payload != old.payload, again.digest) == (True, old.digest)
        assert store.fetch(old, ["epoch"])["epoch"].tolist() == [0, 5, 10]
        store.evict([again.payload], "old")
        self.lose(store, again.payload)
        with pytest.raises(RemovedPayloadError):
            store.fetch(old, ["loss"])

    def test_a_payload_that_is_there_again_is_not_evicted(self, store: Store) -> None:
        (old,) = publish(store, arrays_of(nodes=1), ["a"])
        store.evict([old.payload], "old")
        assert publish(store, arrays_of(nodes=1), ["a"]) == [old]
        assert store.index().evicted == set()
        assert store.live(["a"]) == {"a": old}

    def test_pins_are_set_replaced_and_taken_away(
        self, store: Store, other: Store
    ) -> None:
        run = begin(store)
        store.pin(Pin("paper", run.begun, "Table 1"))
        store.pin(Pin("paper", run.begun, "Table 2"))
        store.pin(Pin("ö/../x", run.begun, "any name"))
        assert other.index().pins["paper"].reason == "Table 2"
        assert list(other.index().pins) == ["paper", "ö/../x"]
        other.unpin("paper")
        other.unpin("never")
        assert list(store.index().pins) == ["ö/../x"]

    def test_an_entry_that_is_torn_is_void_and_can_be_buried(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        publish(store, arrays_of(0), ["a"])
        publish(store, arrays_of(1), ["b"])
        store._log._commits.replace(1, b"{")
        store._log = Log(store._log._commits, store.location)
        assert list(store.index().receipts) == ["b"]
        assert (store.index().void, store.torn_entries()) == ([1], [1])
        store.write_tombstones([1, 2])
        assert (store.index().void, store.torn_entries()) == ([1], [])
        assert list(store.index().receipts) == ["b"]
        assert "commit 1 is torn" in caplog.text
