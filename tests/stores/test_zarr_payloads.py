import io
import json
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.schemas import disk_arrays
from curvflow.schemas.keys import array_digest
from curvflow.stores import local_payloads, zarr_payloads
from curvflow.stores.local import LocalStore
from curvflow.stores.payload_digests import payload_id, unreadable
from curvflow.stores.row_files import npy_rows
from curvflow.stores.zarr_payloads import ZarrPayload, entries, zip_payload
from curvflow.testing.stores import OUTPUTS, arrays_of, publish, receipt_of


def write(path, arrays, *, sharded=True):
    for name, data in entries(arrays, sharded=sharded):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_equal_arrays_give_equal_bytes():
    assert zip_payload(arrays_of()) == zip_payload(dict(reversed(arrays_of().items())))
    first = sorted(entries(arrays_of(), sharded=True))
    assert first == sorted(entries(arrays_of(), sharded=True))


@pytest.fixture
def a_chunk_per_node(monkeypatch):
    """As large variables have it, and all of payloads of versions before 0.3."""
    with monkeypatch.context() as written:
        written.setattr(zarr_payloads, "WHOLE_BYTES", -1)
        yield written.undo  # to read them as this version does


def test_a_zip_holds_sorted_stored_entries_of_one_date_and_no_name_twice():
    with zipfile.ZipFile(io.BytesIO(zip_payload(arrays_of()))) as archive:
        names = archive.namelist()
        infos = archive.infolist()
    assert names == sorted(set(names))
    assert {(i.date_time, i.compress_type) for i in infos} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)
    }
    assert {"zarr.json", "loss/zarr.json", "loss/c/0/0"} < set(names)


@pytest.mark.parametrize(("most", "nodes"), [(1 << 20, 3), (100, 1)])
def test_chunks_hold_a_small_variable_or_a_node_and_end_in_a_checksum(
    monkeypatch, most, nodes
):
    monkeypatch.setattr(zarr_payloads, "WHOLE_BYTES", most)
    held = dict(entries(arrays_of(nodes=3), sharded=False))
    metadata = json.loads(held["weights/zarr.json"])
    assert metadata["zarr_format"] == 3
    assert metadata["chunk_grid"]["configuration"]["chunk_shape"] == [nodes, 3, 6]
    codecs = [codec["name"] for codec in metadata["codecs"]]
    assert codecs == ["bytes", "zstd", "crc32c"]
    assert "consolidated_metadata" not in json.loads(held["zarr.json"])


@pytest.mark.parametrize("sharded", [False, True])
def test_a_variable_of_zeros_is_written_in_full(sharded, a_chunk_per_node):
    held = dict(entries({"zeros": np.zeros((2, 3))}, sharded=sharded))
    chunks = {"zeros/c/0/0"} if sharded else {"zeros/c/0/0", "zeros/c/1/0"}
    assert chunks == {name for name in held if "/c/" in name}


def test_plain_zarr_reads_a_payload(tmp_path):
    (tmp_path / "x.zip").write_bytes(zip_payload(arrays_of()))
    for store in (
        zarr.storage.ZipStore(tmp_path / "x.zip", mode="r"),
        write(tmp_path / "x.zarr", arrays_of()),
    ):
        group = zarr.open_group(store, mode="r")
        for name, array in arrays_of().items():
            np.testing.assert_array_equal(group[name][:], array)


CODECS = [ZstdCodec(level=1), Crc32cCodec()]
ARRAYS = {
    **{
        dtype: np.arange(6).reshape(3, 2).astype(dtype)
        for dtype in sorted(zarr_payloads.PLAIN)
    },
    "big-endian": np.arange(3, dtype=">f8"),
    "strided": np.arange(24.0).reshape(3, 8)[:, ::2],
    "transposed": np.arange(12.0).reshape(2, 2, 3).T,
    "empty": np.zeros((3, 0, 2)),
    "no nodes": np.zeros((0, 2)),
    "text": np.array([["a", "", "größer"], ["bb", "c", "\0x"]]),
    "turned text": np.array([["a", "d"], ["b", "e"], ["c", "f"]]).T,
    "turned words": np.array([["a", "d"], ["b", "e"], ["c", "f"]], object).T,
    "words": np.array(["one", "other"], dtype=object),
    "no text": np.zeros((2, 0), "<U1"),
}


