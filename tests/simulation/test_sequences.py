"""Sequences with a target at each position: the loss over all of them, for every executor, with ASD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedasd_fast as fa
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config, from_dict
from fedasd_fast.data import Dataset, PartitionedData, Samples
from fedasd_fast.simulation.context import build_context
from fedasd_fast.simulation.executors.autotune import choose_executor

from .small_runs import assert_same, contents

CLASSES, LENGTH = 5, 6
PLAY = "\n\n".join(f"{name}:\n{words}" for _ in range(3) for name, words in (
    ("Anna", "the cat sat on the mat and the cat ate"), ("BERT", "a dog, a log, a frog; a bog"),
    ("First Cat", "miaow miaow miaow"),
))  # fmt: skip


def sequences(sizes: tuple[int, ...] = (4, 7, 3), seed: int = 0) -> PartitionedData:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x, y = (torch.from_numpy(rng.integers(0, CLASSES, (n, LENGTH))) for _ in range(2))
    y[torch.from_numpy(rng.random((n, LENGTH)) < 0.3)] = -100
    y[0] = -100  # a sample without any target
    dataset = Dataset("toy", Samples(x, y), Samples(x[:5], y[:5]), CLASSES)
    return PartitionedData(dataset, np.split(np.arange(n), np.cumsum(sizes)[:-1]))


def config(data: PartitionedData, **changes: Any) -> Config:
    settings: dict[str, Any] = {
        "model": "char_lstm", "model_args": {"embedding": 3, "hidden": 4, "layers": 1}, "method": "fedavg+asd",
        "asd": {"weight": 2.0}, "clients": data.num_clients, "participation": 1.0, "sampling": "fixed", "rounds": 2,
        "local_epochs": 2, "batch_size": 2, "executor": "serial", "dtype": "float64",
    }  # fmt: skip
    return from_dict({**settings, **changes})


class TorchLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(CLASSES, 3), nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lstm(self.tokens(x))[0])
        return logits


def by_hand(
    model: nn.Module, data: PartitionedData, *, asd: bool, lr: float, steps: int, weight: float
) -> list[Tensor]:
    """Full-batch steps of client 0, position by position, as the paper writes the loss."""
    samples = data.client(0)
    rows = [(i, t) for i in range(len(samples)) for t in range(LENGTH) if samples.targets[i, t] != -100]
    labels = [int(samples.targets[i, t]) for i, t in rows]
    proportion = [labels.count(c) / len(labels) for c in range(CLASSES)]
    teacher = [model(samples.inputs)[i, t].detach() for i, t in rows]
    entropies = [-(z.softmax(0) * z.log_softmax(0)).sum() for z in teacher]
    weights = [(-h).exp() / proportion[y] for h, y in zip(entropies, labels, strict=True)]
    alphas = [w / torch.stack(weights).sum() for w in weights]
    for _ in range(steps):
        logits = model(samples.inputs)
        z = [logits[i, t] for i, t in rows]
        loss = sum(-row.log_softmax(0)[y] for row, y in zip(z, labels, strict=True)) / len(rows)
        if asd:
            for alpha, own, told in zip(alphas, z, teacher, strict=True):
                s, q = (told / 2).softmax(0), (own / 2).softmax(0)
                loss = loss + weight * alpha * (s * (s / q).log()).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= lr * gradient
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("executor", ["serial", "stacked"])
@pytest.mark.parametrize("method", ["fedavg", "fedavg+asd"])
def test_steps_of_an_lstm_are_those_of_plain_pytorch(executor: str, method: str) -> None:
    data = sequences((4,))
    plain = {"lr": 0.5, "weight_decay": 0.0, "clip_norm": None}
    settings = config(data, method=method, optimizer=plain, rounds=1, local_epochs=3, batch_size=4, executor=executor,
                      clients_at_once=2 if executor == "stacked" else 0)  # fmt: skip
    found = fa.simulate(settings, data=data)
    start = fa.simulate(settings.replace(rounds=0), data=data).module("cloud").double()
    expected = by_hand(start, data, asd=method.endswith("+asd"), lr=0.5, steps=3, weight=2.0)
    for one, other in zip(found.module("cloud").parameters(), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", ["char_lstm", "char_transformer"])
@pytest.mark.parametrize("method", ["fedavg+asd", "fedlc+asd", "fedsam", "fedntd", "fedsol", "feddisco+asd"])
def test_stacked_clients_train_as_one_by_one(model: str, method: str) -> None:
    data = sequences()
    small = {"char_lstm": {"embedding": 3, "hidden": 4}, "char_transformer": {"width": 8, "heads": 2, "depth": 1}}
    both = [
        fa.simulate(config(data, model=model, model_args=small[model], method=method, executor=executor), data=data)
        for executor in ("serial", "stacked")
    ]
    torch.testing.assert_close(both[0].models["cloud"], both[1].models["cloud"], rtol=0, atol=1e-10)
    assert both[0].metrics[-1]["acc_cloud"] == both[1].metrics[-1]["acc_cloud"]


def test_a_teacher_that_is_recomputed_gives_the_same() -> None:
    data = sequences()
    cached, recomputed = (fa.simulate(config(data, teacher=teacher), data=data) for teacher in ("cache", "recompute"))
    assert torch.equal(cached.models["cloud"], recomputed.models["cloud"])


def test_accuracy_and_loss_are_over_valid_positions() -> None:
    data = sequences()
    result = fa.simulate(config(data), data=data)
    logits, y = result.module("cloud")(data.test.inputs), data.test.targets
    valid = y != -100
    right = (logits.argmax(-1) == y)[valid].double().mean()
    assert result.metrics[-1]["acc_cloud"] == pytest.approx(100 * float(right))
    assert data.test.labels == int(valid.sum())


def test_label_counts_are_of_valid_positions() -> None:
    data = sequences()
    for k in range(data.num_clients):
        labels = [y for y in data.client(k).targets.flatten().tolist() if y != -100]
        assert data.label_counts(k).tolist() == [labels.count(c) for c in range(CLASSES)]
    together = data.cohort_label_counts(np.array([2, 0]))
    assert torch.equal(together, torch.stack([data.label_counts(2), data.label_counts(0)]))


def test_torchs_lstm_trains_one_by_one_and_says_why() -> None:
    data = sequences()
    with pytest.raises(ConfigError, match=r"layer lstm \(LSTM\) has no vectorised form in torch.*executor = serial"):
        fa.simulate(config(data, executor="stacked"), data=data, model=TorchLSTM())
    from fedasd_fast.simulation.inputs import Inputs

    settings = config(data, executor="auto", workers=1)
    chosen, told = choose_executor(build_context(settings, Inputs(data, TorchLSTM())))
    assert chosen.executor == "serial"
    assert "layer lstm (LSTM) has no vectorised form" in told
    assert fa.simulate(settings.replace(executor="serial"), data=data, model=TorchLSTM()).metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": "round"}, "augment = round, but toy has no images; use augment = none"),
        ({"method": "moon"}, "method = moon has a local_loss, but toy has sequences with a target at each position"),
        ({"model": "mlp", "model_args": {}}, r"does not take token ids \[2, 6\]"),
        ({"model_args": {"hidden": 0}}, "model_args.hidden = 0; expected a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_sequences_is_refused(changes: dict[str, Any], message: str) -> None:
    data = sequences()
    with pytest.raises(ConfigError, match=message):
        fa.simulate(config(data, **changes), data=data)


def text_settings(path: Path, **changes: Any) -> Config:
    return from_dict({
        "dataset": "text", "dataset_args": {"path": str(path), "split_by": "speaker", "sequence_length": 8},
        "partition": "natural", "clients": 3, "participation": 0.7, "model": "char_lstm",
        "model_args": {"embedding": 3, "hidden": 8, "layers": 1}, "method": "feddyn+asd", "asd": {"weight": 2.0},
        "rounds": 4, "local_epochs": 1, "batch_size": 2, "checkpoint_every": 2, "executor": "serial", **changes,
    })  # fmt: skip


def test_a_resumed_run_has_the_same_bits_on_any_number_of_workers(tmp_path: Path) -> None:
    play = tmp_path / "play.txt"
    play.write_text(PLAY)
    for name, changes in {
        "whole": {},
        "cut": {"rounds": 2},
        "workers": {"executor": "processes", "workers": 2},
    }.items():
        fa.simulate(text_settings(play, out=str(tmp_path / name), threads=1, **changes))
    fa.resume(tmp_path / "cut", {"rounds": 4})
    whole = contents(tmp_path / "whole")
    assert_same(whole, contents(tmp_path / "cut"))
    assert whole["metrics"] == contents(tmp_path / "workers")["metrics"]
