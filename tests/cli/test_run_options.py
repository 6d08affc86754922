"""Options of a run: devices, workers, clusters and observers."""

import sys
from types import ModuleType

import pytest

from curvflow.flows import api


@pytest.fixture
def asked(curvflow, study, monkeypatch):
    """Return a function that tells which door a command reaches, and with what."""
    heard = {}

    def door(name):
        def reached(study, **given):
            heard.update(given, door=name)
            raise SystemExit

        return reached

    deployed = ModuleType("curvflow.flows.deployed.observed")
    deployed.run_observed = door("observed")
    monkeypatch.setitem(sys.modules, deployed.__name__, deployed)
    monkeypatch.setattr(api, "run", door("run"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def options(*arguments):
        curvflow("run", study, *arguments)
        return heard

    return options


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], {"workers": None, "scheduler": None, "cluster": None, "dashboard": False}),
        (["--workers", "3", "--dashboard"], {"workers": 3, "dashboard": True}),
        (["--scheduler", "tcp://[::1]:8786"], {"scheduler": "tcp://[::1]:8786"}),
        (["--device", "cpu", "--threads", "2"], {"device": "cpu", "num_threads": 2}),
        (["--no-record-reads"], {"record_reads": False, "partial": False}),
        (["--partial"], {"partial": True}),
    ],
    ids=["nothing", "workers", "scheduler", "device", "reads", "partial"],
)
def test_options_reach_the_run(asked, arguments, fields):
    options = asked(*arguments)["options"]
    assert {name: getattr(options, name) for name in fields} == fields


def test_a_cluster_file_is_read_before_the_run(study, asked):
    text = "cluster: {factory: 'distributed:LocalCluster', workers: 2}\n"
    (study.parent / "two.yaml").write_text(text)
    cluster = asked("--cluster", "two.yaml")["options"].cluster
    assert (cluster.factory, cluster.workers) == ("distributed:LocalCluster", 2)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--workers", "2", "--scheduler", "tcp://127.0.0.1:8786"],
            "--workers cannot be combined with --scheduler. Choose one.",
        ),
        (
            ["--workers", "2", "--cluster", "two.yaml"],
            "--workers cannot be combined with --cluster. Choose one.",
        ),
        (
            ["--scheduler", "127.0.0.1:8786"],
            "--scheduler: expected an address such as tcp://127.0.0.1:8786, got "
            "'127.0.0.1:8786'. `dask scheduler` prints the one it has.",
        ),
        (
            ["--scheduler", "http://127.0.0.1:8786"],
            "--scheduler: expected an address such as tcp://127.0.0.1:8786, got "
            "'http://127.0.0.1:8786'. `dask scheduler` prints the one it has.",
        ),
        (
            ["--scheduler", "tcp://[::1"],
            "--scheduler: expected an address such as tcp://127.0.0.1:8786, got "
            "'tcp://[::1'. `dask scheduler` prints the one it has.",
        ),
        (
            ["--cluster", "nowhere.yaml"],
            "nowhere.yaml: expected a file that describes a cluster, got none: No such "
            "file or directory. Check --cluster.",
        ),
        (
            ["--cluster", "broken.yaml"],
            "broken.yaml:1:11: cluster.wrkers: expected a key that is known here, got "
            "'wrkers'. Did you mean 'workers'?",
        ),
    ],
    ids=[
        "two places",
        "workers and file",
        "address",
        "scheme",
        "bracket",
        "no file",
        "broken file",
    ],
)
def test_where_nothing_can_compute_is_one_line_and_exit_code_2(
    curvflow, study, arguments, line
):
    text = "cluster: {factory: 'distributed:LocalCluster'}\n"
    (study.parent / "two.yaml").write_text(text)
    (study.parent / "broken.yaml").write_text("cluster: {wrkers: 3}\n")
    said = curvflow("run", study, *arguments)
    assert (said.code, said.out, said.err) == (2, "", f"curvflow: {line}\n")
    assert not (study.parent / ".curvflow").exists()


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:4200/api"])
@pytest.mark.parametrize(
    ("option", "door"),
    [((), None), (("--observe",), "observed"), (("--no-observe",), "run")],
    ids=["nothing", "observe", "no-observe"],
)
def test_a_run_is_observed_where_that_is_requested_or_configured(
    asked, monkeypatch, url, option, door
):
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert asked(*option)["door"] == (door or ("observed" if url else "run"))
