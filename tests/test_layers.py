"""The layers of docs/design.md, read from the imports of every source file.

An import counts wherever it stands: inside a function, under TYPE_CHECKING, or as the
text given to `import_module`.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "curvflow"

BELOW = {
    "errors": set(),
    "schemas": {"errors"},
    "stores": {"errors", "schemas"},
    "tasks": {"errors", "schemas"},
    "flows": {"errors", "schemas", "stores", "tasks"},
    "cli": {"errors", "schemas", "stores", "tasks", "flows"},
    # For authors of kinds and stores; nothing in the product stands on it.
    "testing": {"errors", "schemas", "stores", "tasks"},
}
# What the numerics stand on, beside Python's own modules and themselves.
NUMERICS, BELOW_NUMERICS = (
    "curvflow.tasks.numerics",
    {"errors", "numpy", "scipy", "torch"},
)
# Rooms of the numerics whose modules import each other's, though no two modules do.
MUTUAL = {
    ("derivatives", "estimators"),
    ("derivatives", "kronecker"),
    ("entropy", "estimators"),
    ("estimators", "krylov"),
    ("graphs", "operators"),
}
OWNERS = {
    "click": {"cli"},
    "rich": {"cli"},
    "typer": {"cli"},
    "dask": {"flows"},
    "distributed": {"flows"},
    "jinja2": {"flows"},
    "prefect": {"flows"},
    "matplotlib": {"tasks"},
    # What decodes a file's bytes: loaded when a tile runs, never while planning.
    "PIL": {"tasks"},
    "tokenizers": {"tasks"},
    "safetensors": {"tasks"},
    "scipy": {"tasks"},
    "sklearn": {"tasks"},
    "torch": {"tasks", "testing"},
    "google_crc32c": {"stores"},
    "numcodecs": {"stores"},
    "obstore": {"stores"},
    "zarr": {"stores"},
    "pandas": {"stores", "tasks"},
    "xarray": {"stores", "tasks"},
    "pydantic": {"schemas", "tasks", "testing"},
    "pytest": {"testing"},
    "pydantic_core": {"schemas"},
    "ruamel": {"schemas"},
    # The disk is reached from where results live and from where paths are given.
    "os": {"stores", "flows", "cli"},
    "pathlib": {"stores", "flows", "cli"},
    "shutil": {"stores", "flows", "cli"},
    "tempfile": {"stores", "flows", "cli"},
}


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def modules(source: Path) -> dict[str, ast.Module]:
    """Parse every file but the door, curvflow/__init__.py, which opens onto all."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != source.name:
            found[name] = parsed(path.read_text(encoding="utf-8"))
    return found


