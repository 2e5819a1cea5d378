"""Half precision: local training and evaluation compute in it; parameters, update, sums and analyses stay float32."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedasd_fast import resume, simulate
from fedasd_fast.algorithms import Batch
from fedasd_fast.analysis.loaded_run import load_run
from fedasd_fast.callbacks import Callback
from fedasd_fast.common.randomness import Stream, torch_seeded
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config
from fedasd_fast.loss import reference
from fedasd_fast.loss.label_prior import label_proportions
from fedasd_fast.simulation import SimulationError
from fedasd_fast.simulation.client.flat_model import FlatModel
from fedasd_fast.simulation.client.linear_chain import LinearChain
from fedasd_fast.simulation.client.samples import LocalSamples
from fedasd_fast.simulation.client.stacked_model import StackedModel, VmappedNetwork
from fedasd_fast.simulation.client.update import train_client
from fedasd_fast.simulation.cohort import client_tasks
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.evaluation import evaluate
from fedasd_fast.simulation.executors.stacked import StackedExecutor
from fedasd_fast.simulation.state import first
from fedasd_fast.simulation.storage import checkpoint
from fedasd_fast.simulation.system import half_precision
from fedasd_fast.simulation.system.tf32 import tf32
from tests.simulation.small_runs import assert_same, contents, small_config

METHODS = ["fedavg", "fedavg+asd", "fedprox+asd", "feddyn+asd", "fedsam+asd", "fedntd"]
HOOKED = ["fedcm", "fedlc+asd", "fedrs", "fedsmoo+asd", "fedlesam", "fedinit", "fedgmt", "fednova"]


def config(**changes: Any) -> Config:
    return small_config(**{"precision": "bfloat16", "rounds": 2, "local_epochs": 2, "threads": 1, **changes})


class Seen(nn.Module):
    """A linear layer that keeps the types of what it computes."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(input_shape[0], num_classes)
        self.types: list[tuple[bool, torch.dtype]] = []

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x)
        self.types.append((self.training, logits.dtype))
        return logits


def one_client(settings: Config) -> tuple[Any, Any, Any]:
    """The context, what the server sends, and the first task of the first round."""
    context = build_context(settings)
    experiment = context.experiment
    server = experiment.server(first(settings, experiment.method, context.initial))
    return context, server, client_tasks(experiment, 0)[0]


