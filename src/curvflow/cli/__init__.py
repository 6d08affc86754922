"""The command line: one file per command."""

import sys
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Any

from curvflow.schemas.long_lived import paused_gc

_lock = Lock()


class Postponed(ModuleType):
    """Stand-in for a library, which is loaded when anything of it is used.

    `import` finds it in the library's place. Once loaded, the library itself is there.
    """

    def __getattr__(self, name: str) -> Any:
        with _lock:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        library = import_module(self.__name__)
        vars(self).update(vars(library))
        return getattr(library, name)


def postpone(name: str) -> None:
    """Let a library be loaded when it is used, unless it is there already."""
    if name not in sys.modules:
        stand_in = Postponed(name)
        stand_in.__spec__ = find_spec(name)
        sys.modules[name] = stand_in


def main() -> None:
    """Load the command line, and run it."""
    if sys.argv[1:2] == ["plan"]:
        # It looks at no array if all results are there.
        postpone("numpy")
    with paused_gc():  # what is imported stays
        from curvflow.cli.app import main as run_command
    run_command()