@cache
def importing(tree: ast.Module) -> list[ast.Import | ast.ImportFrom | ast.Call]:
    """Return what imports in a module: statements, and calls of functions that do."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (
            isinstance(node, ast.Call)
            and called(node) in {"import_module", "__import__"}
        )
    ]


def imports(tree: ast.Module, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import; a leading dot marks a relative one."""
    for node in importing(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                is_door = base == "curvflow"
                yield node.lineno, inner if inner in known or is_door else base
        else:
            yield node.lineno, constant_start(node.args[0])


def called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def constant_start(text: ast.expr) -> str:
    if isinstance(text, ast.JoinedStr):
        text = text.values[0]
    return str(text.value) if isinstance(text, ast.Constant) else ""


def fault(layer: str, name: str) -> str:
    if name.startswith("."):
        return "is relative"
    first, _, rest = name.partition(".")
    if first in OWNERS and layer not in OWNERS[first]:
        return f"belongs to {' and '.join(sorted(OWNERS[first]))}"
    if first != "curvflow" or rest == "__version__":
        return ""
    inner = rest.partition(".")[0]
    return "" if inner == layer or inner in BELOW[layer] else f"is not below {layer}"


def faults(source: Path) -> list[str]:
    trees = modules(source)
    return [
        f"{module}:{line}: {name} {why}"
        for module, tree in trees.items()
        for line, name in imports(tree, set(trees))
        if (why := fault(module.split(".")[1], name))
    ]


def cycle(source: Path) -> list[str]:
    trees = modules(source)
    graph = {
        module: {name for _, name in imports(tree, set(trees))} & set(trees) - {module}
        for module, tree in trees.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_import_points_down_and_every_library_stays_with_its_owner():
    assert faults(SOURCE) == []


def below_numerics(source: Path) -> list[str]:
    trees = modules(source)
    own = ("__future__", *sys.stdlib_module_names, *BELOW_NUMERICS)
    return [
        f"{module}:{line}: {name} is not below the numerics"
        for module, tree in trees.items()
        if module.startswith(NUMERICS)
        for line, name in imports(tree, set(trees))
        if not name.startswith(NUMERICS)
        and name.removeprefix("curvflow.").partition(".")[0] not in own
    ]


def test_the_numerics_import_torch_numpy_and_scipy_alone():
    assert below_numerics(SOURCE) == []


@pytest.mark.parametrize(
    "text",
    [
        "import xarray",
        "def f():\n    import pydantic",
        "from curvflow.schemas.params import Params",
        "from curvflow.tasks.registry import Machine",
    ],
)
def test_what_is_not_below_the_numerics_is_found(tmp_path, text):
    write(tmp_path, {"tasks/numerics/wrong.py": text, "tasks/registry.py": ""})
    (only,) = below_numerics(tmp_path / "curvflow")
    assert only.startswith("curvflow.tasks.numerics.wrong:")


def mutual_rooms(source: Path) -> set[tuple[str, ...]]:
    """Return the pairs of the numerics' rooms of which each imports the other."""
    trees = modules(source)
    inner = f"{NUMERICS}."
    edges = {
        tuple(name.removeprefix(inner).partition(".")[0] for name in (module, imported))
        for module, tree in trees.items()
        if module.startswith(inner)
        for _, imported in imports(tree, set(trees))
        if imported.startswith(inner)
    }
    return {edge for edge in edges if edge[::-1] in edges and edge[0] < edge[1]}


def test_few_rooms_of_the_numerics_import_each_other():
    assert mutual_rooms(SOURCE) == MUTUAL


def test_rooms_that_import_each_other_are_found(tmp_path):
    files = {
        "tasks/numerics/a/one.py": "from curvflow.tasks.numerics.b.two import x",
        "tasks/numerics/b/two.py": "from curvflow.tasks.numerics import streams",
        "tasks/numerics/b/three.py": "import curvflow.tasks.numerics.a.one",
        "tasks/numerics/streams.py": "",
    }
    write(tmp_path, files)
    assert mutual_rooms(tmp_path / "curvflow") == {("a", "b")}


def test_no_modules_import_each_other():
    assert cycle(SOURCE) == []


def test_every_package_has_a_layer():
    assert {name.split(".")[1] for name in modules(SOURCE)} == set(BELOW)


@pytest.mark.parametrize(
    ("layer", "text", "found"),
    [
        ("schemas", "import torch", "torch belongs to tasks"),
        ("flows", "def f():\n    from zarr.storage import Store", "belongs to stores"),
        ("cli", "if TYPE_CHECKING:\n    import prefect.flows", "belongs to flows"),
        ("tasks", "from curvflow.stores import local", "stores.local is not below"),
        ("stores", "from curvflow import tasks", "curvflow.tasks is not below stores"),
        ("stores", "import curvflow", "curvflow is not below stores"),
        (
            "schemas",
            "f = lambda: __import__('curvflow.flows.plan.plan')",
            "is not below",
        ),
        ("tasks", "importlib.import_module(f'curvflow.cli.{x}')", "is not below tasks"),
        ("tasks", "from . import models", ". is relative"),
        ("tasks", "from pathlib import Path", "belongs to cli and flows and stores"),
    ],
)
def test_a_misplaced_import_is_found(tmp_path, layer, text, found):
    write(tmp_path, {f"{layer}/wrong.py": text, "stores/local.py": ""})
    (only,) = faults(tmp_path / "curvflow")
    assert only.startswith(f"curvflow.{layer}.wrong:")
    assert found in only


def test_imports_that_point_down_are_accepted(tmp_path):
    text = "import json\nfrom curvflow import __version__\nfrom curvflow.tasks import m"
    write(tmp_path, {"flows/run/run.py": text, "tasks/m.py": "import torch"})
    assert faults(tmp_path / "curvflow") == []


def test_a_cycle_is_found_even_if_an_import_hides_in_a_function(tmp_path):
    hidden = "def f():\n    from curvflow.tasks import a"
    write(tmp_path, {"tasks/a.py": "import curvflow.tasks.b", "tasks/b.py": hidden})
    assert set(cycle(tmp_path / "curvflow")) == {"curvflow.tasks.a", "curvflow.tasks.b"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / "curvflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_statistics_of_scipy_are_loaded_by_the_first_call_of_one():
    # They take as long to load as all else that a table needs; `scipy.stats.x` does it.
    heavy = [
        module
        for module, tree in modules(SOURCE).items()
        for node in importing(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if f"{getattr(node, 'module', '')}.{alias.name}".strip(".") == "scipy.stats"
    ]
    assert heavy == []
