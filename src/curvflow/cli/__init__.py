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
        return getattr(_loaded(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_loaded(self), name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_loaded(self), name)
        vars(self).pop(name, None)

    def __dir__(self) -> list[str]:
        return dir(_loaded(self))


def _loaded(stand_in: Postponed) -> ModuleType:
    """Return the library, of which the stand-in has everything from then on."""
    name = stand_in.__name__
    with _lock:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
    library = import_module(name)
    vars(stand_in).update(vars(library))
    return library


def postpone(name: str) -> None:
    """Let a library be loaded when it is used, unless it is there or there is none."""
    if name not in sys.modules and (spec := find_spec(name)):
        stand_in = Postponed(name)
        vars(stand_in)["__spec__"] = spec
        sys.modules[name] = stand_in


def main() -> None:
    """Load the command line, and run it."""
    if sys.argv[1:2] == ["plan"]:
        # It looks at no array if all results are there.
        postpone("numpy")
    with paused_gc():  # what is imported stays
        from curvflow.cli.app import main as run_command
    run_command()
