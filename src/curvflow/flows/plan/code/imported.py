"""Check that the code read from files is the code that computes.

Python keeps a module as it was imported, while fingerprints are told from its file. So
before anything is computed, all modules that the nodes reach are imported, and compared
with their files: no file has changed while they were imported; every function of the
user's modules has the code that its file says; and what was told of an import in an
earlier run of this process is told again. Edits of what the nodes do not reach pass, as
do comments and layout once the module has been seen.

Not seen is an edit of constants alone, or of what a module does on import, made between
its import by someone else and the first run of this process; nor one of a module whose
import failed; nor are functions compared that an import hook has rewritten, or this
package's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from warnings import catch_warnings, simplefilter

from curvflow.errors import RequestError
from curvflow.flows.graph.graph import Node
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.code.sources import OWN, is_typed

Codes = Mapping[str, list[CodeType]]


@dataclass
class _Seen:
    """The definitions read of one import of a module.

    Attributes:
        spec: of the import; a reload makes another.
        digest: of the file.
        definitions: names and digests, as long as the file has that digest.
    """

    spec: object
    digest: str
    definitions: set[tuple[str, str]] = field(default_factory=set)


_seen: dict[str, _Seen] = {}  # an import lasts as long as the process


def import_code(codes: Fingerprints, nodes: Iterable[Node]) -> None:
    """Import the modules that nodes reach, and compare them with their fingerprints.

    Raises:
        RequestError: a file has changed since its module was imported.
    """
    read: dict[str, set[tuple[str, str]]] = {}
    for code in {id(code): code for code in map(codes.of, nodes)}.values():
        for name, digest in code.definitions.items():
            read.setdefault(name.partition(":")[0], set()).add((name, digest))
    for name in read:
        _import(name)
    # Typed modules have no file, and were read as they are now.
    theirs = {
        name: sys.modules[name]
        for name in read
        if name.partition(".")[0] != OWN and name in sys.modules and not is_typed(name)
    }
    files = codes.files()
    changed = [*_other_functions(theirs), *codes.changed()] or [
        n for n, module in theirs.items() if not _as_seen(module, files[n], read[n])
    ]
    if changed:
        raise RequestError(
            f"{changed[0]}: expected the code that was imported, got a file that has "
            "changed since. Restart Python, or reload the module."
        )


def _import(name: str) -> None:
    if name not in sys.modules:
        # The node that needs it fails the same way, and reports it.
        with suppress(Exception):
            import_module(name)


def _as_seen(
    module: ModuleType, digest: str, definitions: set[tuple[str, str]]
) -> bool:
    spec = module.__spec__ or module
    seen = _seen.get(module.__name__)
    if seen is None or seen.spec is not spec:
        seen = _seen[module.__name__] = _Seen(spec, digest)
    if seen.digest == digest:
        seen.definitions |= definitions
    return definitions <= seen.definitions


def _other_functions(modules: Mapping[str, ModuleType]) -> Iterator[str]:
    """Name the modules of functions that have other code than their file says."""
    files = {str(module.__file__): _in_file(module) for module in modules.values()}
    for module in modules.values():
        for function in _functions(module, modules):
            code = function.__code__
            written = files.get(code.co_filename, {}).get(code.co_qualname, [])
            # A function that the file has no more is reached by no name in it.
            if written and _bare(code) not in written:
                yield function.__module__


def _functions(
    holder: ModuleType | type, modules: Mapping[str, ModuleType]
) -> Iterator[FunctionType]:
    for value in list(vars(holder).values()):
        if isinstance(value, type):
            if value.__module__ in modules and value is not holder:
                yield from _functions(value, modules)
        else:
            yield from _beneath(value)


def _beneath(value: object) -> Iterator[FunctionType]:
    """Find the function that decorators, properties and the like stand before."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while value is not None:
        if isinstance(value, FunctionType):
            yield value
        value = getattr(value, "__dict__", {}).get("__wrapped__")


def _in_file(module: ModuleType) -> Codes:
    """Compile a module's file as it is; return the code of its functions by name."""
    by_name: dict[str, list[CodeType]] = {}
    loader = getattr(module, "__loader__", None)
    if type(loader) is SourceFileLoader:
        with suppress(OSError, SyntaxError), catch_warnings():
            simplefilter("ignore")  # the import has warned
            data = loader.get_data(str(module.__file__))
            pending = [compile(data, str(module.__file__), "exec", dont_inherit=True)]
            while pending:
                inner = [c for c in pending.pop().co_consts if isinstance(c, CodeType)]
                pending += inner
                for code in inner:
                    by_name.setdefault(code.co_qualname, []).append(_bare(code))
    return by_name


def _bare(code: CodeType) -> CodeType:
    """Return code without the place where it stands."""
    inner = [_bare(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    if "__firstlineno__" in code.co_names:  # of a class, from Python 3.13 on
        inner = [0 if c == code.co_firstlineno else c for c in inner]
    return code.replace(
        co_filename="", co_firstlineno=1, co_linetable=b"", co_consts=tuple(inner)
    )
