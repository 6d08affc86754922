"""Changes that a library's function makes when called, by its name."""

from __future__ import annotations

import ast
import re

# Words that names of functions begin with that change what later calls find.
_WORDS = (
    *("add", "basic", "capture", "clear", "config", "configure", "disable", "enable"),
    *("filter", "init", "insert", "install", "load_dotenv", "patch", "pop", "push"),
    *(
        "register",
        "remove",
        "rename",
        "replace",
        "reset",
        "seed",
        "set",
        "simplefilter",
    ),
    *("start", "stop", "uninstall", "unpatch", "unregister", "unset", "update", "use"),
)
_CHANGES = re.compile(rf"_*(?:(?:{'|'.join(_WORDS)})(?=_|[A-Z]|$)|set|seed)")
# They begin alike, and compute.
_PURE = frozenset(
    {
        *("numpy.add", "numpy.insert", "numpy.setdiff1d", "numpy.setxor1d"),
        *("torch.add", "dataclasses.replace"),
    }
)
# Of these modules everything changes the state of the process but what is listed.
_READ = {
    "os": frozenset(
        {
            *("access", "cpu_count", "environ.get", "fsdecode", "fsencode", "fspath"),
            *("getcwd", "getenv", "getpid", "listdir", "lstat", "process_cpu_count"),
            *("scandir", "sched_getaffinity", "stat", "uname", "walk"),
        }
    ),
    "warnings": frozenset[str](),
}
# Functions of one array: a second that is given by its place is filled.
_OF_ONE = frozenset(
    {
        *("abs", "absolute", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh"),
        *("arctan", "arctanh", "asin", "asinh", "atan", "atanh", "bitwise_count"),
        *("bitwise_invert", "bitwise_not", "cbrt", "ceil", "conj", "conjugate", "cos"),
        *("cosh", "deg2rad", "degrees", "exp", "exp2", "expm1", "fabs", "fix", "floor"),
        *("frexp", "invert", "isfinite", "isinf", "isnan", "isnat", "isneginf"),
        *("isposinf", "log", "log10", "log1p", "log2", "logical_not", "modf"),
        *("negative", "positive", "rad2deg", "radians", "reciprocal", "rint", "sign"),
        *("signbit", "sin", "sinh", "spacing", "sqrt", "square", "tan", "tanh"),
        "trunc",
    }
)
# Functions of three and more that none of them is filled by.
_OF_MORE = frozenset(
    {
        *("arange", "array", "full", "geomspace", "histogram", "interp", "isclose"),
        *("linspace", "logspace", "meshgrid", "pad", "polyfit", "select", "where"),
    }
)
_FIRST = frozenset({"at", "shuffle"})  # they change what is given first


def changes_state(text: str) -> bool:
    """Return whether a library's function may change what other code finds later.

    Such as seeds, defaults and filters, and files.
    """
    module, _, name = text.partition(".")
    if module == "os" and name.startswith("path."):
        return False
    if module in _READ:
        return name not in _READ[module]
    last = text.rpartition(".")[2]
    return text not in _PURE and ("seed" in last or bool(_CHANGES.match(last)))


def may_be_filled(call: ast.Call, text: str) -> list[ast.expr]:
    """Return arguments that a function of arrays may write into, by their places.

    As `numpy.add(a, b, into)`, `numpy.add.at(into, ...)` and `numpy.shuffle(into)`.
    """
    last = text.rpartition(".")[2]
    if not text.startswith("numpy.") or last in _OF_MORE:
        return []
    if last in _FIRST or any(isinstance(given, ast.Starred) for given in call.args):
        return call.args
    return call.args[1 if last in _OF_ONE else 2 :]