@pytest.mark.parametrize("most", [1 << 20, -1], ids=["together", "a chunk per node"])
@pytest.mark.parametrize("name", ARRAYS)
def test_plain_arrays_are_written_and_read_as_zarr_does(
    name, most, tmp_path, monkeypatch
):
    monkeypatch.setattr(zarr_payloads, "WHOLE_BYTES", most)
    arrays = {"x": ARRAYS[name]}
    ours, path = dict(entries(arrays, sharded=False)), tmp_path / "ours.zip"
    path.write_bytes(zip_payload(arrays))
    with monkeypatch.context() as patch:
        patch.setattr(zarr_payloads, "_is_plain", lambda _: False)
        theirs = dict(entries(arrays, sharded=False))
        (tmp_path / "theirs.zip").write_bytes(zip_payload(arrays))
    metadata = {entry for entry in ours if entry.endswith("zarr.json")}
    assert metadata == {"zarr.json", "x/zarr.json"}
    assert {e: ours[e] for e in ours.keys() - metadata} == {
        e: theirs[e] for e in theirs.keys() - metadata
    }
    opened = [
        zarr.open_group(zarr.storage.ZipStore(tmp_path / file, mode="r"), mode="r")["x"]
        for file in ("ours.zip", "theirs.zip")
    ]
    assert opened[0].metadata == opened[1].metadata
    pack = ZarrPayload("p", path)
    assert isinstance(pack._arrays["x"], zarr_payloads.PlainArray)
    found = pack.read_all()["x"]
    monkeypatch.setattr(zarr_payloads, "_plain", lambda _: None)
    by_zarr = ZarrPayload("p", path)
    expected = by_zarr.read_all()["x"]
    np.testing.assert_array_equal(found, arrays["x"])
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    assert found.flags.writeable
    assert pack.layout() == by_zarr.layout()
    assert pack.row_bytes("x") == by_zarr.row_bytes("x")


@pytest.mark.parametrize(
    "how",
    [
        {"compressors": None},
        {"compressors": [ZstdCodec(level=2), Crc32cCodec()]},
        {"chunks": (2, 3)},
        {"chunks": (3, 2)},
        {"shards": (3, 3), "chunks": (1, 3)},
        {"attributes": {"by": "others"}},
        {"fill_value": 1.0},
    ],
)
def test_arrays_in_other_forms_are_read_by_zarr(how, tmp_path):
    group = zarr.create_group(tmp_path / "x", zarr_format=3)
    values = np.arange(9.0).reshape(3, 3)
    plain = {"chunks": (3, 3), "compressors": CODECS}
    group.create_array("x", data=values, **plain | how)
    group.create_array("y", data=values, **plain)
    pack = ZarrPayload("p", tmp_path / "x")
    assert isinstance(pack._arrays["x"], zarr.Array)
    assert isinstance(pack._arrays["y"], zarr_payloads.PlainArray)
    for name in "xy":
        np.testing.assert_array_equal(pack.rows(name, [2, 0]), values[[2, 0]])


def test_large_variables_take_several_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(zarr_payloads, "SHARD_BYTES", 100)  # three nodes of 32 bytes
    arrays = arrays_of(nodes=7)
    path = write(tmp_path / "x", arrays)
    assert sorted(p.name for p in (path / "loss" / "c").iterdir()) == ["0", "1", "2"]
    pack = ZarrPayload("p", path)
    for slot in range(7):
        np.testing.assert_array_equal(
            pack.rows("loss", [slot])[0], arrays["loss"][slot]
        )
    assert payload_id(pack.read_all()) == payload_id(arrays)


def test_many_nodes_are_read_without_opening_or_reading_again(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "s")
    receipts = publish(store, arrays_of(nodes=20), [f"k{n}" for n in range(20)])
    opened, read = [], []
    opening, reading = zarr_payloads._opened, ZarrPayload._read
    monkeypatch.setattr(
        zarr_payloads, "_opened", lambda path: (opened.append(path), opening(path))[1]
    )
    monkeypatch.setattr(
        ZarrPayload,
        "_read",
        lambda self, *args: (read.append(args), reading(self, *args))[1],
    )
    for receipt in receipts:
        store.read(receipt, ["loss", "epoch"])
    assert len(opened) == 1
    assert len(read) == 2
    assert len(store.read_many(receipts, ["loss", "weights"])) == 20
    assert len(read) == 3


