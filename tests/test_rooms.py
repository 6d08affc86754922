"""Rooms: folders of few files, tests that mirror them, and walks through files."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from curvflow.schemas.kinds import declarations
from curvflow.schemas.models import all_models
from curvflow.schemas.rules import all_rules

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "curvflow"
MIRRORED = ("cli", "flows", "schemas", "stores", "tasks")
MOST_FILES = 20
# Folders that a walk may leave out before the name of a file.
BELOW = ("flows", "tasks", "tasks/numerics")


def names_in(folder: Path) -> set[str]:
    """Return the names of the files and folders of a room, without underscores."""
    return {path.stem.strip("_") for path in folder.iterdir()}


def misplaced(tests: Path, package: Path) -> list[str]:
    """Return the test files that say neither by name nor in words what they test."""
    faults = []
    for layer in MIRRORED:
        for path in sorted((tests / layer).rglob("test_*.py")):
            room = path.parent.relative_to(tests)
            if not (package / room).is_dir():
                faults.append(f"{room}: no room of the source")
            elif path.stem.removeprefix("test_") not in names_in(package / room):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                if not ast.get_docstring(tree):
                    faults.append(f"{room}/{path.name}: no source, no subject")
    return faults


def test_tests_mirror_the_rooms_and_say_what_they_test():
    assert misplaced(ROOT / "tests", PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("stores/test_local.py", "", ""),
        ("stores/test_other.py", '"""Writes that fail."""', ""),
        ("stores/test_other.py", "", "no subject"),
        ("stores/moved/test_local.py", "", "no room"),
    ],
)
def test_a_misplaced_test_is_found(tmp_path, name, text, fault):
    for path in (tmp_path / "tests" / name, tmp_path / "source/stores/local.py"):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found = misplaced(tmp_path / "tests", tmp_path / "source")
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)


def test_no_folder_of_the_source_is_over_full():
    sizes = Counter(path.parent for path in PACKAGE.rglob("*.py"))
    assert {str(f): n for f, n in sizes.items() if n > MOST_FILES} == {}


def folders_of_families() -> set[Path]:
    """Return the folders of kinds, rules and models, and those of their functions."""
    specifications = [*all_rules().values(), *all_models().values()]
    declared = {module.__name__ for module in declarations().values()}
    declared |= {specification.__module__ for specification in specifications}
    computed = {
        name.replace(".schemas.kinds", ".tasks").replace(".schemas", ".tasks")
        for name in declared
    }
    return {PACKAGE.joinpath(*name.split(".")[1:-1]) for name in declared | computed}


def test_folders_of_kinds_rules_and_models_have_room_for_one_more():
    folders = folders_of_families()
    assert {"probes", "densities", "rules", "models"} <= {
        folder.name for folder in folders
    }
    sizes = {str(f.relative_to(PACKAGE)): len([*f.glob("*.py")]) for f in folders}
    full = {name: size for name, size in sizes.items() if size >= MOST_FILES}
    assert not full, "give a family of these a folder of its own: see CONTRIBUTING.md"


def walked(page: str) -> list[str]:
    """Return what the figures of the walks name, without the functions."""
    section = page.partition("\n## Walks\n")[2].partition("\n## ")[0]
    figures = re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    lines = [line for figure in figures for line in figure.splitlines()]
    return [line.split()[0].partition(".")[0] for line in lines]


def exists(name: str) -> bool:
    """Return whether a file is there."""
    places = [PACKAGE / room / name for room in BELOW]
    return any(place.with_suffix(".py").is_file() for place in places)


def test_the_walks_lead_through_files_that_exist():
    names = walked((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    assert len(names) > 30
    assert [name for name in names if not exists(name)] == []
    assert not exists("sampling/errors")


def test_the_list_of_the_llc_page_names_files_that_exist():
    page = (ROOT / "docs" / "llc.md").read_text(encoding="utf-8")
    section = page.partition("\n## Walks\n")[2]
    names = re.findall(r"`([\w/]+\.py)`", section)
    assert len(names) > 12
    paths = {path.as_posix() for path in PACKAGE.rglob("*.py")}
    assert [n for n in names if not any(p.endswith(f"/{n}") for p in paths)] == []
