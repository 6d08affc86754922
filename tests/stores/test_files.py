import errno
import os

import pytest

from curvflow.errors import StoreError
from curvflow.stores.files import Disk, disk_errors


def refusing(monkeypatch, number):
    def fsync(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_folder_that_cannot_be_flushed_is_left_to_its_server(tmp_path, monkeypatch):
    refusing(monkeypatch, errno.EINVAL)
    Disk().flush(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="Invalid argument"):
        Disk().flush(tmp_path / "file")


def test_a_medium_that_fails_to_flush_is_an_error(tmp_path, monkeypatch):
    refusing(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        Disk().flush(tmp_path)


def test_a_file_is_never_written_over(tmp_path):
    Disk().write(tmp_path / "x", b"1")
    with pytest.raises(FileExistsError):
        Disk().write(tmp_path / "x", b"2")


def test_removing_takes_files_folders_links_and_nothing(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    for name in ("link", "folder", "absent"):
        Disk().remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "x").exists()


def test_what_the_system_refuses_is_said_with_the_path_and_a_remedy(tmp_path):
    absent = tmp_path / "absent" / "file"
    with (
        pytest.raises(StoreError, match=r"file: expected a store .*No such file.*disk"),
        disk_errors(absent),
    ):
        absent.read_text()


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path):
    with (
        pytest.raises(StoreError, match=r"room for 9 bytes, got \d+ bytes free"),
        disk_errors(tmp_path / "absent" / "file", 9),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