def test_of_chunks_of_a_node_the_first_is_read_alone(tmp_path, a_chunk_per_node):
    path = tmp_path / "x.zip"
    path.write_bytes(zip_payload(arrays_of()))
    a_chunk_per_node()
    pack = ZarrPayload("p", path)
    for slot in (2, 0, 1):
        assert len(pack._whole) == (slot == 1)
        got = pack.rows("loss", [slot])
        np.testing.assert_array_equal(got, arrays_of()["loss"][[slot]])
    assert len(ZarrPayload("p", path).rows("loss", [0, 2])) == 2


def test_large_variables_are_never_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(zarr_payloads, "WHOLE_BYTES", 10)
    path = tmp_path / "x.zip"
    path.write_bytes(zip_payload(arrays_of()))
    pack = ZarrPayload("p", path)
    for slots in ([0], [1], [1], [2, 0]):
        got = pack.rows("loss", slots)
        np.testing.assert_array_equal(got, arrays_of()["loss"][slots])
    assert pack._whole == {}


def test_no_more_than_a_few_payloads_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(local_payloads, "MAX_OPEN", 2)
    store = LocalStore(tmp_path)
    names = [store.write_payload(arrays_of(seed)) for seed in range(4)]
    for name in names:
        store.layout(name)
    assert store._payloads.open.cache_info().currsize == 2


def damaged(data, position, flip):
    return data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]


