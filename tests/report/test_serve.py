"""`curvflow report --serve`: on loopback, anew while a run goes on, ended by Ctrl-C."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

import curvflow
from curvflow.errors import RequestError
from curvflow.flows.report import serve as serving
from curvflow.flows.report.gather import open_basis
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.report.serve import LOOPBACK, serve_report

pytestmark = pytest.mark.processes

SMALL = """\
study: small
axes: {seed: 2}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: 0.25, seed: "${seed}"}
  last: {use: toy.probe, weights: fit}
"""
REAL = """\
study: real
stages:
  data: {use: data.xor}
"""
ENV = {**os.environ, "PYTHONUNBUFFERED": "1"}


class Ended(BaseException):
    """The test is over."""


@pytest.fixture
def small(toys, tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "LOOK_EVERY", 0.05)
    study = tmp_path / "small.yaml"
    study.write_text(SMALL)
    return study


@contextmanager
def served(study, **settings):
    """Serve in a thread, which ends at its next look."""
    begun, over, told, address = threading.Event(), threading.Event(), [], []

    def sleep(seconds):
        if over.wait(seconds):
            raise KeyboardInterrupt

    def begins(url, file):
        address.extend([url, file])
        begun.set()

    clock = mock.Mock(wraps=time, sleep=sleep)
    with mock.patch.object(serving, "time", clock):
        thread = threading.Thread(
            target=serve_report,
            args=(ReportRequest(study),),
            kwargs={"on_start": begins, "on_trouble": told.append, **settings},
        )
        thread.start()
        try:
            assert begun.wait(60)
            yield address[0], address[1], told
        finally:
            over.set()
            thread.join(60)
    assert not thread.is_alive()


def ask(url, path="/", *, method="GET", host=None):
    place = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def state(url):
    return json.loads(ask(url, "/state")[1])


def wait_for(found, seconds=60):
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_page_is_written_anew_when_the_log_has_changed(small):
    with served(small) as (url, file, _):
        first, page = state(url), file.read_text()
        assert first["stale"] == ""
        assert "no run yet" in page
        curvflow.run(small, workers=1)
        wait_for(lambda: "All 5 nodes have a result" in file.read_text())
        wait_for(lambda: state(url) != first)
        now = state(url)["version"]
        assert f'data-version="{now}"' in ask(url)[1]
        assert "data-version" not in file.read_text()
        assert "connect-src" not in file.read_text()


def test_only_this_machine_by_its_own_name_is_answered_and_only_two_addresses(small):
    with served(small) as (url, _, _):
        assert url.startswith(f"http://{LOOPBACK}:")
        answer, text = ask(url)
        assert (answer.status, text[:15]) == (200, "<!doctype html>")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/small.yaml", "/../small.yaml", "/%2e%2e/small.yaml", "/?"):
            assert ask(url, path)[0].status == 404
        port = url.rstrip("/").rpartition(":")[2]
        for host in ("example.org", f"example.org:{port}", LOOPBACK, f"{LOOPBACK}:1"):
            assert ask(url, host=host)[0].status == 403
        assert ask(url, host=f"localhost:{port}")[0].status == 200
        assert ask(url, method="POST")[0].status == 501


def test_a_study_that_breaks_meanwhile_is_reported_once_and_the_page_stays(small):
    with served(small) as (url, file, told):
        before = state(url)
        small.write_text(SMALL.replace("toy.probe", "toy.prob"))
        with mock.patch.object(serving, "open_basis", wraps=open_basis) as tries:
            curvflow.run(written_again(small), workers=1)
            wait_for(lambda: tries.call_count >= 3)
        assert len(told) == 1
        assert "toy.prob" in told[0]
        assert state(url) == {**before, "stale": told[0]}
        assert "no run yet" in file.read_text()
        small.write_text(SMALL.replace("toy.probe", "toy.pro"))
        wait_for(lambda: len(told) == 2)
        small.write_text(SMALL)
        wait_for(lambda: state(url)["version"] != before["version"])
        assert "All 5 nodes have a result" in file.read_text()
        wait_for(lambda: state(url)["stale"] == "")
        assert len(told) == 2


def written_again(study: Path) -> Path:
    """Write the sound study beside, with the same store."""
    other = study.with_name("other.yaml")
    other.write_text(SMALL)
    return other


def test_a_port_that_is_taken_is_refused(small):
    with served(small) as (url, _, _):
        port = int(url.rstrip("/").rpartition(":")[2])
        with pytest.raises(RequestError, match=f"expected a free port.*got {port}"):
            serve_report(
                ReportRequest(small),
                port=port,
                on_start=lambda *_: None,
                on_trouble=lambda _: None,
            )


def test_a_reader_who_leaves_before_the_end_is_no_error(capfd):
    page = serving.ServedPage("one", b"x" * 30_000_000, "default-src 'none'")
    with serving._listening(page, 0) as address:
        place = address.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(place)
        connection.request("GET", "/")
        connection.getresponse().read(10)
        connection.close()
        time.sleep(0.3)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_code_0_and_keeps_the_file(tmp_path, number):
    (tmp_path / "real.yaml").write_text(REAL)
    command = [sys.executable, "-c", "from curvflow.cli.app import main; main()"]
    with subprocess.Popen(
        [*command, "report", "real.yaml", "--serve"],
        cwd=tmp_path,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"http://{LOOPBACK}:")
        assert line.endswith("Ctrl-C ends\n")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said == "curvflow: no longer served; the file is kept\n"
    assert (tmp_path / "results" / "real" / "report.html").exists()


@pytest.mark.browser
@pytest.mark.slow
def test_an_open_page_reloads_itself_but_not_under_a_reader(small, chromium):
    context = chromium.new_context()
    page = context.new_page()
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    with served(small) as (url, _, _):
        page.goto(url)
        assert "no run yet" in page.locator("#overview").inner_text()
        curvflow.run(small, workers=1)
        page.locator("#overview", has_text="All 5 nodes have a result").wait_for()
        page.locator("details").nth(1).locator("summary").click()
        curvflow.run(small, workers=1)
        page.locator("#newer").wait_for(state="visible")
        page.locator("#newer button").click()
        page.locator("#overview", has_text="run 2").wait_for()
        assert {one.removeprefix(url) for one in requests} <= {"", "state"}
        small.write_text(SMALL.replace("toy.probe", "toy.prob"))
        curvflow.run(written_again(small), workers=1, overrides=["axes.seed=4"])
        page.locator("#stale", has_text="Not up to date: ").wait_for()
        assert "toy.prob" in page.locator("#stale").inner_text()
        assert "run 2" in page.locator("#overview").inner_text()
        context.close()  # before the server ends, whom the page asks again and again
    assert complaints == []