def test_what_computes_in_half_precision() -> None:
    settings = config(method="fedavg+asd").replace(model="tests.simulation.test_precision:Seen")
    context, server, task = one_client(settings)
    flat = context.trainer.model
    flat.module.types.clear()
    update = train_client(context.trainer, context.records, server, task)
    evaluate(flat, update.run.end, context.experiment.data, 25)
    trained, tested = ([dtype for training, dtype in flat.module.types if training == when] for when in (True, False))
    assert trained == [torch.bfloat16] * len(update.run.losses)
    assert tested == [torch.bfloat16] * (1 + 2)  # the teacher, and two batches of the test set
    assert {flat.vector.dtype, flat.gradient.dtype, update.run.losses.dtype} == {torch.float32}
    assert {p.dtype for p in flat.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("method", ["fedavg", "fedavg+asd"])
def test_a_client_as_written_out(method: str) -> None:
    """Against a loop of torch's own: autocast, the readable loss in float32, plain SGD.  A stale copy of the parameters
    in bfloat16 would not move at all."""
    settings = config(method=method, optimizer={"weight_decay": 0.01, "clip_norm": None})
    context, server, task = one_client(settings)
    flat, data = context.trainer.model, context.experiment.data
    module = copy.deepcopy(flat.module)
    ours = train_client(context.trainer, context.records, server, task).run
    samples = LocalSamples(settings, data, 0, task.client, flat.vector)
    prior = label_proportions(samples.targets, data.num_classes)

    def logits(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found: Tensor = module(x)
        assert found.dtype == torch.bfloat16
        return found.float()

    with torch.no_grad():
        teacher = logits(samples.inputs)
    optimizer = torch.optim.SGD(module.parameters(), lr=server.lr, weight_decay=0.01)
    losses = []
    for _ in range(task.epochs):
        for rows in samples.order().split(settings.batch_size):
            student, y = logits(samples.inputs[rows]), samples.targets[rows]
            if method == "fedavg":
                loss = F.cross_entropy(student, y)
            else:
                loss = reference.asd_objective(student, teacher[rows], y, prior, settings.asd.weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    torch.testing.assert_close(ours.losses, torch.stack(losses), rtol=2e-3, atol=0)
    moved = ours.end - server.model
    theirs = torch.cat([p.detach().reshape(-1) for p in module.parameters()]) - server.model
    assert float(torch.linalg.vector_norm(moved - theirs) / torch.linalg.vector_norm(theirs)) < 0.01


@pytest.mark.parametrize("method", METHODS)
def test_close_to_float32_and_not_the_same(method: str) -> None:
    half, whole = (simulate(config(method=method, precision=p)) for p in ("bfloat16", "float32"))
    for name, model in half.models.items():
        change = whole.models[name] - build_context(config()).initial
        error = torch.linalg.vector_norm(model - whole.models[name]) / torch.linalg.vector_norm(change)
        assert 1e-6 < float(error) < 0.05
        assert model.dtype == torch.float32


IMAGES = {"shape": [3, 12, 12], "classes": 5, "samples_per_client": 9, "test_samples": 20}


@pytest.mark.parametrize(
    ("method", "model", "network"),
    [(method, None, LinearChain) for method in [*METHODS, *HOOKED]]
    + [("fedavg+asd", "tests.simulation.client.test_stacked:Small", VmappedNetwork)],
)
def test_stacked_clients(method: str, model: str | None, network: type, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(method=method, size_sigma=0.5, rounds=1)
    if model:
        settings = settings.replace(model=model, synthetic=IMAGES, augment="epoch", teacher="recompute")
    context = build_context(settings)
    stack = StackedModel(context.trainer.model, *torch.zeros(2, 3, len(context.initial)))
    assert type(stack._network) is network
    assert stack.forward(torch.zeros(3, 4, *context.experiment.data.input_shape)).dtype == torch.bfloat16
    monkeypatch.setattr(StackedExecutor, "train_one", None)  # what it would fall back on, without a word
    serial, stacked, whole = (
        simulate(settings.replace(executor=executor, precision=precision)).models["sel"] - context.initial
        for executor, precision in (("serial", "bfloat16"), ("stacked", "bfloat16"), ("stacked", "float32"))
    )
    error, usual = (
        float(torch.linalg.vector_norm(x - whole) / torch.linalg.vector_norm(whole)) for x in (stacked, serial)
    )
    assert 1e-6 < error < 0.05
    assert error < 1.5 * usual + 0.005  # no further from float32 than autocast is


def test_frozen_models_of_a_local_loss_compute_in_it() -> None:
    """MOON compares features of the model in training with those of frozen models: all of one precision."""
    context, server, task = one_client(config(method="moon", rounds=1))
    method, seen = context.experiment.method, []

    def local_loss(batch: Batch) -> Tensor:
        outputs = batch.outputs, *batch.frozen.values()
        seen.append({(one.logits.dtype, one.features.dtype) for one in outputs})
        return type(method).local_loss(method, batch)

    object.__setattr__(method, "local_loss", local_loss)
    train_client(context.trainer, context.records, server, task)
    assert seen
    assert all(types == {(torch.bfloat16, torch.bfloat16)} for types in seen)


@pytest.mark.parametrize("at_once", [1, 3])
def test_workers_do_not_change_the_bits(at_once: int, tmp_path: Path) -> None:
    settings = config(method="feddyn+asd", checkpoint_every=1, clients_at_once=at_once)
    simulate(settings.replace(executor="serial" if at_once == 1 else "stacked", out=str(tmp_path / "one")))
    expected = contents(tmp_path / "one")
    for workers in (1, 2):
        out = tmp_path / str(workers)
        simulate(settings.replace(executor="processes", workers=workers, out=str(out)))
        assert_same(contents(out), expected)


def test_resumed_as_whole(tmp_path: Path) -> None:
    settings = config(method="fedavg+asd", rounds=4, out=str(tmp_path / "whole"))
    simulate(settings)
    simulate(settings.replace(rounds=2, out=str(tmp_path / "parts")))
    resume(tmp_path / "parts", {"rounds": 4})
    assert_same(contents(tmp_path / "parts"), contents(tmp_path / "whole"))


def test_a_run_from_before_the_setting_means_float32(tmp_path: Path) -> None:
    settings = config(precision="float32", rounds=3, checkpoint_every=1)
    simulate(settings.replace(out=str(tmp_path / "whole")))
    out = tmp_path / "old"
    simulate(settings.replace(rounds=2, out=str(out)))
    file = out / "config.yaml"
    file.write_text(without_precision(file.read_text()))
    for kept in reversed(checkpoint.load(out / "checkpoint")):
        content = kept | {"config": without_precision(kept["config"])}
        checkpoint.save(out / "checkpoint", kept["state"]["round"], content)
    assert resume(out, {"rounds": 3}).config.precision == "float32"
    assert_same(contents(out), contents(tmp_path / "whole"))


def without_precision(text: str) -> str:
    found = [line for line in text.splitlines(keepends=True) if not line.startswith("precision:")]
    assert len(found) == len(text.splitlines()) - 1
    return "".join(found)


def test_a_run_keeps_its_precision(tmp_path: Path) -> None:
    simulate(config(rounds=1, out=str(tmp_path / "run")))
    with pytest.raises(SimulationError, match=r"precision = 'float32' \(was 'bfloat16'\)"):
        resume(tmp_path / "run", {"rounds": 2, "precision": "float32"})


def test_the_fastest_executor_is_looked_for_in_this_precision() -> None:
    assert simulate(config(executor="auto", workers=1)).config.precision == "bfloat16"


def test_analyses_compute_in_float32(tmp_path: Path) -> None:
    simulate(config(out=str(tmp_path / "run")))
    run = load_run(tmp_path / "run")
    assert run.context.trainer.model.half is None
    assert run.context.experiment.config.precision == "float32"


def test_half_precision_of_float64_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dtype = float64.*set dtype = float32"):
        config(dtype="float64")


class Listed(nn.Module):
    """Layers of each kind, whose outputs' types are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 5)
        self.types: dict[str, torch.dtype] = {}
        for name, layer in self.named_children():
            layer.register_forward_hook(lambda _, __, y, name=name: self.types.update({name: y.dtype}))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(torch.relu(self.norm(self.convolution(x))).mean((2, 3)))
        return logits


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_every_product_of_a_vectorised_network(half: torch.dtype) -> None:
    with torch_seeded(0, Stream.INIT):
        model = FlatModel(Listed(), half=half)
    stack = StackedModel(model, *model.vector.expand(2, 3, -1).clone())
    x = torch.randn(3, 2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    found = stack.forward(x)
    assert model.module.types == {"convolution": half, "norm": torch.float32, "linear": half}
    stack.backward(torch.ones_like(found))
    model.forward(x[1])
    model.backward(torch.ones_like(found[1]))
    torch.testing.assert_close(stack.gradient[1], model.gradient, rtol=0.05, atol=0.05)


def test_a_machine_without_bfloat16_is_warned_with_a_figure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(half_precision, "has_instructions", lambda precision: False)
    simulate(config(rounds=1, precision="float32"))
    assert not caplog.messages
    simulate(config(rounds=1))
    (said,) = caplog.messages
    assert re.search(r"this CPU has no instructions.*takes [\d.]+ ms in bfloat16, [\d.]+ ms in float32: [\d.]+ x", said)


def tf32_flags() -> list[str]:
    return [torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision]


class Flags(Callback):
    def on_round(self, metrics: Any) -> None:
        self.found = tf32_flags()


def test_tf32_is_set_for_a_run_only() -> None:
    before, flags = tf32_flags(), Flags()
    for allowed, expected in ((None, before), (False, ["ieee"] * 2)):
        simulate(config(rounds=1, tf32=allowed), callbacks=[flags])
        assert flags.found == expected
        assert tf32_flags() == before
    with tf32(True):
        assert tf32_flags() == ["tf32"] * 2
    assert tf32_flags() == before
    with pytest.raises(ConfigError, match="tf32 = true with device = cpu"):
        config(tf32=True)
