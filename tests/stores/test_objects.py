import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from curvflow.errors import RequestError, StoreError, StoreFormatError
from curvflow.stores.bucket import Bucket
from curvflow.stores.objects import ObjectStore
from curvflow.stores.open import open_store
from curvflow.stores.payload_cache import MAX_PAYLOADS
from curvflow.testing.stores import StoreContract, arrays_of, begin, publish
from tests.commands import Fork
from tests.stores.racing import race
from tests.stores.server import SECRET

pytestmark = pytest.mark.processes


class TestObjectStore(StoreContract):
    @pytest.fixture
    def store(self, bucket):
        return open_store(f"s3://{bucket}/some/prefix", create=True)

    @pytest.fixture
    def other(self, store):
        return open_store(store.location, create=False)

    def lose(self, store, payload):
        store._bucket.remove([path_of(payload)])

    def swap(self, store, payload, other):
        store._bucket.put(path_of(payload), store._bucket.get(path_of(other)))
        store._forget()  # what was fetched has nothing to do with what is there


def path_of(payload):
    return f"payloads/{payload[:2]}/{payload}.zarr.zip"


@pytest.fixture
def store(bucket):
    return open_store(f"s3://{bucket}/prefix", create=False)


def paths(store):
    return [info.path for info in store._bucket.list()]


def test_a_store_holds_the_objects_that_the_design_names(store):
    (receipt,) = publish(store, arrays_of(), ["a"])
    run = begin(store)
    store.append_event(run, {"event": "begins"})
    store.write_heartbeat(run, {"count": 0})
    store.save_snapshot("tile", {"step": np.array(1)})
    store.claims.take(run.begun, ["b"], lambda _: False)
    *objects, journal = sorted(paths(store))
    assert re.fullmatch(r"commits/0000000002-[0-9a-f]{8}\.mark", objects.pop(4))
    assert objects == [
        "FORMAT",
        "beats/0000000002.beat",
        "claims/0000000001.json",
        "commits/0000000001.json",
        "commits/0000000002.json",
        "partials/tile.zarr.zip",
        path_of(receipt.payload),
    ]
    assert journal.startswith("runs/0000000002/")


def test_nothing_is_written_before_the_first_write(store):
    assert store.index().number == 0
    assert store.present(["a" * 64]) == set()
    assert (store.heartbeats(), store.load_snapshot("x"), store.files.clock()) == (
        {},
        None,
        0,
    )
    assert not store.files.exists()
    assert paths(store) == []


def test_two_prefixes_of_a_bucket_share_nothing(bucket):
    outer, inner = (open_store(f"s3://{bucket}/{p}", create=True) for p in ("a", "a/b"))
    publish(outer, arrays_of(), ["a"])
    assert inner.index().number == 0
    assert paths(inner) == ["FORMAT"]


def test_a_log_is_listed_from_where_it_was_read(store, monkeypatch):
    for number in range(3):
        store.retire([str(number)], "none")
    asked = []
    listing = Bucket.list

    def noted(self, folder="", *, after=None):
        asked.append((folder, after))
        return listing(self, folder, after=after)

    monkeypatch.setattr(Bucket, "list", noted)
    assert store.index().number == 3
    assert asked == [("commits", "commits/0000000003.json")]


def test_a_long_log_is_read_many_entries_at_once(store, monkeypatch):
    for number in range(9):
        store.retire([str(number)], "none")
    batches = []
    together = Bucket.get_all

    def noted(self, paths):
        batches.append(len(paths))
        return together(self, paths)

    monkeypatch.setattr(Bucket, "get_all", noted)
    monkeypatch.setattr("curvflow.stores.bucket.PREFETCHED", 4)
    assert open_store(store.location, create=False).index().number == 9
    assert batches == [4, 4, 1]


def test_payloads_of_a_bucket_with_many_are_found_folder_by_folder(store, monkeypatch):
    names = {store.write_payload({"x": np.array([float(n)])}) for n in range(7)}
    monkeypatch.setattr("curvflow.stores.objects.PAGE", 3)
    four_names = set(sorted(names)[:4])
    assert store.present([*four_names, "f" * 64]) == four_names


def test_fetched_payloads_are_few_and_gone_with_the_store(store):
    receipts = [
        publish(store, {"x": np.array([float(n)])}, [f"k{n}"])[0]
        for n in range(MAX_PAYLOADS + 3)
    ]
    for receipt in receipts:
        store.read(receipt, ["x"])
    folder = store._cache._made
    assert len(list(folder.iterdir())) == MAX_PAYLOADS
    for receipt in receipts[:3]:
        assert store.read(receipt, ["x"])["x"] == float(receipt.key[1:])
    assert len(list(folder.iterdir())) == MAX_PAYLOADS
    store._cache = None
    assert not folder.exists()


class LostAnswers(Bucket):
    """Writes, and then cannot say so; or is told by itself that it is too late."""

    fault = None

    def create(self, path, data, *, nonce=""):
        created = super().create(path, data, nonce=nonce)
        if path == "FORMAT" or not self.fault:
            return created
        fault, self.fault = self.fault, None
        if fault == "silence":
            raise StoreError("no answer")
        return False


@pytest.mark.parametrize("fault", ["silence", "sent again"])
def test_a_write_whose_answer_was_lost_counts_once(bucket, fault):
    lossy = LostAnswers(bucket, "prefix")
    store = ObjectStore(lossy)
    begin(store)
    lossy.fault = fault
    assert begin(store).number == 2
    assert [run.begun for run in store.index().runs] == [1, 2]


