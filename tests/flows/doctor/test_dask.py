"""Dask's two halves, and schedulers that answer, or do not, or know another version."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import LocalCluster

from curvflow.flows.doctor.machine import Finding
from curvflow.flows.doctor.services import (
    dask_findings,
    scheduler_findings,
    version_findings,
    worker_findings,
)
from curvflow.flows.run.runners import clients

ADDRESS = "tcp://127.0.0.1:8786"
BIN = Path(sys.executable).parent


def by_check(findings):
    return {finding.check: finding for finding in findings}


def test_this_dask_is_fine():
    (finding,) = dask_findings()
    assert finding.state == "ok"


@pytest.mark.parametrize(
    ("dask", "distributed", "text"),
    [
        ("2026.8.0", "2026.1.0", "dask 2026.8.0 with distributed 2026.1.0"),
        ("2026.8.0", None, "dask 2026.8.0 with distributed missing"),
        (None, None, "dask missing with distributed missing"),
    ],
)
def test_halves_that_do_not_fit_fail_with_the_remedy(dask, distributed, text):
    versions = {"dask": dask, "distributed": distributed}
    remedy = "Run `pip install --upgrade dask distributed`."
    (finding,) = dask_findings(versions.get)
    assert finding == Finding("dask", "FAIL", text, remedy)


def test_a_scheduler_that_does_not_answer_fails(monkeypatch):
    monkeypatch.setattr(clients, "ANSWER_WITHIN", 0.5)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    (finding,) = scheduler_findings(address)
    assert (finding.check, finding.state) == ("scheduler", "FAIL")
    assert finding.message.startswith(f"{address}: ")
    assert finding.remedy.startswith("Start one with `dask scheduler`")


def test_a_word_that_is_no_address_fails():
    (finding,) = scheduler_findings("nonsense://x")
    assert (finding.check, finding.state) == ("scheduler", "FAIL")


def test_a_scheduler_and_its_workers_are_reported():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        findings = by_check(scheduler_findings(cluster.scheduler_address))
    assert {check: finding.state for check, finding in findings.items()} == {
        "scheduler": "ok",
        "workers": "ok",
        "workers.gpu": "ok",
        "workers.versions": "ok",
    }
    assert findings["workers"].message == "2, with 1 thread each"
    assert findings["workers.gpu"].message == "none offers a GPU"


@pytest.mark.cluster
def test_a_real_scheduler_without_workers_fails_with_the_command(tmp_path):
    arguments = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with subprocess.Popen(
        [BIN / "dask", *arguments], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            lines = iter(process.stderr.readline, "")
            address = next(line.split()[-1] for line in lines if "Scheduler at" in line)
            findings = by_check(scheduler_findings(address))
        finally:
            process.kill()
            process.communicate()
    assert findings["scheduler"].state == "ok"
    start = f"dask worker {address} --nthreads 1"
    assert findings["workers"] == Finding(
        "workers", "FAIL", "none", f"Start some with `{start}`."
    )


def test_workers_of_several_threads_fail():
    workers = {"a": {"nthreads": 1, "resources": {}}, "b": {"nthreads": 8}}
    finding = by_check(worker_findings(ADDRESS, workers))["workers"]
    assert (finding.state, finding.message) == ("FAIL", "2, with 1 or 8 threads each")
    assert finding.remedy == (
        f"Give each one thread, and start more: `dask worker {ADDRESS} --nthreads 1`."
    )


def test_workers_with_gpus_are_counted():
    workers = {"a": {"nthreads": 1, "resources": {"GPU": 1.0}}, "b": {"nthreads": 1}}
    finding = by_check(worker_findings(ADDRESS, workers))["workers.gpu"]
    assert (finding.state, finding.message) == ("ok", "1 of 2 offer a GPU")


def compared(client, workers):
    packages = {"python": "3.11.7.final.0", "curvflow": "0.1.0", "dask": "1"} | client
    versions = {
        "client": {"packages": packages},
        "scheduler": {"packages": packages},
        "workers": {
            str(index): {"packages": packages | changes}
            for index, changes in enumerate(workers)
        },
    }
    return list(version_findings(versions))


def test_the_same_versions_are_fine():
    assert compared({}, [{}, {"python": "3.11.9.final.0"}]) == [
        Finding("workers.versions", "ok", "the same as here")
    ]


@pytest.mark.parametrize(
    ("other", "state", "text", "remedy"),
    [
        (
            {"curvflow": "0.0.9"},
            "FAIL",
            "curvflow 0.0.9 there, 0.1.0 here",
            "There, run `pip install curvflow==0.1.0`.",
        ),
        (
            {"curvflow": None},
            "FAIL",
            "curvflow missing there, 0.1.0 here",
            "There, run `pip install curvflow==0.1.0`.",
        ),
        (
            {"python": "3.12.1.final.0"},
            "FAIL",
            "python 3.12 there, 3.11 here",
            "Start scheduler and workers with Python 3.11.",
        ),
        (
            {"torch": "2.12.0"},
            "warn",
            "torch 2.12.0 there, 2.13.0 here",
            "There, run `pip install torch==2.13.0`.",
        ),
    ],
)
def test_a_worker_of_another_version_is_reported(other, state, text, remedy):
    findings = compared({"torch": "2.13.0"}, [{}, other])
    assert findings == [Finding("workers.versions", state, text, remedy)]
