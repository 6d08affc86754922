"""Monitors in the trainers of other libraries, where these are installed."""

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.errors import RequestError
from tests.flows.monitor.loops import monitored, problem, small


def test_a_library_that_is_missing_is_named(monkeypatch):
    monitor = monitored(small())
    for name in ("lightning", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)
    with pytest.raises(RequestError, match="pip install lightning"):
        monitor.lightning()
    with pytest.raises(RequestError, match="pip install transformers"):
        monitor.hf()


class Fake:
    """What is called of Lightning, and a trainer of it."""

    class Callback:
        pass

    is_global_zero = True

    def __init__(self, step, accumulated):
        self.global_step, self.accumulate_grad_batches = step, accumulated


@pytest.mark.parametrize("accumulated", [1, 2, 3])
@pytest.mark.parametrize("resumed", [0, 4])
def test_the_loss_of_a_step_of_lightning_is_the_mean_of_its_batches(
    accumulated, resumed, monkeypatch
):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", Fake)
    monitor = monitored(small(), every=1, probes=["update_ratio"])
    callback, trainer = monitor.lightning(), Fake(resumed, accumulated)
    callback.on_train_start(trainer, None)
    losses = torch.rand(4, accumulated, generator=torch.Generator().manual_seed(0))
    for of_step in losses:
        for number, loss in enumerate(of_step):
            # It divides them, and counts before it calls.
            trainer.global_step += number == accumulated - 1
            outputs = {"loss": loss / accumulated}
            callback.on_train_batch_end(trainer, None, outputs, None, number)
    dataset = monitor.to_xarray()
    assert dataset.step.values.tolist() == [resumed + n for n in (1, 2, 3, 4)]
    np.testing.assert_allclose(dataset.step_loss, losses.mean(1), rtol=1e-6)


def test_monitors_of_one_trainer_have_places_apart(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", Fake)
    monitor = monitored(small())
    keys = [monitor.lightning(name).state_key for name in ("", "first", "second")]
    assert keys[0] == "MonitorCallback"
    assert len(set(keys)) == 3


def assert_same_weights(bare, watched):
    """A monitor changes nothing of the training."""
    for weights, others in zip(bare.parameters(), watched.parameters(), strict=True):
        assert torch.equal(weights, others)


@pytest.mark.filterwarnings("ignore")
def test_lightning_measures_keeps_and_goes_on(tmp_path):
    pl = pytest.importorskip("lightning.pytorch")

    class Task(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = small(), []

        def training_step(self, batch, _number):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(task, monitor, steps, accumulated=1, **more):
        trainer = pl.Trainer(
            max_steps=steps,
            accumulate_grad_batches=accumulated,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            callbacks=[] if monitor is None else [monitor.lightning()],
        )
        loader = DataLoader(TensorDataset(*problem()), batch_size=8)
        trainer.fit(task, loader, **more)
        return trainer

    def watched(task):
        return monitored(task.net, every=4)

    bare, task = Task(), Task()
    fit(bare, None, 18)
    whole = watched(task)
    fit(task, whole, 18)
    assert_same_weights(bare, task)
    dataset = whole.to_xarray()
    assert dataset.step.values.tolist() == [4, 8, 12, 16]
    assert np.isfinite(dataset.step_loss).all()

    first = Task()
    trainer = fit(first, watched(first), 12)  # two whole epochs
    trainer.save_checkpoint(tmp_path / "kept.ckpt")
    second = Task()
    again = watched(second)
    fit(second, again, 16, ckpt_path=tmp_path / "kept.ckpt")
    # What Lightning trains on after a checkpoint is another order of batches.
    kept, times = again.to_xarray(), ["seconds", "loop_seconds"]
    assert kept.step.values.tolist() == [4, 8, 12, 16]
    before = [d.isel(step=slice(3)).drop_vars(times) for d in (kept, dataset)]
    assert before[0].identical(before[1])
    assert float(kept.trace[3]) == watched(second).measure()["trace"]

    task = Task()
    monitor = watched(task)
    fit(task, monitor, 8, accumulated=2)
    losses = torch.tensor(task.losses).reshape(-1, 2).mean(1)
    assert monitor.to_xarray().step_loss.values == pytest.approx(losses[[3, 7]])


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_hugging_face_measures_and_goes_on(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokens = torch.randint(20, (32, 8), generator=torch.Generator().manual_seed(0))

    def made():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2
        )
        return transformers.GPT2LMHeadModel(config)

    def loss(logits, batch):
        wanted = batch["labels"][:, 1:].flatten()
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), wanted)

    def fit(model, monitor, steps, **more):
        args = transformers.TrainingArguments(
            output_dir=str(tmp_path / "run"),
            max_steps=steps,
            per_device_train_batch_size=4,
            save_steps=5,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        rows = [{"input_ids": row, "labels": row} for row in tokens]
        trainer = transformers.Trainer(
            model=model,
            args=args,
            train_dataset=rows,
            callbacks=[] if monitor is None else [monitor.hf()],
        )
        trainer.train(**more)

    def watched(model):
        return curvflow.Monitor(
            model,
            loss,
            {"input_ids": tokens[:16], "labels": tokens[:16]},
            forward=lambda net, batch: net(batch["input_ids"]).logits,
            every=4,
            budget=None,
            store=tmp_path / "store",
        )

    bare, model = made(), made()
    fit(bare, None, 10)
    monitor = watched(model)
    fit(model, monitor, 10)
    assert_same_weights(bare, model)
    dataset = monitor.to_xarray()
    assert dataset.step.values.tolist() == [4, 8]
    assert set(dataset.outcome.values) == {"ok"}

    again = made()
    monitor = watched(again)
    fit(again, monitor, 13, resume_from_checkpoint=str(tmp_path / "run/checkpoint-5"))
    dataset = curvflow.read_monitor(tmp_path / "store")
    assert dataset.step.values.tolist() == [4, 8, 12]
    assert dataset.update_steps.values.tolist() == [4, 2, 4]