@pytest.mark.parametrize("fault", ["silence", "sent again"])
def test_an_equal_entry_of_another_writer_is_not_taken_for_ours(bucket, fault):
    lossy = LostAnswers(bucket, "prefix")
    store = ObjectStore(lossy)
    store.make()
    commits = store._log._commits
    assert open_store(store.location, create=True)._log._commits.create(1, b"equal")
    lossy.fault = fault
    assert not commits.create(1, b"equal")


def test_a_write_that_failed_is_reported(bucket):
    class Silent(Bucket):
        def create(self, path, data, *, nonce=""):
            if path == "FORMAT":
                return super().create(path, data, nonce=nonce)
            raise StoreError("no answer")

    store = ObjectStore(Silent(bucket, "prefix"))
    with pytest.raises(StoreError, match="no answer"):
        begin(store)
    assert store.index().number == 0


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_lost(bucket):
    class Careless(Bucket):
        def create(self, path, data, *, nonce=""):
            self.put(path, data)
            return True

    store = ObjectStore(Careless(bucket, "prefix"))
    with pytest.raises(StoreError, match=r"conditional puts \(If-None-Match\)"):
        publish(store, arrays_of(), ["a"])
    assert paths(store) == ["FORMAT"]


def test_a_missing_bucket_is_named(bucket):
    with pytest.raises(StoreError, match=r"s3://not-there/x: .*no bucket of that name"):
        open_store("s3://not-there/x", create=False)


def test_a_server_that_does_not_answer_is_reported_in_one_line(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("curvflow.stores.bucket.RETRIES", 0)
    with pytest.raises(StoreError, match=r"got no answer\. Check AWS_") as caught:
        open_store(f"s3://{bucket}", create=False)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__  # its text may hold what is secret


def test_missing_credentials_are_reported_in_one_line(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("curvflow.stores.bucket.RETRIES", 0)
    with pytest.raises(StoreError, match=r"no credentials\. Set AWS_ACCESS_KEY_ID"):
        open_store(f"s3://{bucket}", create=False)


def test_a_prefix_with_other_objects_is_no_store(bucket):
    Bucket(bucket, "mine").put("thesis.tex", b"x")
    with pytest.raises(StoreFormatError, match=r"'thesis\.tex' and no FORMAT"):
        open_store(f"s3://{bucket}/mine", create=False)


def test_a_newer_format_is_refused(store):
    store._bucket.put("FORMAT", b'{"store":"curvflow","format":2}')
    with pytest.raises(StoreFormatError, match="expected store format 1, got 2"):
        open_store(store.location, create=False)


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "s3://b",
        "s3://Bucket/x",
        "s3://../x",
        "s3://bucket/../other",
        "s3://bucket/a/./b",
        "s3://bucket/a//b",
        "s3://bucket/a b",
        "s3://bucket/a\0b",
        "s3://bucket/a\nb",
        "s3://bucket/%2e%2e/x",
        "s3://bucket/x?X-Amz-Signature=hidden",
        "s3://bucket/x#hidden",
        "s3://bucket:9000/x",
        "gs://bucket/x",
        "https://host/x",
    ],
)
def test_an_address_that_is_none_is_refused_in_one_line(url):
    with pytest.raises(RequestError, match=r"^store: expected") as caught:
        open_store(url, create=False)
    assert "hidden" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("scheme", ["s3", "gs", "https"])
def test_an_address_with_a_password_is_refused_and_not_repeated(scheme):
    with pytest.raises(RequestError, match="without user and password") as caught:
        open_store(f"{scheme}://me:{SECRET}@bucket/x", create=False)
    assert SECRET not in str(caught.value)


def test_a_missing_library_is_one_line_with_the_command_and_exit_2(tmp_path):
    (tmp_path / "obstore.py").write_text("raise ImportError('not here')")
    (tmp_path / "study.yaml").write_text(
        "study: xor\nstages:\n  data: {use: data.xor}\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'curvflow';"
            "from curvflow.cli.app import main; sys.exit(main())",
            *("plan", "study.yaml", "--store", "s3://bucket/x"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "pip install obstore" in line


def test_opening_and_reading_the_log_import_neither_zarr_nor_xarray(store):
    publish(store, arrays_of(), ["a"])
    code = (
        "import sys; from curvflow.stores.open import open_store;"
        f"s = open_store({store.location!r}, create=False); i = s.index();"
        "assert s.present(r.payload for r in i.receipts.values());"
        "assert not {'zarr', 'xarray', 'torch'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_processes_commit_each_key_once(store, tmp_path):
    racers = [Fork(tmp_path, race, store.location, n, 15, True) for n in range(2)]
    codes, outputs, _ = zip(*[racer.ended() for racer in racers], strict=True)
    assert codes == (0, 0)
    index = store.index()
    for answer in map(json.loads, outputs):
        assert answer == {key: index.receipts[key].digest for key in answer}
    keys = [receipt.key for receipt in index.rows.values()]
    assert len(keys) == len(set(keys))
    assert len({receipt.digest for receipt in index.receipts.values()}) == 2


def test_what_is_no_sign_of_life_is_left_out(store):
    run = begin(store)
    store._bucket.put("beats/x.beat", b'{"count": 1}')
    store._bucket.put("beats/0000000009.beat", b'{"other": 1}')
    assert store.heartbeats() == {}
    sign = {"count": 1, "pid": 1, "host": "here"}
    store.write_heartbeat(run, sign)
    assert store.heartbeats() == {run.begun: sign}
