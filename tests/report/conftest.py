"""One page with everything on it, made once, and a headless Chromium to open it in."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import curvflow
from curvflow.flows.report.gather import Content, gather, open_basis
from curvflow.flows.report.render import write_report
from curvflow.flows.report.request import ReportRequest
from tests.report.studies import STUDY, report_kinds

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)


@dataclass
class Written:
    """A study that has run, what its page says, and the page."""

    study: Path
    content: Content
    file: Path

    @property
    def html(self) -> str:
        """The page's text."""
        return self.file.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Written:
    study = tmp_path_factory.mktemp("everything") / "everything.yaml"
    study.write_text(STUDY)
    with report_kinds():
        curvflow.run(study, workers=1)
        content = gather(open_basis(ReportRequest(study)))
        file, unreadable = write_report(ReportRequest(study))
    assert unreadable == []
    return Written(study, content, file)


@pytest.fixture
def toys():
    with report_kinds():
        yield


# Of a module, for as long as Playwright runs no other event loop can.
@pytest.fixture(scope="module")
def chromium():
    is_a_must = bool(os.environ.get("CURVFLOW_TEST_BROWSER"))
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if program is None or sync_playwright is None:
        lacking = "chromium" if program is None else "playwright"
        reason = f"{lacking} is not installed; CURVFLOW_TEST_BROWSER makes it a must"
        if is_a_must:
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS])
        yield browser
        browser.close()
