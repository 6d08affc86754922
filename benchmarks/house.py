"""Print the figures of a source tree: files, lines, folders, names, functions, imports.

    python -m benchmarks.house [FOLDER] [--rooms] [--kinds RANGE]

FOLDER is a checkout, this one by default; its files are read as text. Lines of code are
neither blank, comment nor docstring. Bindings are variables and arguments named by one
of five pronouns. Imports are the modules of the package that a file imports, those in
functions too. `--rooms` counts the files by what they are for, and `--kinds` those that
each commit of a range changes that adds declarations of kinds, as `5d358af..HEAD`.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PRONOUNS = frozenset({"one", "found", "told", "own", "some"})
FULL = 20  # files of a folder
LONG = 40  # lines of a function
ROOM = 400  # lines of two files that may be one
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (*FUNCTIONS, ast.ClassDef, ast.Module)
# Rooms of declarations of kinds, rules and models, and of their functions.
DECLARED = ("schemas/kinds", "schemas/rules", "schemas/models")
COMPUTED = tuple(
    f"tasks/{room}"
    for room in (
        "aggregate",
        "data",
        "figures",
        "models",
        "monitor",
        "probes",
        "rules",
        "weights",
    )
)
DECLARATION = re.compile(r"^A\t.*/schemas/kinds/(?!shared/)\w+/.*\b[a-z]\w*\.py$", re.M)


def docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Yield the numbers of the lines that docstrings take."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Return the numbers of the lines of code."""
    lines = enumerate(text.splitlines(), 1)
    written = {n for n, line in lines if line.strip() and line.strip()[0] != "#"}
    return written - set(docstring_lines(tree))


def long_functions(tree: ast.AST, code: set[int]) -> int:
    """Count the functions of more than 40 lines of code."""
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    spans = [range(f.lineno, (f.end_lineno or f.lineno) + 1) for f in functions]
    return sum(len(code.intersection(span)) > LONG for span in spans)


def pronouns(tree: ast.AST) -> int:
    """Count the variables and arguments that a pronoun names."""
    names = [
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    return sum(name in PRONOUNS for name in names)


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """Return the modules of the package that a file imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            names |= inner or {node.module}
    return names & modules


def module_name(path: Path, package: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def small(importers: dict[str, set[str]], lengths: dict[str, int]) -> int:
    """Count files that one alone imports, both of one folder and of 400 lines."""
    pairs = [(name, *by) for name, by in importers.items() if len(by) == 1]
    return sum(
        name.rpartition(".")[0] == by.rpartition(".")[0]
        and lengths[name] + lengths[by] <= ROOM
        for name, by in pairs
    )


def figures(package: Path) -> dict[str, str]:
    """Return the figures of a package, whose folder is given, by their names."""
    paths = sorted(package.rglob("*.py"))
    modules = {module_name(path, package) for path in paths}
    lines = functions = bindings = imports = 0
    importers: dict[str, set[str]] = {module: set() for module in modules}
    lengths: dict[str, int] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = code_lines(text, tree)
        lines += len(code)
        functions += long_functions(tree, code)
        bindings += pronouns(tree)
        names = imported(tree, modules)
        imports += len(names)
        lengths[name := module_name(path, package)] = len(text.splitlines())
        for other in names:
            importers[other].add(name)
    sizes = Counter(path.parent for path in paths)
    alone = sum(len(names) == 1 for names in importers.values())
    return {
        "files": f"{len(paths):,}",
        "lines of code": f"{lines:,}",
        "lines of a file": f"{lines / len(paths):.0f}",
        "folders": f"{len(sizes)}",
        f"folders over {FULL} files": f"{sum(n > FULL for n in sizes.values())}",
        "bindings of pronouns": f"{bindings:,}",
        f"functions over {LONG} lines": f"{functions}",
        "imports of a file": f"{imports / len(paths):.1f}",
        "files that one alone imports": f"{alone}",
        "of these, with it in a room and in 400 lines": f"{small(importers, lengths)}",
    }


def purposes(package: Path) -> Counter[str]:
    """Count the files of a package, whose folder is given, by what they are for."""
    counts: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if path.stem == "__init__":
            counts["__init__"] += 1
        elif name.startswith("cli/commands/"):
            counts["commands"] += 1
        elif "/shared/" in name or path.stem.startswith("_"):
            counts["others"] += 1
        elif name.startswith(tuple(f"{room}/" for room in DECLARED)):
            counts["declarations of kinds, rules and models"] += 1
        elif name.startswith(tuple(f"{room}/" for room in COMPUTED)):
            counts["in the folders of their functions"] += 1
        else:
            counts["others"] += 1
    return counts


def changed(folder: Path, commits: str) -> list[int]:
    """Count the files of each commit that adds declarations of kinds.

    Args:
        folder: a checkout.
        commits: a range, as git takes it.

    Returns:
        The counts in ascending order.
    """
    log = ["log", "--no-merges", "--no-renames", "--name-status"]
    log += ["--format=tformat:commit"]
    text = subprocess.run(
        ["git", "-C", str(folder), *log, commits],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(
        len(commit.split("\n\n")[-1].split("\n"))
        for each in text.split("commit\n")
        if DECLARATION.search(commit := each.strip())
        and not re.search(r"^D\t.*/schemas/kinds/", commit, re.MULTILINE)
    )


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    root = Path(__file__).parents[1]
    parser.add_argument("folder", type=Path, nargs="?", default=root)
    parser.add_argument("--rooms", action="store_true", help="files by their purpose")
    parser.add_argument("--kinds", metavar="RANGE", help="commits that add kinds")
    chosen = parser.parse_args()
    if chosen.kinds:
        counts = changed(chosen.folder, chosen.kinds)
        print(f"commits that add kinds: {len(counts)}")
        print(f"files of one: {counts}, median {statistics.median(counts)}")
        return
    package = chosen.folder / "src" / "curvflow"
    for name, number in figures(package).items():
        print(f"{name}: {number}")
    if chosen.rooms:
        for name, count in purposes(package).most_common():
            print(f"files, {name}: {count}")


if __name__ == "__main__":
    main()
