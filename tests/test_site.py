"""The pages made for the site: nothing left out, and no cell empty."""

import ast
import re

import pytest
import typer

import curvflow
from curvflow.cli.app import app
from curvflow.schemas.explanations import UNITS
from curvflow.schemas.kinds import all_kinds
from curvflow.tasks import numerics
from docs.generator import commands, kinds, python
from docs.generator.markdown import papers, prose, units
from docs.generator.site import kind_nav, pages
from tests.loops import for_each

NAMES = sorted(name for name, kind in all_kinds().items() if not kind.home)


def rows(page: str) -> list[list[str]]:
    """Return the cells of all rows, those of pipes within code counted as text."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    plain = [re.sub(r"`[^`]*`", "code", line).replace(r"\|", "") for line in lines]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in plain]


@for_each("name", NAMES)
def test_a_page_names_every_input_parameter_and_variable(name):
    kind = all_kinds()[name]
    page = kinds.page(kind)
    fields = [info.alias or name for name, info in kind.params.model_fields.items()]
    for told in (*kind.inputs, *fields, *(v.name for v in kind.outputs)):
        assert f"| `{told}` |" in page, f"{name}: {told}"


@for_each("name", NAMES)
def test_no_cell_of_a_page_is_empty(name):
    found = rows(kinds.page(all_kinds()[name]))
    assert found
    assert all(all(cells) for cells in found)


@for_each("name", NAMES)
def test_every_parameter_that_is_a_number_has_a_unit(name):
    page = kinds.page(all_kinds()[name])
    table = page.partition("## Parameters")[2].partition("## Outputs")[0]
    row = r"^\| `[\w.]+` \| (?:`.*?`|\w+) \| (.*?) \| `?(.*?)`?<br>"
    told = re.findall(row, table, re.MULTILINE)
    assert len(told) == table.count("\n| `")
    # Numbers within braces are parameters of their own.
    forms = [(unit, re.sub(r"{.*?}", "", form)) for unit, form in told]
    assert "-" not in {u for u, form in forms if re.search("integer|number", form)}


def test_every_unit_by_name_is_of_a_parameter():
    fields = {
        name for kind in all_kinds().values() for name in kind.params.model_fields
    }
    assert set(UNITS) <= fields | {"at"}


def test_every_kind_is_in_the_navigation_and_in_the_overview():
    listed = [name for group in kind_nav()[1:] for name in _names(group)]
    assert sorted(listed) == NAMES
    overview, made = kinds.overview(), pages()
    for name in NAMES:
        assert f"[`{name}`]({name}.md)" in overview
        assert f"reference/kinds/{name}.md" in made


def _names(group: dict) -> list[str]:
    (entries,) = group.values()
    return [name for entry in entries for name in entry]


def test_every_command_and_option_is_reported():
    page = commands.page()
    for name, command in typer.main.get_command(app).commands.items():
        section = page.partition(f"## `{name}`")[2].partition("\n## ")[0]
        assert command.help
        for one in command.params:
            for option in [o for o in one.opts if o.startswith("--")]:
                assert f"`{option}`" in section, f"{name} {option}"
            assert one.help, f"{name} {one.name}"


def test_arguments_that_may_be_left_out_are_in_brackets():
    page = commands.page()
    for usage in ("init [FOLDER]", "kinds [NAME] [PARAMETER]", "export STUDY STAGE"):
        assert f"\ncurvflow {usage} [options]\n" in page
    assert "\ncurvflow doctor [STUDY] [options]\n" in page


@for_each("name", NAMES)
def test_no_row_of_a_page_stands_twice(name):
    table = kinds.page(all_kinds()[name]).partition("## Parameters")[2]
    found = re.findall(r"^\| `.*", table.partition("## Outputs")[0], re.MULTILINE)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("module", [curvflow, numerics], ids=["studies", "numerics"])
def test_every_public_name_has_a_section_and_a_sentence(module):
    page = python.page(module, "Title")
    for name in module.__all__:
        if not name.startswith("__"):
            assert f"\n## `{name}` {{#{name}}}" in page
            assert getattr(module, name).__doc__, name
            assert f"[`{name}`](#{name}) | " in page
    assert "Args:" not in page
    assert "Returns:**" in page


@pytest.mark.parametrize("module", [curvflow, numerics], ids=["studies", "numerics"])
def test_signatures_are_as_their_definitions_have_them(module):
    shown = r"^#+ `[\w.]+` {[^}]*}\n\n```python\n(\w+\(.*?)\n```"
    signatures = re.findall(shown, python.page(module, "Title"), re.DOTALL | re.M)
    assert len(signatures) > 20
    for signature in signatures:
        ast.parse(f"def {signature}: ...")


def test_signs_of_markdown_in_prose_stay_signs():
    assert prose("||Hv|| of layer1.* < `a|b_c`") == (
        r"\|\|Hv\|\| of layer1.\* &lt; `a|b_c`"
    )
    assert units("1 / parameter^2") == "1 / parameter<sup>2</sup>"
    assert papers("x (2004), doi:10.1/a.b, arXiv:1712.09913.") == (
        "x (2004), [doi:10.1/a.b](https://doi.org/10.1/a.b), "
        "[arXiv:1712.09913](https://arxiv.org/abs/1712.09913)."
    )