def check(store, receipts, arrays):
    """Count the reads that failed by name; those that did not are right."""
    failed = 0
    for receipt in receipts:
        for name in arrays:
            try:
                got = store.read(receipt, [name])[name]
            except CorruptPayloadError as error:
                failed += receipt.payload[:12] in str(error)
            else:
                np.testing.assert_array_equal(got, arrays[name][receipt.slot])
    return failed


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["zip", "sharded"])
@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_a_flipped_byte_anywhere_is_a_miss_or_harmless(
    tmp_path, monkeypatch, limit, flip
):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", limit)
    store = LocalStore(tmp_path)
    arrays = arrays_of(nodes=2) | {"word": np.array(["sgd", "metric"])}
    receipts = publish(store, arrays, ["a", "b"])
    variables = []
    samples = 80 if limit > 0 else 8
    for path in sorted(p for p in (tmp_path / "payloads").rglob("*") if p.is_file()):
        data = path.read_bytes()
        for position in range(flip % 7, len(data), 1 + len(data) // samples):
            path.write_bytes(damaged(data, position, flip))
            variables.append(check(LocalStore(tmp_path), receipts, arrays))
        path.write_bytes(data)
    assert check(store, receipts, arrays) == 0
    assert sum(map(bool, variables)) > len(variables) / 3


def test_a_flipped_byte_in_one_chunk_leaves_the_other_nodes_readable(
    tmp_path, a_chunk_per_node
):
    store = LocalStore(tmp_path)
    arrays = arrays_of(nodes=5)
    receipts = publish(store, arrays, "abcde")
    a_chunk_per_node()
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    with zipfile.ZipFile(path) as archive:
        chunk = archive.read("loss/c/3/0")
    data = path.read_bytes()
    path.write_bytes(damaged(data, data.index(chunk) + 9, 4))
    fresh = LocalStore(tmp_path)
    for receipt in (*receipts, *receipts):
        if receipt.slot == 3:
            with pytest.raises(CorruptPayloadError, match="slot 3: loss cannot be"):
                fresh.read(receipt, ["loss"])
        else:
            fresh.read(receipt, ["loss"])
        fresh.read(receipt, ["epoch", "weights"])
    found = fresh.read_many(receipts, ["loss"])
    assert unreadable(found) == [3]
    np.testing.assert_array_equal(found[4]["loss"], arrays["loss"][4])


def test_a_checksum_guards_chunks_where_no_zip_does(tmp_path, a_chunk_per_node):
    path = write(tmp_path / "x", {"x": np.arange(6.0).reshape(2, 3)}, sharded=False)
    chunk = path / "x" / "c" / "1" / "0"
    chunk.write_bytes(damaged(chunk.read_bytes(), 12, 1))
    pack = ZarrPayload("p", path)
    assert pack.rows("x", [0]).tolist() == [[0, 1, 2]]
    with pytest.raises(CorruptPayloadError, match=r"slot 1: x cannot be read.*hecksum"):
        pack.rows("x", [1])


def without(data, lost):
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for info in old.infolist():
            if info.filename != lost:
                archive.writestr(info, old.read(info))
    return file.getvalue()


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_deleted_chunk_of_a_zip_is_a_miss(tmp_path, value, a_chunk_per_node):
    store = LocalStore(tmp_path)
    receipts = publish(store, {"x": np.full((3, 2), value)}, "abc")
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    path.write_bytes(without(path.read_bytes(), "x/c/1/0"))
    fresh = LocalStore(tmp_path)
    for receipt in (receipts[0], receipts[2], receipts[0]):
        assert fresh.read(receipt, ["x"])["x"].tolist() == [value, value]
    with pytest.raises(CorruptPayloadError, match="slot 1: x has no chunk"):
        fresh.read(receipts[1], ["x"])


def test_a_deleted_chunk_of_a_diverged_part_is_a_miss(tmp_path):
    store = LocalStore(tmp_path)
    arrays = {"loss": np.full((2, 4), np.nan)}
    receipts = publish(store, arrays, "ab", outputs=OUTPUTS, status="diverged")
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    path.write_bytes(without(path.read_bytes(), "loss/c/0/0"))
    with pytest.raises(CorruptPayloadError, match="no chunk"):
        LocalStore(tmp_path).read(receipts[0], ["loss"])


@pytest.mark.parametrize("lost", ["x/c/0/0", "x/zarr.json", "zarr.json"])
def test_a_deleted_file_of_a_folder_is_a_miss(tmp_path, monkeypatch, lost):
    monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
    store = LocalStore(tmp_path)
    (receipt,) = publish(store, {"x": np.zeros((3, 2))}, "a")
    (path,) = (tmp_path / "payloads").rglob(f"*.zarr/{lost}")
    path.unlink()
    with pytest.raises(CorruptPayloadError):
        LocalStore(tmp_path).read(receipt, ["x"])
    assert store.write_payload({"x": np.zeros((3, 2))}) == receipt.payload
    assert store.read(receipt, ["x"])["x"].tolist() == [0, 0]


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all" * 50])
def test_something_else_under_the_name_is_a_miss(tmp_path, data):
    store = LocalStore(tmp_path)
    (receipt,) = publish(store, arrays_of(nodes=1), "a")
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    path.write_bytes(data)
    with pytest.raises(CorruptPayloadError, match="it cannot be read"):
        LocalStore(tmp_path).read(receipt, ["loss"])


# More than Python reads ahead of an open file.
LONG = {"loss": np.random.default_rng(0).normal(size=(1, 9000))}


def test_a_payload_healed_by_this_process_is_read_at_once(tmp_path):
    store = LocalStore(tmp_path)
    (receipt,) = publish(store, LONG, "a")
    store.layout(receipt.payload)
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    path.write_bytes(bytes(path.stat().st_size))
    store.write_payload(LONG)
    store.read(receipt, ["loss"])


def test_a_payload_healed_by_another_process_is_read_the_next_time(tmp_path):
    store = LocalStore(tmp_path)
    (receipt,) = publish(store, LONG, "a")
    store.layout(receipt.payload)
    (path,) = (tmp_path / "payloads").rglob("*.zip")
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptPayloadError):
        store.read(receipt, ["loss"])
    LocalStore(tmp_path).write_payload(LONG)
    store.read(receipt, ["loss"])


def test_a_slot_beyond_the_payload_is_a_miss(tmp_path):
    (tmp_path / "x.zip").write_bytes(zip_payload(arrays_of()))
    pack = ZarrPayload("p", tmp_path / "x.zip")
    for name, slot in (("loss", 3), ("loss", -1), ("lost", 0)):
        with pytest.raises(CorruptPayloadError, match=f"slot {slot}: {name} is miss"):
            pack.rows(name, [slot])


