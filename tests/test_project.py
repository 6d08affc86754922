"""The project keeps its own promises: commands, versions, files."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import curvflow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = {
    "google-crc32c": "google_crc32c",
    "pillow": "PIL",
    "ruamel.yaml": "ruamel",
    "scikit-learn": "sklearn",
}
BOUNDED = {"fastapi", "sqlalchemy"}  # listed for their bounds; Prefect imports them
# Joined here so that this file does not hold what it looks for.
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "index" + "-url", "find" + "-links")
HOMES = re.compile(r"(?<![\w.~}])/(?:work|home|root|Users|opt|mnt)/\w")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    names = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in names if path.is_file()]


def source_files(*folders: str) -> list[Path]:
    found = [p for f in folders for p in (ROOT / "src" / "curvflow" / f).rglob("*.py")]
    return sorted(path for path in found if not path.stem.startswith("_"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_make_command_named_is_a_target(name):
    named = set(re.findall(r"^make ([\w-]+)", text(name), flags=re.MULTILINE))
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), flags=re.MULTILINE))
    assert named
    assert named <= targets


def test_the_studies_that_commands_name_exist():
    named = re.findall(r"studies/[\w/.-]+\.yaml", text("README.md") + text("Makefile"))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_package_project_and_changelog_agree_on_the_version():
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert newest
    assert newest[1] == PROJECT["project"]["version"] == curvflow.__version__


def test_changes_are_files_of_a_known_category():
    types = {entry["directory"] for entry in PROJECT["tool"]["towncrier"]["type"]}
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    known = re.compile(rf"\+[\w-]+\.({'|'.join(sorted(types))})\.md")
    assert [name for name in sorted(names) if not known.fullmatch(name)] == []


def test_links_of_changes_lead_to_files_from_the_root():
    broken = [
        f"{path.name}: {link}"
        for path in sorted((ROOT / "changes").glob("+*.md"))
        for link in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
        if not (link.startswith("https://") or (ROOT / link).is_file())
    ]
    assert broken == []


def test_dependencies_are_what_the_package_imports():
    listed = [re.split("[<>=]", name)[0] for name in PROJECT["project"]["dependencies"]]
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    own = {"curvflow", *sys.stdlib_module_names}
    # `datasets`, `export`, `s3`, `text`, and what who imports `curvflow.testing` has
    optional = {"pooch", "h5netcdf", "h5py", "pyarrow", "obstore", "tokenizers"}
    optional |= {"pytest"}
    needed = {MODULES.get(name, name) for name in listed} - BOUNDED
    assert imported - own - optional == needed


def test_no_file_names_a_registry_or_somebodys_folder():
    found = []
    for path in tracked():
        content = path.read_bytes().decode(errors="ignore")
        if HOMES.search(content) or any(host in content for host in HOSTS):
            found.append(str(path.relative_to(ROOT)))
    assert found == []


def test_messages_name_packages_and_not_extras_of_a_package_that_no_index_has():
    """Installed from a checkout, `pip install 'curvflow[s3]'` would ask the index."""
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert [p.name for p in sources if re.search(r"curvflow\[\w", p.read_text())] == []


def test_every_file_is_smaller_than_100_kb():
    large = [path.name for path in tracked() if path.stat().st_size >= 100_000]
    assert large == []


FOLDERS = [
    f"tasks/{room}"
    for room in ("data", "probes", "aggregate", "figures", "models", "rules")
]


def names_in(path):
    """Return the kinds that a file computes, or the file's name."""
    text = path.read_text(encoding="utf-8")
    kinds = re.findall(r'^@computes\w*\("[\w.]*?(\w+)"', text, re.MULTILINE)
    return kinds or [path.stem]


def test_every_kind_model_and_rule_has_a_test_of_its_name():
    package = ROOT / "src" / "curvflow"
    files = [path for path in source_files(*FOLDERS) if path.parent.name != "shared"]
    assert len(files) > 50
    tests = [
        ROOT / "tests" / path.relative_to(package).parent / f"test_{name}.py"
        for path in files
        for name in names_in(path)
    ]
    assert [str(test.relative_to(ROOT)) for test in tests if not test.is_file()] == []
