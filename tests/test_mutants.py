"""Mutants of two trees: the same change of each, judged by the tests that are near."""

import ast
import os
import subprocess
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.mutants import is_judged, main, read, summary, write
from benchmarks.mutation import judging
from benchmarks.mutation.drawing import (
    Edit,
    Package,
    draw,
    quotas,
    statements_of,
)
from benchmarks.mutation.judging import Judge, NearestTests, copy_tree, run

CODE = '''
"""Words: 1 + 1."""
LIMIT = 3


class Sum:
    size: int = 4

    def __repr__(self):
        return str(1 + 2)

    def of(self, values: "Sum[1]", start=5):
        """Return 1 + 1."""
        assert start > 0
        if not values:
            raise ValueError(len(values) + 1)
        return fold(values, size=6) + self.size

    def is_long(self, values):
        warn("too long", 7)
        return f"{8 + 1}" and len(values) >= 9
'''


def edits_of(tmp_path, code):
    path = tmp_path / "code.py"
    path.write_text(code)
    listed = [e for s in statements_of(tmp_path, path) for e in s.edits()]
    source = path.read_bytes()
    lines = code.splitlines()
    changed = {}
    for change, edit in listed:
        new = edit.apply(source).decode()
        ast.parse(new)
        pairs = zip(lines, new.splitlines(), strict=True)
        (line,) = (after.strip() for before, after in pairs if before != after)
        changed.setdefault(change, []).append(line)
    return changed


def test_conditions_operators_and_constants_of_functions_change_and_nothing_else(
    tmp_path,
):
    assert edits_of(tmp_path, CODE) == {
        "not dropped": ["if (values):"],
        "Add -> Sub": ["return (fold(values, size=6) - self.size)"],
        "6 -> 7": ["return fold(values, size=(7)) + self.size"],
        "And -> Or": ["""return (f'{8 + 1}' or len(values) >= 9)"""],
        "GtE -> Gt": ["""return f"{8 + 1}" and (len(values) > 9)"""],
        "GtE -> Lt": ["""return f"{8 + 1}" and (len(values) < 9)"""],
        "9 -> 10": ["""return f"{8 + 1}" and len(values) >= (10)"""],
    }


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x -= 0.5", {"Sub -> Add": ["x += 0.5"], "0.5 -> 1.0": ["x -= (1.0)"]}),
        ("x = -y", {"minus dropped": ["x = (y)"]}),
        ("x: 'A[1]' = True", {"True -> False": ["x: 'A[1]' = (False)"]}),
        ("x = zip(y, strict=True)", {}),
        ("while f(x): pass", {"condition negated": ["while (not f(x)): pass"]}),
        ("é = 'é' in x", {"In -> NotIn": ["é = ('é' not in x)"]}),
    ],
)
def test_changes_keep_the_rest_of_a_line(tmp_path, statement, expected):
    assert edits_of(tmp_path, f"def f(x, y):\n    {statement}\n") == expected


def package(tree, **modules):
    """Write modules, `__` for a slash in their names, into a tree's package."""
    for name, code in modules.items():
        path = tree / "src/curvflow" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return Package(tree)


def twins(tmp_path, new, old):
    present = package(tmp_path / "new", **new)
    past = package(tmp_path / "old", **old)
    statements = [s for group in present.by_text.values() for s in group]
    found = {s.function: past.twin(s, present) for s in statements}
    return {name: twin and (twin.path, twin.function) for name, twin in found.items()}


LONG = "    return values[0] * values[1] + values[2]\n"


def test_the_twin_of_a_statement_is_in_the_function_of_its_class_and_name(tmp_path):
    method = "class Sum:\n    def of(self, x):\n        return x + 1\n"
    function = "def of(x):\n    return x + 1\n"
    found = twins(tmp_path, {"a": method}, {"b": method, "c": function})
    assert found == {"Sum.of": ("src/curvflow/b.py", "Sum.of")}


def test_a_statement_whose_function_was_renamed_is_found_by_its_text(tmp_path):
    new = {"a": f"def volume(values):\n{LONG}"}
    old = {"b": f"def vol(values):\n{LONG}"}
    assert twins(tmp_path, new, old) == {"volume": ("src/curvflow/b.py", "vol")}


@pytest.mark.parametrize(
    "old",
    [
        {"a": "def f(x):\n    return x + 2\n"},  # other words
        {"a": "def g(x):\n    return x + 1\n"},  # too short to be known by
        {"a": "def f(x):\n    return x + 1\n", "b": "def f(x):\n    return x + 1\n"},
        {"a": "def f(x):\n    if x:\n        return x + 1\n    return x + 1\n"},
    ],
)
def test_a_statement_that_is_changed_or_ambiguous_has_no_twin(tmp_path, old):
    new = {"a": "def f(x):\n    return x + 1\n"}
    assert twins(tmp_path, new, old)["f"] is None


