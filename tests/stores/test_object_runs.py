"""Studies whose results live in a bucket, from the command to the object."""

import json

import pytest

import curvflow
from curvflow.stores.open import open_store
from tests.commands import Command
from tests.stores.server import SECRET

pytestmark = pytest.mark.processes

STUDY = """\
study: tiny
axes:
  seed: 3
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 4}
  norms: {use: probe.norms, weights: fit}
  table: {use: aggregate.summary, of: [fit, norms], over: seed}
"""
DONE = {"data": 1, "fit": 3, "norms": 3, "table": 1}


@pytest.fixture
def url(bucket):
    return f"s3://{bucket}/studies"


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def answer(command):
    code, out, err = command.ended()
    assert code == 0, err
    return json.loads(out)


def test_a_second_run_on_a_bucket_executes_nothing(study, url):
    first = curvflow.run(study, store=url)
    assert dict(first.run.counts["executed"]) == DONE
    plan = answer(Command(study.parent, "plan", study, "--store", url, "--json"))
    assert (plan["total"], plan["cached"], plan["stale"]) == (8, 8, 0)
    second = curvflow.run(study, store=url)
    assert not any(second.run.counts["executed"].values())
    assert dict(second.run.counts["cached"]) == DONE
    assert first["table"].equals(second["table"])
    assert first["table"].equals(curvflow.open(study, store=url)["table"])


def test_a_bucket_and_a_folder_hold_the_same_results(study, url, tmp_path):
    far = curvflow.run(study, store=url)
    near = curvflow.run(study, store=tmp_path / "store")
    in_bucket, in_folder = (
        results["norms"].drop_vars("seconds") for results in (far, near)
    )
    assert in_bucket.identical(in_folder)


@pytest.mark.slow
def test_two_runs_at_once_on_a_bucket_execute_each_node_once(study, url):
    said = study.parent
    runs = [Command(said, "run", study, "--store", url, "--json") for _ in range(2)]
    answers = [answer(run) for run in runs]
    executed = {
        stage: sum(reply["executed"].get(stage, 0) for reply in answers)
        for stage in DONE
    }
    assert executed == DONE
    index = open_store(url, create=False).index()
    keys = [receipt.key for receipt in index.rows.values()]
    assert len(keys) == len(set(keys)) == sum(DONE.values())
    assert sorted(run.number for run in index.runs) == [1, 2]


@pytest.mark.slow
def test_no_secret_enters_the_bucket_the_tables_or_what_is_said(study, url):
    code, *said = Command(study.parent, "run", study, "--store", url).ended()
    assert code == 0
    bucket = open_store(url, create=False)._bucket
    held = b"".join(bucket.get_all([info.path for info in bucket.list()]))
    for path in study.parent.rglob("*"):
        held += path.read_bytes() if path.is_file() else b""
    for secret in (SECRET, "AKIDOFTHETESTS", "127.0.0.1"):
        assert secret not in "".join(said)
        assert secret.encode() not in held
