"""What holds for every built-in kind, whoever adds one."""

from unittest import mock

import numpy as np
import pytest

import curvflow.flows.graph.tiles as tiles
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.published_images.catalogue import CATALOGUE
from curvflow.flows.run.run import run_study
from curvflow.schemas.keys import action_key, form
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import all_kinds, find_kind
from tests.flows.published_images import fakes

KINDS = sorted(all_kinds())

# One study that uses every kind; its seeds and rules fill tiles of several widths.
STUDY = """
study: every-kind
axes:
  seed: 5
  rule: {sgd: {rule: sgd, lr: 0.1, momentum: 0.5}, adam: {rule: adam, lr: 0.01}}
stages:
  digits: {use: data.digits, num_train: 40, seed: "${seed}"}
  xor: {use: data.xor}
  xord: {use: data.xord, seed: "${seed}"}
  sinusoid: {use: data.sinusoid, num_samples: 60, dim: 5, seed: "${seed}"}
  taught: {use: data.teacher, dim: 4, hidden: [3], num_train: 20, num_test: 5,
           seed: "${seed}"}
  array: {use: data.array, path: mine.npz}
  mnist: {use: data.mnist, folder: images, crop: 10, num_train: 30, seed: "${seed}"}
  fashion: {use: data.fashion_mnist, folder: images, classes: [3, 1, 4],
            label_noise: 0.2, seed: "${seed}"}
  cifar10: {use: data.cifar10, folder: images, num_train: 20, flatten: true}
  cifar100: {use: data.cifar100, folder: images, labels: one_hot}
  modified: {use: data.modify, data: digits, num_train: 30, normalise: standard,
             permute_pixels: true, seed: "${seed}"}
  made: {use: data.factory, factory: "makers:points", kwargs: {count: 12}}
  kernel: {use: data.kernel_matrix, num_points: 12, seed: "${seed}"}
  ensemble: {use: data.random_matrix, size: 10, seed: "${seed}"}
  sparse: {use: data.sparse_matrix, grid: [3, 3], shift: 0.5}
  known: {use: data.known_answer, model: {kind: deep_linear, hidden: [2]}, inputs: 3,
          outputs: 2, rank: 1, num_samples: 20, seed: "${seed}"}
  truth: {use: weights.known_answer, data: known, rank: 1,
          model: {kind: deep_linear, hidden: [2]}}
  brought: {use: weights.import, path: net.npz, data: made,
            model: {factory: "makers:net", kwargs: {}}}
  on_digits: {use: train, data: digits, model: {kind: linear}, rule: "${rule}",
              seed: "${seed}", epochs: 2, batch_size: 16, dtype: float64}
  on_xor: {use: train, data: xor, model: {kind: mlp, hidden: [4], activation: tanh},
           rule: "${rule}", seed: "${seed}", epochs: 3, checkpoints: {every: 1},
           keep_preconditioner: true, dtype: float64}
  on_array: {use: train, data: array, model: {kind: mlp, hidden: [3]},
             rule: {rule: sgd, lr: 0.1}, epochs: 1}
  on_made: {use: train, data: made, model: {factory: "makers:net", kwargs: {}},
            rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 1, dtype: float64}
  trace: {use: probe.hessian_trace, weights: on_xor, num_probes: 6, seed: "${seed}"}
  eigen: {use: probe.eigenvalues, weights: on_xor, k: 2}
  tracked: {use: probe.eigenvalue_tracking, trajectory: on_xor, method: lanczos, k: 2}
  sharp: {use: probe.sharpness, weights: on_xor, seed: "${seed}"}
  spectrum: {use: probe.spectrum, weights: on_xor, num_runs: 2, num_steps: 5,
             seed: "${seed}"}
  dimension: {use: probe.effective_dimension, ritz: spectrum}
  llc: {use: probe.llc, weights: on_xor, num_chains: 2, num_draws: 8, seed: "${seed}"}
  wbic: {use: probe.wbic, draws: llc}
  regular: {use: probe.llc_regular, draws: llc, ritz: spectrum}
  energies: {use: probe.free_energy, draws: llc, ritz: spectrum}
  norms: {use: probe.norms, weights: on_digits}
  slices: {use: probe.landscape, weights: on_xor, trajectory: on_xor, plane: true,
           directions: trajectory, num_points: 3, seed: "${seed}"}
  tracing: {use: probe.trace, weights: on_xor, num_probes: 6, seed: "${seed}"}
  some_moments: {use: probe.moments, weights: on_xor, num_moments: 4, num_probes: 3,
                 seed: "${seed}"}
  exact: {use: probe.dense, weights: on_xor}
  noise: {use: probe.gradient_variance, weights: on_xor}
  variance: {use: probe.hessian_variance, weights: on_xor, num_probes: 3,
             seed: "${seed}"}
  agree: {use: probe.crosscheck, of: [tracing, exact]}
  covered: {use: aggregate.coverage, of: tracing, truth: exact, quantities: trace,
            repetitions: seed}
  compared: {use: aggregate.compare, of: [on_xor, trace], along: rule, baseline: sgd,
             over: seed, num_resamples: 100}
  correlated: {use: aggregate.correlate, of: [on_xor, trace], x: trace,
               y: final_test_loss, minus: final_train_loss, over: [seed, rule],
               num_resamples: 100}
  best: {use: aggregate.best, of: on_xor, along: rule, by: final_train_loss, goal: min,
         report: final_test_loss, over: seed}
  ranked: {use: aggregate.rank, of: on_xor, along: rule, over: seed,
           lower_is_better: final_test_loss}
  scaled: {use: aggregate.scaling, of: on_xor, y: final_train_loss, along: seed,
           label: rule, num_resamples: 100}
  joined: {use: aggregate.join, of: [on_xor, trace], rows: [seed, rule]}
  selected: {use: aggregate.select, of: trace, rows: [seed, rule], at: {seed: [0, 1]},
             where: {trace: {above: 0}}}
  logdet: {use: probe.logdet, matrix: kernel, num_runs: 3, num_steps: 4, rank: 4}
  entropy: {use: probe.maxent, moments: some_moments, num_points: 60}
  table: {use: aggregate.summary, of: [trace, eigen, norms], over: seed}
  traces: {use: figure.chains, of: llc, label: rule, over: seed}
  lines: {use: figure.lines, of: on_xor, y: train_loss, label: rule, over: seed}
  bars: {use: figure.bars, of: trace, y: trace, label: rule, over: seed}
  smoothed: {use: figure.density, of: spectrum, label: rule, over: seed}
  stems: {use: figure.stem, of: spectrum, label: rule, over: seed}
  planes: {use: figure.landscape, of: slices, label: rule, over: seed}
  scatter: {use: figure.scatter, of: norms, x: norm_l2, y: max_abs, label: rule,
            over: seed}
  forest: {use: figure.forest, of: compared, quantities: trace}
  heat: {use: figure.heatmap, of: on_xor, z: final_train_loss, x: seed, y: rule}
  law: {use: figure.scaling, of: on_xor, y: final_train_loss, along: seed, label: rule,
        num_resamples: 100}
  vectors: {use: figure.vectors, weights: on_xor, label: rule, over: seed}
"""
MAKERS = """
import numpy as np
import torch


def points(count):
    x = np.linspace(-1, 1, count)[:, None]
    return {"inputs": x, "targets": x**2}


def net(*shapes):
    return torch.nn.Sequential(
        torch.nn.Linear(1, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    )
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("every-kind")
    (folder / "study.yaml").write_text(STUDY)
    (folder / "makers.py").write_text(MAKERS)
    inputs = np.random.default_rng(0).normal(size=(10, 3))
    np.savez(folder / "mine.npz", inputs=inputs, targets=np.arange(10) % 2)
    shapes = {"0.weight": (3, 1), "0.bias": 3, "2.weight": (1, 3), "2.bias": 1}
    np.savez(folder / "net.npz", **{k: np.ones(shape) for k, shape in shapes.items()})
    with mock.patch.dict(CATALOGUE, fakes.write_all(folder / "images")):
        yield folder


def run(folder, *overrides, width=8):
    """Run the study on a fresh store in memory, in tiles of a given width."""
    opened = open_study(folder / "study.yaml", store="memory:", overrides=overrides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "MAX_WIDTH", width)
        report = run_study(opened.study, opened.store, opened.files)
    assert report.record.failures == []
    return report, opened.store


@pytest.fixture(scope="module")
def first(folder):
    return run(folder)


def digests(report):
    return {(n.stage, n.point): n.receipt.digest for n in report.plan.graph}


def test_the_study_uses_every_built_in_kind(first):
    used = {node.kind.name for node in first[0].plan.graph}
    assert used == set(KINDS)


def test_the_same_study_from_scratch_is_equal_bit_for_bit(folder, first):
    assert digests(run(folder)[0]) == digests(first[0])


@pytest.mark.parametrize("width", [2, 4])
def test_no_result_depends_on_the_width_of_its_tile(folder, first, width):
    report, store = run(folder, width=width)
    for one, other in zip(first[0].plan.graph, report.plan.graph, strict=True):
        assert (one.stage, one.point) == (other.stage, other.point)
        numbers = numeric(one.kind.outputs)
        wide = first[1].read(one.receipt, numbers)
        narrow = store.read(other.receipt, numbers)
        for name in numbers:
            np.testing.assert_allclose(
                wide[name], narrow[name], rtol=1e-9, atol=1e-11, err_msg=one.stage
            )


def numeric(outputs: tuple[Variable, ...]) -> list[str]:
    # Residuals are rounding errors themselves once converged.
    sure = [v for v in outputs if not v.optional]
    names = [v.name for v in sure if v.dtype != "str" and not v.file]
    return [name for name in names if name != "residuals"]


def test_a_study_run_in_two_halves_equals_one_run_at_once(folder, first):
    fewer = ["axes.seed=4"]
    opened = open_study(folder / "study.yaml", store="memory:", overrides=fewer)
    run_study(opened.study, opened.store, opened.files)
    whole = open_study(folder / "study.yaml", store="memory:")
    report = run_study(whole.study, opened.store, whole.files)
    assert report.record.counts["cached"]["on_xor"] == 8
    for one, other in zip(first[0].plan.graph, report.plan.graph, strict=True):
        if one.kind.name == "train":
            names = ["final_train_loss", "norm_tensor_sum"]
            a = first[1].read(one.receipt, names)
            b = opened.store.read(other.receipt, names)
            for name in names:
                np.testing.assert_allclose(a[name], b[name], rtol=1e-9)


def test_sizes_of_arrays_fit_the_declared_dims(first):
    report, store = first
    for node in report.plan.graph:
        there = {part.partition("@")[0] for part in node.receipt.parts}
        outputs = [v for v in node.kind.outputs if v.name in there or not v.optional]
        found = store.read(node.receipt, [v.name for v in outputs])
        sizes: dict[str, int] = {}
        for variable in outputs:
            shape = found[variable.name].shape
            if "..." not in variable.dims:
                assert len(shape) == len(variable.dims), (node.stage, variable.name)
            for dim, size in zip(variable.dims, shape, strict=False):
                assert dim == "..." or sizes.setdefault(dim, size) == size


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_documented(name):
    kind = find_kind(name)
    assert kind.summary.endswith(".")
    assert len(kind.summary) <= 80
    for field, info in kind.params.model_fields.items():
        assert info.description, f"{name}: parameter {field}"
    for variable in kind.outputs:
        assert variable.description, f"{name}: variable {variable.name}"
        assert variable.units


@pytest.mark.parametrize("name", KINDS)
def test_declared_fields_exist(name):
    kind = find_kind(name)
    fields = kind.params.model_fields
    for path in (*kind.varying, *kind.reduces, *kind.selects):
        assert path.partition(".")[0] in fields
    for given in kind.inputs.values():
        assert given.follows is None or given.follows in kind.inputs
    names = [variable.name for variable in kind.outputs]
    assert len(names) == len(set(names))
    for variable in kind.outputs:
        if variable.judged_by:
            verdict = kind.output(variable.judged_by)
            assert verdict is not None
            assert verdict.dtype == "bool" or (verdict.dtype, verdict.dims) == (
                "str",
                (),
            )
            assert verdict.dims in ((), variable.dims)
    assert set(kind.returns.takes or ()) <= set(names)


# Frozen: a key that moves throws away results. Raise the kind's version and say so in
# the change log, or give a new field a neutral value.
GOLDEN = {
    "aggregate.best": "c5544bb0775a3093d01e382e94682effdc28ca5b",
    "aggregate.compare": "1e75cdbe6a8fd1019501561680ec157194856adb",
    "aggregate.correlate": "7c1fb32f8fa784d2c0921c8dce7c834a86b3eacf",
    "aggregate.coverage": "f4841400cbfa6d2f924c7bc7fc9def54f8d381a1",
    "aggregate.join": "f8698a799ea06ea906b820124906c3b9ee3f56c1",
    "aggregate.rank": "ab16fc813f302ac537f920d1eb9722fc7d7fd854",
    "aggregate.scaling": "ff22993fd8b5458a953b23b9c3ed93315571600f",
    "aggregate.select": "dade4780215e8ab3ffb00451d5651cddea673010",
    "aggregate.summary": "209c50981edb993690499a889eac0c89d1ee3292",
    "data.array": "6da47f44283f48049671939808f31a88873b7116",
    "data.cifar10": "46e56bcdae3d742935d22a63b5e4fefce7b78e57",
    "data.cifar100": "99648ab41941843f5c96bdf01b23c6173953d558",
    "data.digits": "177834b9ca0137ffc714d21fe6ee2c8f758672e3",
    "data.factory": "1da5a642b8a24a29d5feb0f350a6ff6eac88917b",
    "data.fashion_mnist": "7572fb0600ef6c171dcfba49a044eb6bac97ce08",
    "data.kernel_matrix": "08d8982ea6ef6a8731423774b37f86360631c038",
    "data.known_answer": "575cf728352551302acd344578c46c76eda980d5",
    "data.mnist": "ea88890ba94663afe0f2cef1478b0f8c1db59614",
    "data.modify": "c9ff851a78194ec6583d7d97993b4676a1f1e765",
    "data.random_matrix": "6c8a3e9ba04abe6ee38d3a86afec8957f07a2490",
    "data.sinusoid": "cbe21a9bb9e98a5877d544b49f2065601630b3fd",
    "data.sparse_matrix": "722877e1c6a40561d2b928c8d930f83f327d6685",
    "data.teacher": "a28f8111e3d413c7d8330136ea48e8cdd7df7439",
    "data.xor": "8cde0a4d7134fe566bb36dfc4d5e019b4b01723d",
    "data.xord": "ec9c545a9712199b9184d37c6d36d0cb9833ae14",
    "figure.bars": "bee03342bec5b01be748e57b036dc141b60a5311",
    "figure.chains": "7c8b9627da85bef637594fff9db111c51abf9831",
    "figure.density": "89a78d7f75c7a69bf573331d24a5cefdec04602d",
    "figure.forest": "8a3450c44a2b733d372d853ca2d06c7f720395cb",
    "figure.heatmap": "ec30356ce613f5d6d2be86f72acb03527d2b6420",
    "figure.landscape": "ff0cfa6e81237945ef576deb3d35c8202ed5f54b",
    "figure.lines": "2094a0b7cd4cc56852018b3eb9ad92fea0536cbc",
    "figure.scaling": "89cba16335198f508c8c7d9b13b4ff4ccfad29db",
    "figure.scatter": "b07e92956051a6c3e381fd061e743a3a58ab2f7c",
    "figure.stem": "fae520f41b493efb860424e7d46502282aed9869",
    "figure.vectors": "571c4186ac7d789872bbb8056d6049aa9353bb1a",
    "probe.crosscheck": "8061e2838c967507a0ae70a88179fff590cb3759",
    "probe.dense": "2b38d0303e8aea193bae689cd8767e107418b8a3",
    "probe.effective_dimension": "6cb90d223e08ec5bdbd87cf1138332420caa255b",
    "probe.eigenvalue_tracking": "b075509708bf485483455af41adf7158f1985fa8",
    "probe.eigenvalues": "5e517f3b130996cebed9948f95994a9cc0de8d88",
    "probe.free_energy": "a74bbe67dc0315a94ce2892315aa142b9ba32dcd",
    "probe.gradient_variance": "23828c042dc320ce0d85e2b82c25e1fe658c2fd9",
    "probe.hessian_trace": "fdac7e6679fdff0339fa15bf353a14ddf9b9c10d",
    "probe.hessian_variance": "b43254f9f4c72c92e47400f606759463db590618",
    "probe.landscape": "268cec5fa8878c5c0039e6aa4fe21b4a1fe787f5",
    "probe.llc": "82af6b92673991a3e260cf3049e80c480a59561a",
    "probe.llc_regular": "08221a898bdc4037db703fbf3ca294d28699a072",
    "probe.logdet": "c1eb74566b75dd474e7e14f3a273346d7e125898",
    "probe.maxent": "c23dc83b784a57137eeb1c8dcd992a159c2b5796",
    "probe.moments": "dc68405a1f8bef6890347a3a4ccdb4ecac983fb6",
    "probe.norms": "5989118032d7aec2b341a8f8286d45d3aff5b069",
    "probe.sharpness": "4e8b09e2f0ab5a1fb52769e546ed3a67e821ddfa",
    "probe.spectrum": "8adef918041633874f69e4d7bcf5113c6232a75c",
    "probe.trace": "f767f155269e59bc4fe2b10f0f472ceda870c1d4",
    "probe.wbic": "e6eeeb6de77e2f375e1971719795bc22cc8dda57",
    "train": "bb9c22da47eabd0a0126ba4f9855a79ea650dc46",
    "weights.import": "7b7ce8a1cc15accd5cf6db67b06ecd467b13f8f3",
    "weights.known_answer": "2b584f7bb38f8b01db6506ea424fb40b9dba685c",
}


def test_golden_keys_cover_every_kind():
    assert sorted(GOLDEN) == KINDS


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_keys_are_frozen(folder, name):
    opened = open_study(folder / "study.yaml", store="memory:")
    stage = next(s for s in opened.study.stages.values() if s.kind.name == name)
    params = stage.params({"seed": 1, "rule": "sgd"})
    plain = form(params, dict.fromkeys(["path"], "ab" * 32))
    key = action_key(name, stage.kind.version, plain, {"data": "cd"})
    assert key[:40] == GOLDEN[name]
