"""Benchmarks measure what they say they do; how fast it is, no test asks."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse

import curvflow
from benchmarks import (
    denormals,
    graph_kernels,
    graph_scale,
    house,
    intervals,
    kfac_step,
    known_answers,
    kronecker_nets,
    kronecker_tiles,
    ngd_cost,
    own_module,
    peers_graphs,
    peers_kronecker,
    peers_llc,
    probes_batched,
    regularisers,
    training_gpu,
    walks,
    zoo,
)
from benchmarks.peers_workflow import CURVFLOW, Grid, repetition
from benchmarks.scale import QUICK
from benchmarks.scaling import workers
from benchmarks.scaling.coordinator import PARTS, WIDE, cost
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Graph
from curvflow.schemas.study.study import load_study
from curvflow.tasks.registry import Machine, find
from tests import forkserver
from tests.flows.run.runners.clusters import forking
from tests.pictures import place_only


@pytest.mark.slow
@pytest.mark.processes
def test_curvflow_computes_all_then_nothing_then_what_one_rate_concerns(tmp_path):
    grid = Grid(rates=2, seeds=5, repeats=1)
    assert grid.expected == (20, 0, 10)
    programs = Path(sys.executable).parent
    assert len([*repetition(CURVFLOW, programs, grid, tmp_path, 300)]) == 3


def test_nodes_that_vary_in_what_tiles_may_not_have_tiles_of_their_own(tmp_path):
    alone = cost(tmp_path / "alone", "alone", 6)
    together = cost(tmp_path / "together", "together", 4 * WIDE)
    assert (alone.tiles, together.tiles) == (6, 4)


def test_the_parts_of_a_tiles_cost_are_no_more_than_the_whole(tmp_path):
    found = cost(tmp_path, "alone", 20)
    assert all(found.parts[part] > 0 for part in PARTS)
    assert sum(found.parts[part] for part in PARTS) <= found.wall


def test_eight_rules_by_hand_end_where_the_tile_does(monkeypatch, capsys):
    monkeypatch.setattr(regularisers, "EPOCHS", 4)
    monkeypatch.setattr(regularisers, "TAU", 2)
    monkeypatch.setattr(regularisers, "SEEDS", 2)
    monkeypatch.setattr(regularisers, "COMPILERS", ("none",))
    regularisers.main()
    told = capsys.readouterr().out
    assert told.startswith("16 networks 2-12-1, 4 epochs")
    assert float(told.rsplit(maxsplit=1)[1]) < 1e-5


def test_every_rule_is_compared_in_time_with_the_gradient(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ngd_cost", "--turns", "1"])
    monkeypatch.setattr(ngd_cost, "INPUTS", 20)
    monkeypatch.setattr(ngd_cost, "HIDDEN", {"small": (6,)})
    ngd_cost.main()
    told = capsys.readouterr().out
    assert told.startswith("small, 196 parameters, float64, 2 networks")
    for name in ngd_cost.RULES:
        assert told.count(f"gradient and {name} ") == 2


def test_steps_by_factors_are_compared_in_time_with_the_gradient(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kfac_step", "--turns", "1"])
    monkeypatch.setattr(kfac_step, "INPUTS", 20)
    monkeypatch.setattr(kfac_step, "HIDDEN", (6,))
    monkeypatch.setattr(kfac_step, "STEPS", 2)
    kfac_step.main()
    head, first, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["step", "ms", "gradients"]
    assert float(first.split()[-1]) == 1
    assert [row[:26].strip() for row in rows] == list(kfac_step.RULES)
    assert all(float(row.split()[-1]) > 0 for row in rows)


def test_steps_of_an_autoencoder_are_compared_alike(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kfac_step", "--turns", "1", "--autoencoder"])
    monkeypatch.setattr(kfac_step, "PIXELS", 20)
    monkeypatch.setattr(kfac_step, "ENCODER", (6,))
    monkeypatch.setattr(kfac_step, "LONG", 2)
    kfac_step.main()
    _, first, *rows = capsys.readouterr().out.splitlines()
    assert float(first.split()[-1]) == 1
    assert [row[:26].strip() for row in rows] == list(kfac_step.OF_AUTOENCODERS)


def test_factors_and_their_trainings_are_timed_as_tiles(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kronecker_tiles", "--turns", "1"])
    monkeypatch.setattr(probes_batched, "SEEDS", 2)
    monkeypatch.setattr(probes_batched, "CHECKPOINTS", 2)
    small = {"2-12-1": kronecker_tiles.SMALL["2-12-1, XOR, 4 samples"]}
    monkeypatch.setattr(kronecker_tiles, "SMALL", small)
    monkeypatch.setattr(kronecker_tiles, "TRAININGS", 2)
    monkeypatch.setattr(kronecker_tiles, "EPOCHS", 1)
    kronecker_tiles.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    measured = [*kronecker_tiles.FACTORS, *kronecker_tiles.RULES]
    assert [row.split(" | ")[1] for row in rows] == measured
    assert all(float(row.split(" | ")[4].rstrip(" |")) > 0 for row in rows)


def test_chains_are_compared_in_time_with_their_arithmetic(monkeypatch, capsys):
    asked = ["--draws", "2", "--turns", "1", "--tasks", "small"]
    monkeypatch.setattr("sys.argv", ["peers_llc", *asked])
    peers_llc.main()
    _, _, own, arithmetic, *_ = capsys.readouterr().out.splitlines()
    assert own.startswith("| small | curvflow |")
    assert float(own.split("|")[5]) == pytest.approx(0.06, abs=0.05)
    assert arithmetic.startswith("| small | arithmetic |")
    assert arithmetic.endswith("|  |")


def test_a_tile_of_the_kind_estimates_what_its_nodes_do_alone(monkeypatch, capsys):
    asked = ["--draws", "8", "--turns", "1", "--tasks", "given"]
    monkeypatch.setattr("sys.argv", ["peers_llc", *asked])
    monkeypatch.setattr(peers_llc, "TILE", 2)
    peers_llc.main()
    _, _, tile, alone = capsys.readouterr().out.splitlines()
    assert tile.startswith("| given | one tile |")
    assert alone.startswith("| given | tiles of one |")
    assert tile.split("|")[5] == alone.split("|")[5]


def test_a_decoder_is_the_network_that_curvflow_samples_about():
    case = peers_llc.book("cpu")
    module = case.module(0)
    x, y = case.inputs[:5], case.targets[:5]
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(module(x), y, reduction="none")
    weights = peers_llc.flattened([module])
    losses = case.problem.losses(weights, x[None], y[None])
    torch.testing.assert_close(losses[0], expected)


@pytest.fixture(scope="module")
def two_answers(tmp_path_factory):
    """Results of two cases of the study of known answers: few draws, no calibration."""
    whole = curvflow.Study.from_yaml(known_answers.STUDY.read_text(encoding="utf-8"))
    axes, stages = whole.axes, whole.stages
    axes["case"] = {name: axes["case"][name] for name in ("product_5_3_4_r2", "well")}
    axes["sampler"]["calibrated"] = {**axes["sampler"]["devinterp"], "lr": 1e-6}
    stages["llc"] |= {"num_draws": 8, "num_chains": 2}
    path = tmp_path_factory.mktemp("two-answers") / "two.yaml"
    curvflow.Study(axes=axes, stages=stages).save(path)
    with pytest.MonkeyPatch.context() as patch:
        place_only(patch)
        results = curvflow.run(path)
    with mock.patch.object(known_answers, "STUDY", path):
        yield results


def test_modules_have_the_mean_loss_of_the_populations(two_answers):
    product, well = (
        known_answers.stored(two_answers, name) for name in ("product_5_3_4_r2", "well")
    )
    for case in product, well:
        outputs = case.module(case.inputs)
        assert known_answers.mean_sse(outputs, case.targets).item() == 0
    with torch.no_grad():
        product.module.weights[0] += 1  # the first of ones: the first input twice
        well.module.weights += 1
    losses = [
        known_answers.mean_sse(case.module(case.inputs), case.targets).item()
        for case in (product, well)
    ]
    assert losses == pytest.approx([1, (10 + 3 + 1 + 0.3) / 2], rel=1e-6)


def answered(monkeypatch, capsys, *, stable):
    """Return the last rows of a table of a peer that diverges above some step."""

    def sampled(module, loader, *, optimizer_kwargs, **settings):
        if optimizer_kwargs.get("lr", 0.0) > stable:
            raise RuntimeError("NaN detected in loss at chain 0, draw 4")
        return {"llc/mean": 2.0, "llc/std": 0.1, "llc-chain/0": 1.9, "llc-chain/1": 2.1}

    peer = {
        "slt.sampler": SimpleNamespace(estimate_learning_coeff_with_summary=sampled),
        "utils": SimpleNamespace(make_evaluate=lambda criterion: criterion),
    }
    for name, module in peer.items():
        monkeypatch.setitem(sys.modules, f"devinterp.{name}", module)
    monkeypatch.setattr("sys.argv", ["known_answers"])
    known_answers.main()
    return capsys.readouterr().out.splitlines()[-3:]


def test_estimates_that_diverge_are_counted_as_wrong(two_answers, monkeypatch, capsys):
    product, well, held = answered(monkeypatch, capsys, stable=0.0)
    assert product.startswith("| product_5_3_4_r2 | 8, 1 | 1e+04 |")
    assert well.endswith("| no step, no step | 2.9 | 2.000 ± 0.071, 2.000 ± 0.071 |")
    assert held.endswith("| 0 of 4 | | 2 of 4 |")


def test_a_peer_is_given_the_step_that_its_sweep_finds(
    two_answers, monkeypatch, capsys
):
    *_, held = answered(monkeypatch, capsys, stable=1e-6)
    assert held.endswith("| 2 of 4 | | 2 of 4 |")


def test_trials_agree_only_within_their_errors_and_about_what_is_not_zero():
    of = known_answers.Estimate
    assert known_answers.agree(of(2.0, 0.01), of(2.09, 0.01))
    assert known_answers.agree(of(2.0, 0.3), of(2.5, 0.3))
    assert not known_answers.agree(of(2.0, 0.01), of(2.3, 0.01))
    assert not known_answers.agree(of(0.1, 0.3), of(-0.1, 0.3))
    assert not known_answers.agree(of(float("nan"), 0.0), of(2.0, 0.3))


def test_the_peer_of_chains_by_vmap_is_given_the_same_posterior(monkeypatch):
    given = {}

    class Estimator:
        def __init__(self, **settings):
            given.update(settings)

        def estimate_llc(self, module, loader, *, criterion_fn, **options):
            given.update(options, batches=len([*loader]))
            return torch.tensor(1.5)

    fake = SimpleNamespace(LLCEstimator=Estimator)
    monkeypatch.setitem(sys.modules, "canonical_interp.slt", fake)
    case = peers_llc.waves("cpu")
    estimate = peers_llc.canonical(case, case.module(0), 8, compiled=False)
    assert estimate == 1.5
    assert given["batches"] == len(case.inputs) // case.batch
    assert (given["nbeta"], given["learning_rate"]) == (case.nbeta, case.lr)
    assert (given["chains"], given["draws"], given["compile"]) == (8, 8, False)


def test_decayed_units_hold_denormals_that_count_as_zero_when_flushed():
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush them")
    problem, _ = denormals.posed((6, 4))
    shapes = problem.network.layout.shapes
    weights = torch.ones(2, problem.network.num_parameters)
    with denormals.plainly():
        half, whole = (denormals.decayed(problem, weights, s) for s in (0.5, 1.0))
        assert (whole > 0).all()
        assert (whole < torch.finfo(torch.float32).tiny).all()
        assert torch.equal(denormals.decayed(problem, weights, 0.0), weights)
    with denormals.threads(1):
        assert not whole.mul(2).any()
        alive = [part[0] > 0 for part in problem.network.layout.unflatten(half * 2)]
    for number, (part, shape) in enumerate(zip(alive, shapes, strict=True)):
        rows = shape[0] if number >= 4 else shape[0] // 2
        columns = (shape[1] // 2 if number else shape[1]) if len(shape) == 2 else 1
        assert part.sum() == rows * columns


def test_products_are_timed_in_both_modes_for_all_weights(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["denormals", "--turns", "1"])
    monkeypatch.setattr(denormals, "HIDDEN", ((6, 4),))
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush them")
    denormals.main()
    rows = capsys.readouterr().out.splitlines()[4:]
    assert len(rows) == 2 * 2 * len(denormals.DECAYED)
    for row in rows:
        assert float(row.split("|")[7].rstrip(" x")) > 0


def test_epochs_on_images_are_timed_by_hand_and_as_a_tile(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["training_gpu", "--quick"])
    monkeypatch.setattr(training_gpu, "SMALL", (256, 8, 1))
    training_gpu.main()
    assert "8 networks 784-8-8-10" in capsys.readouterr().out


@pytest.mark.cluster
def test_two_workers_are_compared_with_plain_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "get_context", lambda _: forkserver.running())
    with forking():
        head, *rows = QUICK["two"](tmp_path)
    assert head.startswith("4 tiles of 0.1 s")
    assert len(rows) == 5


@pytest.mark.processes
def test_what_a_tile_asks_of_a_bucket_is_counted_without_what_a_run_asks():
    _, row = QUICK["bucket"](Path())
    assert 5 < float(row.split()[0]) < 30


def test_the_error_of_plain_vectors_is_the_known_one():
    name = "even, 0.5 to 1.5"
    error, sem = intervals.deviation(name, "hutchinson")
    matrix_DD = intervals.matrix(name)
    off_diagonal = matrix_DD.square().sum() - matrix_DD.diagonal().square().sum()
    known = float((2 * off_diagonal / intervals.PRODUCTS).sqrt())
    assert abs(error - known) < 4 * sem < 0.2 * known


def test_figures_of_a_tree_are_counted(tmp_path):
    package = tmp_path / "mine"
    (package / "room").mkdir(parents=True)
    long = "\n".join(["def f(one):", *(f"    x{i} = {i}" for i in range(41))])
    files = {
        "room/__init__.py": '"""A room."""\n',
        "room/a.py": f'"""Lines\n\nof three."""\n# no code\n{long}\n',
        "room/b.py": "from mine.room import a\n\n\ndef g():\n    import mine.room.a\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    assert house.figures(package) == {
        "files": "3",
        "lines of code": "45",
        "lines of a file": "15",
        "folders": "1",
        "folders over 20 files": "0",
        "bindings of pronouns": "1",
        "functions over 40 lines": "1",
        "imports of a file": "0.3",
        "files that one alone imports": "1",
        "of these, with it in a room and in 400 lines": "1",
    }
    assert sum(house.purposes(package).values()) == 3


def test_stays_and_returns_of_a_walk_are_counted(capsys):
    walks.show("walk", ["a", "a", "b", "a", "b", "a"])
    assert capsys.readouterr().out == (
        "walk: 2 files, 5 stays, 3 returns, at most 2 to one file (a)\n"
    )


def test_a_walk_has_the_files_of_first_calls_below_its_folder():
    walk = walks.Walk("schemas/study/", ("schemas/study/stage.py",))
    text = "study: s\nstages: {data: {use: data.xor}}\n"
    sys.setprofile(walk)
    try:
        load_study(text, file="s.yaml")
    finally:
        sys.setprofile(None)
    files = walk.every()
    assert files[0] == "schemas/study/study.py"
    assert all(file.startswith("schemas/study/") for file in files)
    assert {*walk.leading_on()} <= {*files}
    assert len(walk.subject()) < len(walk.leading_on()) < len(files)
    assert "schemas/study/stage.py" in {*walk.leading_on()} - {*walk.subject()}


def test_a_module_of_others_is_studied_compared_and_timed(monkeypatch):
    monkeypatch.setattr(zoo, "TIMED_EPOCHS", 1)
    monkeypatch.setattr(zoo, "SEEDS", 1)
    monkeypatch.setattr(zoo, "FACTORIES", "tests.tasks.toys")
    subject = zoo.Subject("dropout", "make_dropout", "make_clouds", classes=3)
    row = zoo.measured(subject, turns=1)
    assert set(row.stages.values()) == {"yes"}
    assert row.error < 1e-12
    assert {"training", "step", *zoo.ORDERS} < set(row.ratios)
    loop, here = row.costs
    assert row.ratios["step"] == here.step / loop.step
    header, line, *_ = zoo.printed([row], markdown=False)
    assert "all else of it takes" in header
    assert line.count(" ms") == 2


def test_steps_of_a_training_and_of_a_loop_are_taken_in_turns():
    node, loop = own_module.both_trainings(8, "float32", 2)
    lockstep = own_module.Lockstep(loop())
    find("train").compute([node], Machine(partial=lockstep))
    lockstep.end()
    steps = 2 * own_module.SAMPLES // own_module.BATCH
    assert (len(lockstep.here), len(lockstep.there)) == (steps + 1, steps + 2)
    assert next(lockstep.loop, None) is None
    assert all(cost.step > 0 for cost in own_module.taken_apart(loop, node, 1))


def test_the_whole_is_within_the_target_from_where_steps_make_up_for_all_else():
    loop, cost = own_module.Cost(1.0, 10.0), own_module.Cost
    assert own_module.steps_until(loop, cost(1.0, 21.0)) == 100
    assert own_module.steps_until(loop, cost(1.0, 10.0)) == 0
    assert own_module.steps_until(loop, cost(1.2, 21.0)) == math.inf
    assert own_module.within_target(loop, cost(1.0, 21.0)) == "100 steps"
    assert own_module.within_target(loop, cost(1.2, 21.0)) == "never"
    subject = zoo.Subject("lstm", "Recurrent", "walks", {}, {}, 12)
    assert "never" in zoo.cells(zoo.Row(subject, costs=(loop, cost(1.2, 21.0))))


def test_a_module_that_fails_is_a_row_with_the_reason():
    subject = zoo.Subject("lstm", "Recurrent", "walks", {"width": -1}, {}, 12)
    row = zoo.measured(subject, turns=1)
    assert row.stages == {"fit": "failed", **dict.fromkeys(zoo.PROBES, "not run")}
    (*_, reason) = zoo.printed([row], markdown=True)
    assert reason.startswith("- lstm: fit: InputError: model: zoo_modules.py:")


def small_net(name, **asked):
    spec = {"mlp": {"kind": "mlp", "hidden": [4, 3]}, "vit": {"kind": "vit"}}[name]
    spec = {**spec, **({"width": 4, "heads": 2} if name == "vit" else {})}
    make, shape = {
        "mlp": (lambda: kronecker_nets.mlp([5, 4, 3, 10], torch.nn.ReLU), (5,)),
        "vit": (lambda: kronecker_nets.vit(4, 2, 2), (3, 32, 32)),
    }[name]
    return kronecker_nets.posed(name, spec, make, shape, count=6, **asked)


def test_peers_are_given_the_modules_that_curvflow_has():
    spec = {"kind": "resnet", "widths": [2, 3], "blocks": [2, 2]}
    residual = kronecker_nets.posed(
        "resnet", spec, lambda: kronecker_nets.resnet([2, 3]), (3, 8, 8), count=2
    )
    for net in (small_net("mlp", loss="mse"), small_net("vit"), residual):
        weights = torch.as_tensor(net.weights["weights"])[None]
        found = net.problem.network.outputs(weights, net.inputs[None])[0]
        torch.testing.assert_close(found, net.module(net.inputs))


def test_factors_of_peers_are_compared_tensor_by_tensor():
    net = small_net("mlp", dtype=torch.float64)
    one = torch.ones(net.size)
    other = one.clone()
    other[-1] = 2
    assert peers_kronecker.difference(net, one, one) == 0
    expected = 1 / (10 + 3) ** 0.5  # the last bias, of 10 units
    assert peers_kronecker.difference(net, one, other) == pytest.approx(expected)


def test_a_peer_that_differs_ends_in_the_exit_code(monkeypatch, capsys):
    rows = [peers_kronecker.Row("net", "peer", "what", gap) for gap in (1e-9, 1e-5)]
    monkeypatch.setattr(torch, "set_default_dtype", lambda _: None)
    for found, code in ((rows[:1], 0), (rows, 1), ([], 1)):
        monkeypatch.setattr(peers_kronecker, "compared", lambda found=found: found)
        assert peers_kronecker.agree() == code
        assert f"{len(found)} rows" in capsys.readouterr().out


def test_factors_are_timed_with_their_memory_and_arithmetic(monkeypatch, capsys):
    systems = {"curvflow": peers_kronecker.Curvflow}
    monkeypatch.setattr(peers_kronecker, "SYSTEMS", systems)
    monkeypatch.setattr(peers_kronecker, "timed_net", lambda *_: small_net("mlp"))
    net = small_net("mlp")
    costs = peers_kronecker.costs(net, list(peers_kronecker.TASKS), ["curvflow"])
    monkeypatch.setattr(peers_kronecker, "apart", lambda *_: costs)
    monkeypatch.setattr(
        "sys.argv", ["peers_kronecker", "--nets", "mlp", "--turns", "1"]
    )
    assert peers_kronecker.main() == 0
    told = capsys.readouterr().out
    for task in peers_kronecker.TASKS:
        assert f"| mlp | {task} | " in told
    # The eigenvectors of each layer, and four products with them, two on either side.
    layers = [(4, 6), (3, 5), (10, 4)]
    flops = sum(4 * 100 * o * i * (o + i) + 9 * (o**3 + i**3) for o, i in layers)
    assert costs["exact curvflow"][1] == pytest.approx(flops / 1e9)


def test_decompositions_are_counted_by_the_cube_of_their_side():
    matrix = torch.eye(4)
    counted = peers_kronecker.arithmetic(lambda: torch.linalg.eigh(matrix))
    assert counted == pytest.approx(9 * 4**3 / 1e9)
    counted = peers_kronecker.arithmetic(lambda: matrix @ matrix)
    assert counted == pytest.approx(2 * 4**3 / 1e9)


def test_graphs_are_asked_about_and_answers_held_to_the_truth(monkeypatch, capsys):
    asked = ["--small", "--turns", "1", "--tasks", "spectrum,lowest,ws"]
    monkeypatch.setattr("sys.argv", ["peers_graphs", *asked])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert peers_graphs.main() == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert [row[4] for row in cells] == ["networkx", "scipy", "networkx"]
    assert all(float(row[column]) < 0.03 for row in cells for column in (3, 6))


def test_stages_of_large_graphs_are_measured_above_those_of_small_ones(
    monkeypatch, capsys
):
    runs = []

    def ran(stages, folder, threads):
        runs.append((list(stages), folder))
        return graph_scale.Run(2.0, 1.0, (3 if len(runs) % 2 else 5) << 30)

    monkeypatch.setattr(graph_scale, "run", ran)
    monkeypatch.setattr("sys.argv", ["graph_scale", "--small"])
    graph_scale.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    cases = {name: make(3000) for name, (make, _) in graph_scale.CASES.items()}
    told = [f"{case}: {name}" for case, stages in cases.items() for name in stages]
    assert [row[1] for row in cells] == told
    assert {tuple(row[4:6]) for row in cells} == {("5.00 GiB", "2.00 GiB")}
    assert runs[0][0] == runs[1][0] == ["graph"]
    assert runs[0][1] != runs[1][1] == runs[3][1]  # earlier stages are stored
    for case, stages in cases.items():
        made = graph_scale.CASES[case][0](300_000)
        for name in stages:
            small, large = (graph_scale.estimate(of, name) for of in (stages, made))
            assert 0 < small < large / 10, name


def test_a_graph_of_a_file_is_measured_in_its_stages(tmp_path, monkeypatch, capsys):
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{i} {i + 1}\n" for i in range(500)))
    run = graph_scale.Run(2.0, 1.0, 5 << 30)

    def ran(stages, folder, threads):
        return replace(run, peak=len(stages) * (len(str(stages)) << 20))

    monkeypatch.setattr(graph_scale, "run", ran)
    monkeypatch.setattr("sys.argv", ["graph_scale", "--file", str(edges)])
    graph_scale.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [
        "file: graph", "file: structure", "file: moments"
    ]  # fmt: skip
    stages = graph_scale.of_file(edges)
    assert all(graph_scale.estimate(stages, name) > 0 for name in stages)


def test_kernels_of_graphs_give_the_same_products(monkeypatch, capsys):
    rows = graph_kernels.drawn(50)
    block = torch.rand(50, 3, dtype=torch.float64)
    first, *others = graph_kernels.kernels(rows, block).values()
    for other in others:
        torch.testing.assert_close(torch.as_tensor(other()), first())
    arguments = ["graph_kernels", "--nodes", "50", "--turns", "1"]
    monkeypatch.setattr(
        "sys.argv", [*arguments, "--threads", str(torch.get_num_threads())]
    )
    graph_kernels.main()
    assert len(capsys.readouterr().out.splitlines()) == 2 + 12


def test_a_run_that_fails_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="graph: failed with 2"):
        graph_scale.run({"graph": {"use": "data.random_graph"}}, tmp_path, 1)


def test_a_system_that_is_off_is_marked_and_one_that_is_missing_listed():
    def fails():
        raise ImportError("no such package")

    calls = {"curvflow": lambda: 2.0, "peer": fails}
    task = peers_graphs.Task("one", calls, lambda answer: abs(answer - 1), 0.5, 3)
    found = peers_graphs.measured(task, 1)
    assert found["peer"] == "ImportError: no such package"
    row = peers_graphs.row(task, found)
    assert "1.0e+00 (off)" in row
    assert "| peer | failed |" in row


def test_isolated_nodes_and_densities_are_as_networkx_and_a_formula_have_them():
    W = sparse.csr_array(np.diag([1.0, 0, 0], 1) + np.diag([1.0, 0, 0], -1))
    node = Graph("it", "data.graph", {}, graph(W.indptr, W.indices, None), "")
    assert peers_graphs.Network(node).eigenvalues == pytest.approx([0, 0, 0, 2])
    apart = np.array([1.0, 0]), np.array([0, 1.0])
    assert peers_graphs.js_of(*apart, 0.1) == pytest.approx(math.log(2) ** 0.5)
