"""What a cluster file may say, and how each mistake in it is told."""

import sys

import pytest

from curvflow.errors import RequestError
from curvflow.flows.run.runners.cluster_file import START, read_cluster

FACTORY = "factory: dask_jobqueue:SLURMCluster"
FORM = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(text: str) -> str:
        (tmp_path / "cluster.yaml").write_text(text)
        return "cluster.yaml"

    return written


@pytest.fixture
def module(request, tmp_path, monkeypatch):
    """Return a function that writes a module beside the cluster file."""
    name = f"factories_{abs(hash(request.node.name))}"

    def written(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield written
    sys.modules.pop(name, None)


def test_a_cluster_is_read_with_its_arguments_and_workers(write):
    cluster = read_cluster(
        write(
            "cluster:\n"
            "  factory: distributed:LocalCluster\n"
            "  kwargs: {threads_per_worker: 1, env: {A: b}}\n"
            "  workers: 4\n"
        )
    )
    assert cluster.factory == "distributed:LocalCluster"
    assert cluster.kwargs == {"threads_per_worker": 1, "env": {"A": "b"}}
    assert (cluster.workers, cluster.adapt) == (4, None)


def test_a_cluster_may_adapt_instead(write):
    text = "cluster: {factory: 'distributed:LocalCluster', adapt: {maximum: 20}}"
    adapt = read_cluster(write(text)).adapt
    assert adapt is not None
    assert (adapt.minimum, adapt.maximum) == (0, 20)


def test_a_factory_may_accompany_the_file(write, module):
    name = module("def start(**kwargs): ...\n")
    cluster = read_cluster(write(f"cluster: {{factory: '{name}:start'}}"))
    assert cluster.factory == f"{name}:start"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"1:1: expected a mapping, got an empty file. {START}"),
        ("- 1", f"1:1: expected a mapping, got [1]. {START}"),
        ("{}", f"1:1: cluster: expected a value, got none. {START}"),
        (
            "clusters: 1",
            "1:1: clusters: expected the key 'cluster', got 'clusters'. "
            "Did you mean 'cluster'?",
        ),
        (
            "cluster: [1]",
            "1:10: cluster: expected a mapping, got [1]. "
            "Write lines of the form 'key: value'.",
        ),
        (
            "cluster: {factory: 'a:b'",
            "1:25: expected YAML, got a syntax error (expected ',' or '}', but got "
            "'<stream end>'). Look at brackets, quotes, colons and indentation up to "
            "there.",
        ),
        (
            "cluster:\n  workers: 4",
            "1:1: cluster.factory: expected a value, got none. Add 'factory: ...' "
            "(`package.module:Name`, such as `dask_jobqueue:SLURMCluster`).",
        ),
        (
            "cluster:\n  factry: dask_jobqueue:SLURMCluster",
            "2:3: cluster.factry: expected a key that is known here, got 'factry'. "
            "Did you mean 'factory'?",
        ),
        (
            "cluster:\n  factory: SLURMCluster",
            f"2:12: cluster.factory: expected text of the form {FORM}, got "
            "'SLURMCluster'. It is `package.module:Name`, such as "
            "`dask_jobqueue:SLURMCluster`.",
        ),
        (
            f"cluster:\n  {FACTORY}\n  workers: 0",
            "3:12: cluster.workers: expected an integer of at least 1, got 0. "
            "Raise it.",
        ),
        (
            f"cluster:\n  {FACTORY}\n  workers: '4'",
            "3:12: cluster.workers: expected an integer, got '4'. Remove the quotes.",
        ),
        (
            f"cluster:\n  {FACTORY}\n  adapt: {{minimm: 1, maximum: 2}}",
            "3:11: cluster.adapt.minimm: expected a key that is known here, got "
            "'minimm'. Did you mean 'minimum'?",
        ),
        (
            f"cluster:\n  {FACTORY}\n  kwargs: [1]",
            "3:11: cluster.kwargs: expected a mapping, got [1]. "
            "Write lines of the form 'key: value'.",
        ),
    ],
)
def test_what_is_wrong_is_reported_at_its_place(write, text, message):
    with pytest.raises(RequestError) as refused:
        read_cluster(write(text))
    assert str(refused.value) == f"cluster.yaml:{message}"


@pytest.mark.parametrize(
    ("scale", "place", "words"),
    [
        ("workers: 2\n  adapt: {maximum: 3}", "2:3: cluster", "cannot be combined"),
        ("adapt: {minimum: 4, maximum: 3}", "3:10: cluster.adapt", "got 4 above 3"),
    ],
)
def test_scales_that_do_not_fit_together_are_refused(write, scale, place, words):
    with pytest.raises(RequestError, match=words) as refused:
        read_cluster(write(f"cluster:\n  {FACTORY}\n  {scale}"))
    assert str(refused.value).startswith(f"cluster.yaml:{place}: ")


def test_a_package_that_is_missing_is_named_with_its_remedy(write):
    with pytest.raises(RequestError) as refused:
        read_cluster(write("cluster:\n  factory: dask_nowhere.core:Cluster"))
    assert str(refused.value) == (
        "cluster.yaml:2:12: cluster.factory: expected a module that can be imported, "
        "got 'dask_nowhere.core'. Run `pip install dask-nowhere`."
    )


def test_a_misspelt_class_is_reported_with_the_nearest_name(write):
    with pytest.raises(RequestError) as refused:
        read_cluster(write("cluster:\n  factory: distributed:LocalClustr"))
    assert str(refused.value) == (
        "cluster.yaml:2:12: cluster.factory: expected a class or function of "
        "'distributed', got 'LocalClustr'. Did you mean 'LocalCluster'?"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import nowhere_to_be_found\n",
            ", which needs 'nowhere_to_be_found'. Install it, or put it next to this "
            "file.",
        ),
        ("1 / 0\n", " (ZeroDivisionError: division by zero). Mend its import."),
    ],
)
def test_a_module_whose_import_fails_is_reported_with_the_reason(
    write, module, source, reason
):
    name = module(source)
    with pytest.raises(RequestError) as refused:
        read_cluster(write(f"cluster:\n  factory: {name}:start"))
    assert str(refused.value) == (
        "cluster.yaml:2:12: cluster.factory: expected a module that can be imported, "
        f"got '{name}'{reason}"
    )


def test_a_file_that_is_not_there_is_one_line():
    with pytest.raises(RequestError) as refused:
        read_cluster("nowhere.yaml")
    assert str(refused.value) == (
        "nowhere.yaml: expected a file that describes a cluster, got none: No such "
        "file or directory. Check --cluster."
    )