def test_a_twin_is_changed_at_its_own_place(tmp_path):
    name, code = "stores__a", f"def f(values):\n{LONG}"
    package(tmp_path / "new", **{name: code})
    package(tmp_path / "old", **{name: f"# Moved down.\n\n{code}"})
    (mutant,) = draw(tmp_path / "new", tmp_path / "old", 20, 0)
    assert mutant.before.line == mutant.after.line + 2
    changed = [
        edit.apply((tmp_path / tree / edit.path).read_bytes()).decode()
        for tree, edit in (("new", mutant.after), ("old", mutant.before))
    ]
    assert changed[0] != code
    assert changed[1] == f"# Moved down.\n\n{changed[0]}"


def test_equal_seeds_draw_equal_mutants_of_different_statements(tmp_path):
    code = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(30))
    for tree in ("new", "old"):
        package(tmp_path / tree, stores__a=code, tasks__llc__b=code.replace(" f", " g"))
    trees = tmp_path / "new", tmp_path / "old"
    first, again, second = (draw(*trees, 40, seed) for seed in (0, 0, 1))
    assert first == again != second
    assert len({(m.after.path, m.function) for m in first}) == len(first)
    assert {m.room for m in first} == {"stores", "tasks/llc"}


def test_shares_of_rooms_add_up():
    assert sum(quotas(203).values()) == 203
    assert quotas(21)["tasks/numerics"] == 6


PROJECT = """
[tool.pytest.ini_options]
markers = ["slow: takes long"]
"""
MODULE = """
import os

def is_small(x):
    return x < 3
"""
TEST = """
import pytest
from curvflow.stores.sizes import is_small

def test_small():
    assert is_small(2)

@pytest.mark.slow
def test_bound():
    assert not is_small(3)

def test_that_fails():
    assert not is_small(2)
"""


@pytest.fixture
def tree(tmp_path):
    """A checkout with one module, its test, and one of what imports it."""
    tree = tmp_path / "tree"
    files = {
        "pyproject.toml": PROJECT,
        "src/curvflow/__init__.py": "",
        "src/curvflow/stores/__init__.py": "",
        "src/curvflow/stores/sizes.py": MODULE,
        "src/curvflow/stores/files.py": "from curvflow.stores.sizes import is_small\n",
        "tests/stores/conftest.py": "import curvflow.stores.files\n",
        "tests/stores/test_sizes.py": TEST,
        "tests/test_files.py": (
            "from curvflow.stores import files\n\n"
            "def test_bound():\n    assert not files.is_small(3)\n"
        ),
        "tests/cluster/test_far.py": "from curvflow.stores import files\n",
        "tests/stores/test_open.py": "def test_nothing():\n    pass\n",
        "src/curvflow/tasks/kind.py": "from curvflow.stores.sizes import is_small\n",
        "tests/tasks/test_kind.py": "def test_nothing():\n    pass\n",
        "tests/test_other.py": "def test_nothing():\n    pass\n",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


def test_near_files_judge_first_and_those_of_servers_never(tree):
    nearest = NearestTests(tree)
    assert nearest.of("src/curvflow/stores/sizes.py", "is_small") == [
        "tests/stores/test_sizes.py",  # its mirror
        "tests/tasks/test_kind.py",  # the mirror of what imports the function
        "tests/stores/test_open.py",  # of its room
        "tests/test_files.py",  # two imports away
    ]
    assert nearest.of("src/curvflow/stores/__init__.py", "") == [
        "tests/stores/test_open.py",
        "tests/stores/test_sizes.py",
    ]


def test_of_those_that_import_a_name_the_files_of_its_room_judge_first(tree):
    imports = "from curvflow.stores.sizes import is_small\n"
    (tree / "tests/stores/test_open.py").write_text(f"{imports}# Longer than others.\n")
    (tree / "tests/test_other.py").write_text(imports)
    (tree / "tests/test_module.py").write_text("import curvflow.stores.sizes\n")
    path = "src/curvflow/stores/sizes.py"
    assert NearestTests(tree).of(path, "is_small")[:4] == [
        "tests/stores/test_sizes.py",
        "tests/stores/test_open.py",
        "tests/test_other.py",
        "tests/tasks/test_kind.py",
    ]
    assert NearestTests(tree).of(path, "is_large")[:4] == [
        "tests/stores/test_sizes.py",
        "tests/stores/test_open.py",
        "tests/test_module.py",
        "tests/test_other.py",
    ]


def edit_of(tree, old, new):
    path = "src/curvflow/stores/sizes.py"
    start = (tree / path).read_text().index(old)
    return Edit(path, 5, start, start + len(old), new)


def load_plugins():
    """Import what each run of pytest would import in its fork."""
    for plugin in entry_points(group="pytest11"):
        plugin.load()


@pytest.fixture(scope="module")
def in_small_process():
    """Call functions in a process that is small, as are its forks."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=load_plugins) as pool:
        yield lambda *call: pool.submit(*call).result()


def judged(tree, edit, noticed_by=""):
    judge = Judge(tree)
    return judge.judge(edit, 60, noticed_by), judge.broken


def run_briefly(tree, files, per_test, seconds):
    """Run tests of which none may take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "PER_TEST", per_test)
        return run(tree, files, seconds)


