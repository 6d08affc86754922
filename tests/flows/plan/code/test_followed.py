"""What is followed from a function, and what is not."""

import sys

import pytest

from curvflow.flows.plan.code.fingerprints import Code, Fingerprints
from tests.flows.plan.code.project import fit, node, own_kind, write


def code_of(folder, files: dict[str, str], home: str = "mine:start") -> Code:
    write(folder, files)
    return Fingerprints(folder).of(node(own_kind("mine", home)))


def reached(folder, files: dict[str, str]) -> set[str]:
    return set(code_of(folder, files).definitions)


FOLLOWED = {
    "a default": "def start(f=helper): return f",
    "a keyword's default": "def start(*, f=helper): return f",
    "a decorator": "def start(): return inner\n@helper\ndef inner(): pass",
    "a lambda": "start = lambda x: helper(x)",
    "a nested function": "def start():\n  def inner(): return helper()\n  return inner",
    "a comprehension": "def start(): return [helper(x) for x in range(3)]",
    "a condition": "def start():\n  if helper(): return 1",
    "a base": "class Own(Base): pass\nclass Base:\n  def m(self): return helper()\n"
    "def start(): return Own()",
    "a metaclass": "class Own(metaclass=helper): pass\ndef start(): return Own",
    "a class attribute": "class Own:\n  f = helper\ndef start(): return Own.f",
    "a nested class": "class Own:\n  class In:\n    def m(s): return helper()\n"
    "def start(): return Own",
    "a property": "class Own:\n  @property\n  def x(self): return helper()\n"
    "  @x.setter\n  def x(self, v): pass\ndef start(): return Own",
    "a dictionary": "TABLE = {'a': helper}\ndef start(): return TABLE['a']",
    "an entry added": "TABLE = {}\nTABLE['a'] = helper\ndef start(): return TABLE",
    "a call that adds": "TABLE = []\nTABLE.append(helper)\ndef start(): return TABLE",
    "a loop that adds": "T = []\nfor x in 'ab':\n  T += [helper]\n"
    "def start(): return T",
    "a condition of the module": "if helper():\n  X = 1\nelse:\n  X = 2\n"
    "def start(): return X",
    "a try of the module": "try:\n  import nothing_there as f\nexcept ImportError:\n"
    "  f = helper\ndef start(): return f",
    "what a try of the module catches": "try:\n  import nothing_there as f\n"
    "except helper:\n  f = 1\ndef start(): return f",
    "a global": "X = 1\ndef start():\n  global X\n  X = helper",
    "an await": "async def start(): return await helper()",
    "a match": "def start(x):\n  match x:\n    case {'a': y, **z}: return helper(y)",
    "a with": "def start():\n  with helper() as f: return f",
    "a string's part": "def start(): return f'{helper():.3f}'",
    "a name bound by :=": "def start(): return [y for x in 'a' if (y := helper(x))]",
    "a computed name": "def start(): return globals()['hel' + 'per']",
    "what runs on import": "import sys\nsys.path += [helper()]\ndef start(): return 1",
}

IMPORTS = {
    "by name": "from pkg.inner import helper\ndef start(): return helper()",
    "by another name": "from pkg.inner import helper as h\ndef start(): return h()",
    "by module": "import pkg.inner\ndef start(): return pkg.inner.helper()",
    "by module's other name": "import pkg.inner as p\ndef start(): return p.helper()",
    "by package": "from pkg import inner\ndef start(): return inner.helper()",
    "in a function": "def start():\n  from pkg.inner import helper\n  return helper()",
    "in a method": "class Own:\n  def m(self):\n    import pkg.inner as p\n"
    "    return p.helper\ndef start(): return Own",
    "by star": "from pkg.inner import *\ndef start(): return helper()",
    "re-exported": "from pkg import again\ndef start(): return again()",
    "re-exported by star": "from pkg.stars import helper\ndef start(): return helper()",
    "re-exported lazily": "import lazy\ndef start(): return lazy.helper()",
    "one of two": "def start():\n  try:\n    from nothing_there import f\n"
    "  except ImportError:\n    from pkg.inner import helper as f\n  return f()",
    "from a folder": "from bare.inner import back\ndef start(): return back()",
}
# Of these modules not each name can be followed alone.
WHOLE = {"by star", "re-exported by star"}
CALLING_HELPER = set(IMPORTS) - {"in a method", "one of two", "from a folder"} - WHOLE
PACKAGE = {
    "pkg/__init__.py": "from .inner import helper as again",
    "pkg/inner.py": "def helper(): return 1\ndef unused(): return 2",
    "pkg/stars.py": "from pkg.inner import *",
    "lazy.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "  from pkg.inner import helper\ndef __getattr__(name): ...",
    "bare/inner.py": "from pkg.inner import helper\ndef back(): return helper()",
}

