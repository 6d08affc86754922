"""Cached payloads end with the process that fetched them."""

import subprocess
import sys

FORKED = """
import os, sys
from curvflow.stores.payload_cache import PayloadCache

fetched = PayloadCache(lambda name: b"", ".zip")
with fetched.written(b"parent") as path:
    folder = path.parent
child = os.fork()
if child == 0:
    with fetched.written(b"child") as path:
        assert path.parent != folder
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert folder.exists()
assert os.listdir(folder.parent) == [folder.name]
"""


def test_a_forked_child_removes_what_it_fetched_and_nothing_of_its_parent(tmp_path):
    command, env = [sys.executable, "-c", FORKED], {"TMPDIR": str(tmp_path)}
    subprocess.run(command, env=env, check=True)
    assert list(tmp_path.iterdir()) == []