def test_a_payload_that_may_not_be_read_is_not_taken_for_corrupt(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zarr_payloads, "_opened", refuse)
    with pytest.raises(StoreError, match="Permission denied") as caught:
        ZarrPayload("p", tmp_path)
    assert not isinstance(caught.value, CorruptPayloadError)


def random_arrays(seed):
    """Return variables of any types and shapes, with labels for slices of one."""
    rng = np.random.default_rng(seed)
    nodes, epochs = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    shape = tuple(rng.integers(0, 4, rng.integers(0, 3)).tolist())
    numbers = rng.normal(size=(nodes, *shape))
    numbers[rng.random(numbers.shape) < 0.2] = np.nan
    return {
        "loss": rng.normal(size=nodes),
        "numbers": numbers,
        "counts": rng.integers(0, 9, (nodes, *shape)),
        "is_large": rng.random((nodes, 2)) < 0.5,
        "words": rng.choice(["a", "bcd", "é"], (nodes, epochs)),
        "weights": rng.normal(size=(nodes, epochs, 3)).astype("float32"),
    }


@pytest.mark.parametrize("most", [1 << 20, -1])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_payload_is_verified_in_parts(seed, zipped, most, monkeypatch, tmp_path):
    monkeypatch.setattr(zarr_payloads, "WHOLE_BYTES", most)
    if not zipped:
        monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
    store, arrays = LocalStore(tmp_path), random_arrays(seed)
    payload = store.write_payload(arrays)
    receipts = [
        replace(
            receipt_of({"loss": arrays["loss"]}, slot, payload=payload),
            parts={
                name: array_digest(array[slot])
                for name, array in arrays.items()
                if name != "weights"
            }
            | {
                f"weights@{number}": array_digest(each)
                for number, each in enumerate(arrays["weights"][slot])
            },
        )
        for slot in range(len(arrays["loss"]))
    ]
    store.verify_payload(payload, receipts)
    last = receipts[-1]
    for part in last.parts:
        other = replace(last, parts=last.parts | {part: "0" * 64})
        with pytest.raises(CorruptPayloadError, match=f"{part}: its content is"):
            store.verify_payload(payload, [*receipts[:-1], other])
    more = replace(last, parts={**last.parts, "weights@9": "0" * 64})
    with pytest.raises(CorruptPayloadError, match="weights: expected"):
        store.verify_payload(payload, [more])
    gone = replace(receipts[0], slot=len(receipts))
    with pytest.raises(CorruptPayloadError, match="loss is missing"):
        store.verify_payload(payload, [gone])


def test_slices_that_a_store_says_are_none_are_corruption(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(30.0).reshape(10, 3))
    store = LocalStore(tmp_path / "store")
    payload = store.write_payload({"weights": npy_rows(tmp_path / "x.npy")})
    parts = {f"weights@{row}": "0" * 64 for row in range(10)}
    receipt = receipt_of({"weights": np.zeros(1)}, 0, payload=payload)
    receipt = replace(receipt, parts=parts)
    (form,) = (tmp_path / "store").rglob("weights/zarr.json")
    form.write_text(json.dumps(json.loads(form.read_text()) | {"shape": [1, 0, 3]}))
    with pytest.raises(CorruptPayloadError, match="its content is not what was"):
        store.verify_payload(payload, [receipt])


@pytest.mark.parametrize("form", ["nodes", "shards", "rows"])
def test_a_payload_is_verified_in_little_memory(form, monkeypatch, tmp_path):
    array = np.random.default_rng(0).normal(size=(40, 50, 1000))
    if form == "rows":
        np.save(tmp_path / "x.npy", array.reshape(-1, 1000))
        array = npy_rows(tmp_path / "x.npy")
        monkeypatch.setattr(disk_arrays, "BLOCK_BYTES", 1 << 20)
    if form == "shards":
        monkeypatch.setattr(local_payloads, "ZIP_BYTES", -1)
        monkeypatch.setattr(zarr_payloads, "SHARD_BYTES", 1 << 20)
    store = LocalStore(tmp_path / "store")
    payload = store.write_payload({"inputs": array})
    store.verify_payload(payload, [])
    tracemalloc.start()
    store.verify_payload(payload, [])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.4 * array.nbytes
