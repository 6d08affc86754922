"""Modules that no text follows, as they lie elsewhere or have no source."""

import py_compile
import sys

import pytest

from tests.flows.reads.project import HERE, flip, project

ONE = """
from {name} import VALUE as GIVEN

def read():
    return float(GIVEN)

@stage("my.one", version=1, outputs=VALUE)
def one() -> dict[str, object]:
    return {{"value": np.asarray(read())}}
"""


@pytest.fixture
def mine(tmp_path):
    with project(tmp_path / "study") as made:
        made.folder.mkdir()
        yield made


@pytest.mark.parametrize("file", ["outside0.py", "further0.py", "value.txt"])
def test_a_module_of_another_folder_on_the_path_counts_with_what_it_reads(
    mine, tmp_path, file
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sys.path.append(str(elsewhere))
    mine.names |= {"outside0", "further0"}
    (elsewhere / "value.txt").write_text("1")
    (elsewhere / "further0.py").write_text("MORE = 1\n")
    (elsewhere / "outside0.py").write_text(
        "import further0\nfrom pathlib import Path\n"
        'TEXT = Path(__file__).with_name("value.txt").read_text()\n'
        "VALUE = float(TEXT) + further0.MORE + 1\n"
    )
    mine.kinds(ONE.format(name="outside0"), one='use: "mine:one"')
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}
    flip(elsewhere / file)
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_a_module_without_a_source_counts_by_its_file(mine):
    mine.names.add("compiled0")

    def compiled(value: int) -> None:
        source = mine.folder / "source.txt"
        source.write_text(f"VALUE = {value}\n")
        target = mine.folder / "compiled0.pyc"
        py_compile.compile(str(source), cfile=str(target), doraise=True)

    compiled(1)
    mine.kinds(ONE.format(name="compiled0"), one='use: "mine:one"')
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}
    compiled(2)
    assert mine.executed() == {"one": 1}
    assert mine.executed() == {}


def test_a_module_that_the_text_follows_counts_by_the_names_that_are_used(mine):
    mine.write("beside0.py", "VALUE = 1\nOTHER = 1\n")
    mine.write("unused0.py", "NOTHING = 1\n")
    text = ONE.format(name="beside0")
    mine.kinds(f"import unused0\n{text}", one='use: "mine:one"')
    assert mine.executed() == {"one": 1}
    mine.write("beside0.py", "VALUE = 1\nOTHER = 2\n")
    mine.write("unused0.py", "NOTHING = 2\n")
    assert mine.executed() == {}


FOUND = """
@stage("my.one", version=1, outputs=VALUE)
def one() -> dict[str, object]:
    import importlib
    return {{"value": np.asarray(0 * importlib.import_module(HERE[:0] + "{name}").V)}}

@stage("my.two", version=1, outputs=VALUE)
def two(before: Numbers) -> dict[str, object]:
    import sys
    return {{"value": np.asarray(sys.modules[HERE[:0] + "{name}"].V)}}
"""


@pytest.mark.parametrize("name", ["hidden0", "lab0.hidden"])
def test_a_module_that_another_stage_has_loaded_counts_where_it_is_looked_for(
    mine, name
):
    file = f"{name.replace('.', '/')}.py"
    if "." in name:
        mine.write("lab0/__init__.py", "")
    mine.write(file, "V = 1.0\n")
    text = f"from curvflow.schemas.nodes import Numbers\n{HERE}{FOUND}"
    two = 'use: "mine:two", before: one'
    mine.kinds(text.format(name=name), one='use: "mine:one"', two=two)
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}
    mine.write(file, "V = 2.0\n")
    assert mine.executed() == {"one": 1, "two": 1}
    assert mine.executed() == {}