@pytest.mark.processes
def test_the_test_that_only_the_mutant_fails_kills_it(tree, in_small_process):
    before = (tree / "src/curvflow/stores/sizes.py").read_text()
    verdict, broken = in_small_process(judged, tree, edit_of(tree, "<", ">"))
    assert verdict.killer == "tests/stores/test_sizes.py::test_small"
    assert broken == []
    assert (tree / "src/curvflow/stores/sizes.py").read_text() == before


@pytest.mark.processes
def test_a_boundary_is_judged_by_what_imports_it_without_what_fails_anyway(
    tree, in_small_process
):
    verdict, broken = in_small_process(judged, tree, edit_of(tree, "<", "<="))
    assert verdict.killer == "tests/test_files.py::test_bound"
    assert broken == ["tests/stores/test_sizes.py::test_that_fails"]


@pytest.mark.processes
def test_what_another_tree_noticed_is_asked_of_a_test_of_that_name(
    tree, in_small_process
):
    far = "def test_two():\n    from curvflow.stores import files\n    assert {}\n"
    for folder, condition in (("a", "1"), ("b", "files.is_small(2)")):
        path = tree / "tests" / folder / "test_far_off.py"
        path.parent.mkdir()
        path.write_text(far.format(condition).replace("two", f"two_{folder}"))
    edit = edit_of(tree, "<", ">")
    killer = "tests/old/test_far_off.py::test_two_b[3]"
    verdict, _ = in_small_process(judged, tree, edit, killer)
    assert verdict.killer == "tests/b/test_far_off.py::test_two_b"
    assert NearestTests(tree).like("tests/old/test_far_off.py::test_three") == []


@pytest.mark.processes
def test_what_no_test_notices_survives(tree, in_small_process):
    verdict, _ = in_small_process(judged, tree, edit_of(tree, "3", "2.5"))
    assert not verdict.is_killed


@pytest.mark.processes
def test_a_module_that_ends_the_process_is_killed_by_the_test_that_ran(
    tree, in_small_process
):
    verdict, _ = in_small_process(judged, tree, edit_of(tree, "x < 3", "os._exit(3)"))
    assert verdict.killer == "tests/stores/test_sizes.py::test_small"


@pytest.mark.processes
@pytest.mark.parametrize("wait", ["while True: pass", "import time; time.sleep(99)"])
def test_a_test_that_neither_works_nor_ends_is_too_long(tree, in_small_process, wait):
    path = tree / "tests/test_other.py"
    path.write_text(f"def test_wait():\n    {wait}\n")
    outcome = in_small_process(run_briefly, tree, ["tests/test_other.py"], 0.5, 30)
    assert (outcome.failed, outcome.is_too_long) == (
        "tests/test_other.py::test_wait",
        True,
    )


@pytest.mark.processes
def test_a_run_whose_time_is_spent_has_failed_in_nothing(tree, in_small_process):
    outcome = in_small_process(
        run, tree, ["tests/test_files.py", "tests/test_other.py"], 0
    )
    assert (outcome.failed, outcome.tests) == ("", 1)


def test_a_copy_has_what_git_does_not_ignore(tree, tmp_path):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "init", "-q"], cwd=tree, env=environment, check=True)
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "a.log").write_text("")
    copy_tree(tree, tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy").rglob("*.*")}
    assert {"sizes.py", ".gitignore"} <= names
    assert "a.log" not in names
    assert not Path(tmp_path / "copy/.git").exists()


def test_rooms_are_counted_with_a_sum():
    killed, lived = {"killer": "test"}, {"killer": ""}
    lines = [
        {"room": "stores", "before": killed, "after": lived},
        {"room": "stores", "before": killed, "after": killed},
        {"room": "flows/run", "before": lived, "after": killed},
    ]
    assert summary(lines)[2:] == [
        "| flows/run | 1 | 0 | 1 | 0 | 1 |",
        "| stores | 2 | 2 | 1 | 1 | 0 |",
        "| all | 3 | 2 | 2 | 1 | 1 |",
    ]


@pytest.mark.parametrize(
    ("before", "after", "limit", "is_done"),
    [
        ("", "", 12, False),
        ("", "", 40, True),
        ("a", "", 12, False),
        ("a", "b", 12, True),
    ],
)
def test_what_a_tree_did_not_notice_is_tried_again_with_more_time(
    tmp_path, before, after, limit, is_done
):
    sides = {"before": {"killer": before}, "after": {"killer": after}}
    assert read(tmp_path / "none.json") == {}
    write(tmp_path / "file.json", [{"mutant": "a", "limit": limit, **sides}])
    assert is_judged(read(tmp_path / "file.json")["a"], 40) == is_done


def test_a_tree_without_the_package_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutants", "--before", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "--before: expected a checkout" in capsys.readouterr().err