LEFT_OUT = {
    "an annotation": "def start(x: helper) -> helper: return x",
    "a variable's annotation": "def start():\n  x: helper = 1\n  return x",
    "a type checker's import": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "  X = helper\ndef start(): return 1",
    "the type of a cast": "from typing import cast\n"
    "def start(): return cast(helper, 1)",
    "a script's part": "def start(): return 1\nif __name__ == '__main__':\n  helper()",
    "a parameter of the name": "def start(helper): return helper",
    "a local variable of the name": "def start():\n  helper = 1\n  return helper",
    "another object's attribute": "def start(x): return x.helper",
    "an overload": "from typing import overload\n@overload\n"
    "def start(x=helper): ...\ndef start(x=1): return x",
}
HELPER = "def helper(x=None): return x\n"


@pytest.mark.parametrize("code", FOLLOWED.values(), ids=FOLLOWED)
def test_what_runs_is_followed(code, tmp_path):
    assert "mine:helper" in reached(tmp_path, {"mine.py": HELPER + code})


@pytest.mark.parametrize("code", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_does_not_run_is_not_followed(code, tmp_path):
    assert reached(tmp_path, {"mine.py": HELPER + code}) == {"mine:start"}


@pytest.mark.parametrize("code", IMPORTS.values(), ids=IMPORTS)
def test_an_import_leads_to_where_the_name_is_defined(code, tmp_path):
    reached_code = reached(tmp_path, {"mine.py": code, **PACKAGE})
    assert "pkg.inner:helper" in reached_code
    is_whole = any(code == IMPORTS[name] for name in WHOLE)
    assert is_whole or "pkg.inner:unused" not in reached_code


@pytest.mark.parametrize("first", sorted(CALLING_HELPER))
def test_how_a_name_is_imported_does_not_matter(first, tmp_path):
    first_code = code_of(tmp_path / "1", {"mine.py": IMPORTS[first], **PACKAGE})
    other = code_of(tmp_path / "2", {"mine.py": IMPORTS["by name"], **PACKAGE})
    assert first_code == other


def test_modules_that_import_each_other_are_followed(tmp_path):
    files = {
        "mine.py": "from left import f\ndef start(): return f()",
        "left.py": "import right\nfrom right import h as g\ndef f(): return right.g()",
        "right.py": "from left import f\nfrom left import g as h\ndef g(): return f()",
    }
    assert reached(tmp_path, files) == {"mine:start", "left:f", "right:g"}


def test_a_names_own_import_cycle_ends(tmp_path):
    files = {
        "mine.py": "from left import f\ndef start(): return f()",
        "left.py": "from right import f",
        "right.py": "from left import f",
    }
    whole = {"left:<value>", "left:<whole>", "right:<whole>"}
    assert reached(tmp_path, files) == {"mine:start", *whole}


def test_an_installed_library_is_not_followed_even_under_the_studys_folder(
    tmp_path, monkeypatch
):
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    write(installed, {"foreign.py": "def f(): return 1"})
    monkeypatch.syspath_prepend(str(installed))
    files = {"mine.py": "from foreign import f\ndef start(): return f()"}
    assert reached(tmp_path, files) == {"mine:start"}


def test_an_installed_package_of_kinds_is_followed(tmp_path, monkeypatch):
    files = {
        "plugin/kinds.py": "from plugin.helper import f\nfrom foreign import g\n"
        "def start(): return f() + g()",
        "plugin/helper.py": "def f(): return 1",
        "foreign.py": "def g(): return 1",
    }
    installed = write(tmp_path / "site-packages", files)
    monkeypatch.syspath_prepend(str(installed))
    (tmp_path / "studies").mkdir()
    reached_code = code_of(tmp_path / "studies", {}, "plugin.kinds:start")
    assert set(reached_code.definitions) == {"plugin.kinds:start", "plugin.helper:f"}


def test_a_module_that_is_loaded_is_read_from_where_it_was_loaded(
    tmp_path, monkeypatch
):
    elsewhere = write(tmp_path / "elsewhere", {"loaded.py": "def start(): return 1"})
    monkeypatch.setitem(sys.modules, "loaded", type(sys)("loaded"))
    sys.modules["loaded"].__file__ = str(elsewhere / "loaded.py")
    (tmp_path / "studies").mkdir()
    reached_code = code_of(tmp_path / "studies", {}, "loaded:start")
    assert set(reached_code.definitions) == {"loaded:start"}


@pytest.mark.parametrize(
    "home", ["__main__:start", "mine:outer.<locals>.start", "nowhere:start", "bad:f"]
)
def test_a_function_without_source_is_not_compared(home, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    files = {"mine.py": "def outer(): pass", "bad.py": "def f(:"}
    assert code_of(tmp_path, files, home) == Code()


def test_a_factory_without_source_is_not_compared(tmp_path):
    model = {"factory": "nowhere.models:make"}
    assert Fingerprints(tmp_path).of(fit(model, {"rule": "adam"})) == Code()


def test_a_factory_of_a_library_is_taken_as_it_is(tmp_path):
    code = Fingerprints(tmp_path).of(
        fit({"factory": "torch.nn:Linear"}, {"rule": "adam"})
    )
    assert code.fingerprint
    assert not any(name.startswith("torch") for name in code.definitions)


def test_a_change_on_disk_is_seen_by_the_next_reading(tmp_path):
    first = code_of(tmp_path, {"mine.py": "def start(): return 1"})
    second = code_of(tmp_path, {"mine.py": "def start(): return 10"})
    assert first.fingerprint != second.fingerprint


def test_the_rule_within_a_rule_is_followed(tmp_path):
    rule = {"rule": "lookahead", "inner": {"rule": "adamw"}}
    code = Fingerprints(tmp_path).of(fit({"kind": "linear"}, rule))
    assert "curvflow.tasks.rules.adaptive.adamw:step" in code.definitions
    assert "curvflow.tasks.rules.shared.moments:after" in code.definitions
    assert "curvflow.tasks.rules.sgd:step" not in code.definitions


def test_the_rule_within_two_rules_is_followed(tmp_path):
    rule = {"rule": "sam", "inner": {"rule": "adamw"}}
    rule = {"rule": "lookahead", "inner": rule}
    code = Fingerprints(tmp_path).of(fit({"kind": "linear"}, rule))
    assert "curvflow.tasks.rules.adaptive.adamw:step" in code.definitions


@pytest.mark.parametrize("path", ["mine:Own", "mine.Own"])
def test_an_optimiser_of_the_users_own_is_followed(path, tmp_path):
    files = {"mine.py": "class Own:\n    def step(self): return half()\n\n"}
    files["mine.py"] += "def half(): return 0.5\n"
    rule = {"rule": "torch_optimizer", "optimizer": path, "lr": 0.1}
    code = Fingerprints(write(tmp_path, files)).of(fit({"kind": "linear"}, rule))
    assert {"mine:Own", "mine:Own.step", "mine:half"} <= set(code.definitions)


def test_an_optimiser_of_torch_is_taken_as_it_is(tmp_path):
    rule = {"rule": "torch_optimizer", "optimizer": "torch.optim.NAdam", "lr": 0.1}
    code = Fingerprints(tmp_path).of(fit({"kind": "linear"}, rule))
    assert "curvflow.tasks.rules.shared.torch_adapter:Adapter.step" in code.definitions
    assert not any(name.startswith("torch") for name in code.definitions)
