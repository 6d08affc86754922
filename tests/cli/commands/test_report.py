"""`curvflow report`: where the page goes, what is said, what is refused."""

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def ran(after, study):
    return after(study, ("run",))


def test_the_page_accompanies_the_results_and_is_named(curvflow, ran, tmp_path):
    said = curvflow("report", ran)
    file = tmp_path / "results" / "tiny" / "report.html"
    assert (said.code, said.out, said.err) == (0, f"{file}\n", "")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    assert "hessian_trace" in page
    assert page.count("data:image/svg+xml;base64,") == 1
    # The next run leaves it alone.
    assert curvflow("run", ran).code == 0
    assert file.exists()


def test_the_commands_on_the_page_are_commands(curvflow, ran, tmp_path):
    assert curvflow("report", ran, "-o", "p.html", "--set", "axes.seed=1").code == 0
    (shown,) = re.findall(
        r'aria-label="Commands">(.*?)</pre>', (tmp_path / "p.html").read_text(), re.S
    )
    *install, command = html.unescape(shown).splitlines()
    tutorial = (Path(__file__).parents[3] / "docs" / "tutorial.md").read_text()
    assert "\n".join(install) in tutorial
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("curvflow", "run")
    assert curvflow(verb, *arguments).code == 0


@pytest.mark.slow
@pytest.mark.processes
def test_it_loads_neither_torch_nor_what_draws_nor_what_labels(ran):
    program = (
        "import sys; sys.argv = ['curvflow', 'report', 'tiny.yaml']\n"
        "from curvflow.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'scipy', 'xarray', 'dask', 'prefect'}\n"
        "print('loaded:', *(heavy & sys.modules.keys()))\n"
    )
    expect = "expect: [{stage: table, quantity: trace, value: 1, within: 1000, "
    ran.write_text(f"{ran.read_text()}{expect}source: none}}]\n")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ran.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["loaded:"]


def test_a_file_can_be_named_also_for_an_earlier_run(curvflow, ran, tmp_path):
    said = curvflow("report", ran, "--run", 1, "-o", "deep/one.html")
    assert (said.code, said.out) == (0, "deep/one.html\n")
    assert "as of run 1" in (tmp_path / "deep" / "one.html").read_text()


def test_profile_and_overrides_are_those_of_the_other_commands(curvflow, ran, tmp_path):
    assert curvflow("report", ran, "--profile", "more", "-o", "p.html").code == 0
    assert "4 missing" not in (tmp_path / "p.html").read_text()
    assert "missing" in (tmp_path / "p.html").read_text()
    said = curvflow("report", ran, "--set", "axes.seed=1", "-o", "s.html")
    assert said.code == 0
    assert "with --set axes.seed=1" in (tmp_path / "s.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "7"], "from 1 to 1, got 7."),
        (["--port", "8000"], "expected --serve with --port"),
        (["--serve", "--run", "1"], "--serve cannot be combined with --run"),
        (["--profile", "none"], "none"),
    ],
)
def test_what_cannot_be_is_refused_on_one_line(curvflow, ran, arguments, message):
    said = curvflow("report", ran, *arguments)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_reported_on_one_line(curvflow, ran, tmp_path):
    (tmp_path / "file").write_text("no folder")
    said = curvflow("report", ran, "-o", "file/page.html")
    assert said.code == 1
    assert "expected a file that can be written" in said.err


def test_what_cannot_be_read_is_reported_and_makes_the_code_1(curvflow, ran, tmp_path):
    payloads = tmp_path / ".curvflow" / "payloads"
    files = [path for path in payloads.rglob("*") if path.is_file()]
    for path in files:
        path.write_bytes(b"torn")
    said = curvflow("report", ran)
    assert said.code == 1
    assert said.out.endswith("report.html\n")
    assert "struck off" in said.err
    page = (tmp_path / "results" / "tiny" / "report.html").read_text()
    assert "cannot be read" in page
