"""The command line, and other functions, in forks of a process that has all loaded."""

import os
import sys
from pathlib import Path
from uuid import uuid4

from curvflow.cli.app import main
from tests import forkserver

# Against processes that hang, not a measure of anything.
PATIENCE = 120


class Fork:
    """A function of a module, with the folder and the environment of this process."""

    def __init__(self, folder, function, *arguments):
        """Start it.

        Args:
            folder: for files of what it prints.
            function: named in its module.
            arguments: of the function.
        """
        names = [f"{uuid4().hex}.{stream}" for stream in ("out", "err")]
        self._files = [Path(folder) / name for name in names]
        here = str(Path.cwd()), dict(os.environ), self._files
        given = (*here, function, arguments)
        self._process = forkserver.running().Process(target=_be, args=given)
        self._process.start()

    def ended(self):
        """Wait for its end; return its exit code, and what is on stdout and stderr."""
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError("it hangs")
        return self._process.exitcode, *(file.read_text() for file in self._files)


class Command(Fork):
    """`curvflow ARGUMENTS`."""

    def __init__(self, folder, *arguments):
        """Start it, as above."""
        super().__init__(folder, curvflow, *map(str, arguments))


def curvflow(*words):
    """Be the command line."""
    sys.argv = ["curvflow", *words]
    main()


def _be(folder, environment, files, function, arguments):
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    function(*arguments)
