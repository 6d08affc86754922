"""Golden keys: settings of every kind, rule, model and loss, and the keys they have.

`make golden` writes `golden_keys.json`, which is reviewed as a diff. A key that moves
throws away results: raise the kind's version and say so in the change log, or give a
new field its neutral value. Settings once written stay; those of a new one are its
example's.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from curvflow.schemas import losses, models, rules
from curvflow.schemas.explanations import explanations
from curvflow.schemas.keys import action_key, form, sha256
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.params import Params

FILE = Path(__file__).with_name("golden_keys.json")
Entries = dict[str, dict[str, Any]]


def written() -> Entries:
    """Return the entries of the file."""
    entries: Entries = json.loads(FILE.read_text(encoding="utf-8"))
    return entries


def renewed(before: Entries) -> Entries:
    """Return an entry for every kind, rule, model and loss, with its key now."""
    entries: Entries = {}
    for name, kind in all_kinds().items():
        if not kind.home:
            params = before[name]["params"] if name in before else params_of(kind)
            entries[name] = {"params": params, "key": key_of(kind, params)}
    for name, specification, example in _specifications():
        params = before[name]["params"] if name in before else example
        key = sha256(form(specification(**params)))[:40]
        entries[name] = {"params": params, "key": key}
    return entries


def _specifications() -> Iterator[tuple[str, type[Params], dict[str, Any]]]:
    """Yield rules and models with the first settings of their examples, and losses."""
    for name, loss in losses.WITH_SETTINGS.items():
        yield f"loss.{name}", loss, loss().model_dump(mode="json")
    for name, section in rules.sections().items():
        axes = YAML(typ="safe").load(section.example)["axes"]
        yield f"rule.{name}", rules.all_rules()[name], next(iter(axes["rule"].values()))
    for name, section in models.sections().items():
        stages = YAML(typ="safe").load(section.example)["stages"].values()
        model = next(stage["model"] for stage in stages if stage["use"] == "train")
        yield f"model.{name}", models.all_models()[name], model


def key_of(kind: Kind, params: Mapping[str, Any]) -> str:
    """Return the first 40 digits of a key: settings count, inputs and files do not."""
    plain = form(kind.params(**params), dict.fromkeys(["path"], "ab" * 32))
    return action_key(kind.name, kind.version, plain, {"data": "cd"})[:40]


def params_of(kind: Kind) -> dict[str, Any]:
    """Return the settings of a kind's own example, at the first label of each axis."""
    study = YAML(typ="safe").load(explanations()[kind.name].example)
    labels = {name: _first(axis) for name, axis in study.get("axes", {}).items()}
    stages = study["stages"].values()
    stage = next(stage for stage in stages if stage["use"] == kind.name)
    fields = kind.params.model_fields
    return {name: _filled(stage[name], labels) for name in stage if name in fields}


def _first(axis: Any) -> Any:
    if isinstance(axis, int):
        return 0
    return next(iter(axis.values() if isinstance(axis, dict) else axis))


def _filled(value: Any, labels: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(item, labels) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, labels) for item in value]
    if isinstance(value, str) and value.startswith("${"):
        axis, *path = value[2:-1].split(".")
        label = labels[axis]
        for name in path:
            label = label[name]
        return label
    return value


def text_of(entries: Entries) -> str:
    """Return the file's text: a line an entry."""
    lines = [
        f" {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}"
        for name, entry in sorted(entries.items())
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text_of(renewed(written())), encoding="utf-8")
