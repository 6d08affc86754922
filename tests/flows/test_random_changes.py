"""A study changed at random computes what is new or lost, and nothing else."""

import random
from dataclasses import dataclass, field

import pytest

from curvflow.flows.plan.plan import make_plan
from curvflow.flows.results.node_results import plan_views
from curvflow.stores.local import LocalStore
from tests.flows.toys import opened, run

RATES = {"slow": 0.25, "fast": 0.75, "middle": 0.5, "rash": 3.0}  # the last diverges
SEEDS = (0, 1, 2, 3, 5, 8, 21)
EPOCHS = (0, 2, 4)
LAST = EPOCHS[-1]


@dataclass
class Model:
    """The study as it is written, and what was computed of all that it has been."""

    seeds: set = field(default_factory=lambda: {0, 1})
    rules: set = field(default_factory=lambda: {"slow", "fast"})
    count: int = 4
    scale: float = 3.0
    computed: set = field(default_factory=set)

    def change(self, draw):
        """Change one thing, or nothing."""
        what = draw.choice(("seed", "seed", "rule", "scale", "count", "nothing"))
        if what == "seed":
            self.toggle(draw, self.seeds, SEEDS)
        elif what == "rule":
            self.toggle(draw, self.rules, [*RATES])
        elif what == "scale":
            self.scale = draw.choice((1.0, 2.0, 3.0))  # that of last is 1.0
        elif what == "count":
            self.count = draw.choice((4, 5))

    def toggle(self, draw, chosen, known):
        label = draw.choice(known)
        if label not in chosen or len(chosen) > 1:
            chosen ^= {label}

    @property
    def overrides(self):
        rules = ", ".join(
            f"{name}: {{lr: {RATES[name]}}}" for name in sorted(self.rules)
        )
        return (
            f"axes.seed={sorted(self.seeds)}",
            f"axes.rule={{{rules}}}",
            f"stages.path.scale={self.scale}",
            f"stages.data.count={self.count}",
        )

    def nodes(self):
        """Return what each stage's results are of: results of equal inputs are one."""
        stages = {"data": {self.count}, "fit": set(), "probe": set(), "mean": set()}
        for rule in self.rules:
            rate, squares = RATES[rule], []
            for seed in sorted(self.seeds):
                stages["fit"].add((self.count, rate, seed))
                at = {epoch: self.weight(rate, seed, epoch) for epoch in EPOCHS}
                path = {(*item, self.count, self.scale) for item in at.items()}
                stages["probe"] |= path | {(LAST, at[LAST], self.count, 1.0)}
                squares.append((seed, at[LAST]))
            stages["mean"].add((rule, *squares))
        return {(stage, key) for stage, keys in stages.items() for key in keys}

    def weight(self, rate, seed, epoch):
        """Return a weight, of the diverged a text that all have."""
        is_lost = rate > 2 and epoch >= 2
        return "lost" if is_lost else (seed + 1.0) * (1 - rate) ** epoch


def executed(report):
    """Return how many nodes were executed, the two stages of one kind together."""
    counts = report.record.counts["executed"]
    kinds = {"data": "data", "fit": "fit", "last": "probe", "path": "probe"}
    totals = dict.fromkeys(("data", "fit", "probe", "mean"), 0)
    for stage, number in counts.items():
        totals[kinds.get(stage, stage)] += number
    return totals


def totals_of(nodes):
    return {
        stage: sum(of == stage for of, _ in nodes)
        for stage in ("data", "fit", "probe", "mean")
    }


def views_of(store, model):
    o = opened(store, *model.overrides)
    return plan_views(make_plan(o.study, o.store, o.files))


def keys_of(views, payload):
    """Return the keys of a study's results that a payload holds, by stage."""
    return {
        (stage, receipt.key)
        for stage, view in views.items()
        for receipt in view.receipts
        if receipt and receipt.payload == payload
    }


@pytest.mark.parametrize("seed", range(12))
def test_changes_compute_what_is_new_and_nothing_twice(seed, tmp_path):
    draw, model = random.Random(seed), Model()
    store = LocalStore(tmp_path)
    for _ in range(7):
        wanted = model.nodes() - model.computed
        assert executed(run(store, *model.overrides)) == totals_of(wanted)
        model.computed |= wanted
        model.change(draw)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_lost_is_computed_again_and_nothing_else(seed, tmp_path):
    draw, model = random.Random(seed), Model()
    store = LocalStore(tmp_path)
    for _ in range(3):
        run(store, *model.overrides)
        model.change(draw)
    run(store, *model.overrides)
    views = views_of(store, model)
    held = sorted({r.payload for v in views.values() for r in v.receipts if r.payload})
    lost = draw.sample(held, draw.randint(1, len(held)))
    for payload in lost:
        (path,) = tmp_path.glob(f"payloads/*/{payload}*")
        path.unlink()
    keys = {key for payload in lost for _, key in keys_of(views, payload)}
    counts = executed(run(store, *model.overrides))
    assert sum(counts.values()) == len(keys)
    assert not any(executed(run(store, *model.overrides)).values())
