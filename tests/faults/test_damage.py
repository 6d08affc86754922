"""Damage is told once, in the words of the store, and is healed for good."""

import gc
import shutil
import time

import numpy as np
import pytest

from curvflow.errors import CorruptPayloadError
from curvflow.stores import local_payloads
from curvflow.stores.local import LocalStore
from curvflow.testing.stores import publish


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["zip", "folder"])
def test_a_payload_damaged_in_many_places_raises_one_error_and_nothing_else(
    tmp_path, monkeypatch, caplog, capfd, limit
):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", limit)
    names = [f"variable{number}" for number in range(12)]
    (receipt,) = publish(
        LocalStore(tmp_path), {name: np.zeros((1, 2)) for name in names}, ["a"]
    )
    for path in (tmp_path / "payloads").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data.replace(b"zarr.json", b"zorr.json", len(names) // 2))
            if path.name == "zarr.json" and path.parent.name in names:
                path.write_bytes(b"{")
    with pytest.raises(CorruptPayloadError):
        LocalStore(tmp_path).read(receipt, names)
    time.sleep(0.1)
    gc.collect()
    time.sleep(0.1)
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_a_folder_that_replaces_one_of_other_variables_is_read_at_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
    store = LocalStore(tmp_path)
    (receipt,) = publish(store, {"x": np.ones((1, 2))}, ["a"])
    other = store.write_payload({"y": np.ones((1, 2))})
    (ours,) = tmp_path.glob(f"payloads/*/{receipt.payload}.zarr")
    (theirs,) = tmp_path.glob(f"payloads/*/{other}.zarr")
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    assert store.write_payload({"x": np.ones((1, 2))}) == receipt.payload
    assert store.read(receipt, ["x"])["x"].tolist() == [1, 1]
