"""Scripts in forks of the process of the tests, which has PyTorch imported."""

import os
import sys
import traceback
import warnings
from types import ModuleType


def script(code, folder, missing=()):
    """Run a script in a fork.

    Args:
        code: its text.
        folder: where it runs, and in which what it prints is written.
        missing: packages that are not there for it; curvflow, and what looks for others
            when it is imported, is imported anew.

    Returns:
        Its exit code, and what it printed on stdout and stderr.
    """
    files = [folder / name for name in ("stdout.txt", "stderr.txt")]
    with warnings.catch_warnings():
        # Python's word on forks of processes with threads: none of them is of use here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        ended = 1
        try:
            _be(code, folder, files, missing)
            ended = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended, *(file.read_text(encoding="utf-8") for file in files)


def _be(code, folder, files, missing):
    sys.stdout, sys.stderr = (file.open("w", encoding="utf-8") for file in files)
    os.chdir(folder)
    sys.path.insert(0, "")
    anew = {*missing, "curvflow", "xarray", "arviz"} if missing else ()
    for name in [name for name in sys.modules if name.partition(".")[0] in anew]:
        del sys.modules[name]
    sys.modules |= dict.fromkeys(missing)
    warnings.simplefilter("default")
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(main))
