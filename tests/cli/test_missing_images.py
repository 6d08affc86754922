"""Files of images that are nowhere, as a person at a terminal learns of it."""

import pytest

STUDY = """\
study: pictures
axes: {}
stages:
  images: {use: data.cifar10, folder: nowhere}
"""


@pytest.mark.parametrize("command", ["plan", "run"])
def test_missing_files_are_one_line_and_exit_code_2(
    curvflow, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CURVFLOW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "study.yaml").write_text(STUDY)
    said = curvflow(command, "study.yaml")
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "study.yaml:4:31: stages.images.folder: expected the files of CIFAR-10 "
    for message in (
        "in nowhere, CURVFLOW_DATA (not set), ",
        "Set download: true",
    ):
        assert message in said.err
