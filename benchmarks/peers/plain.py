"""A plain PyTorch loop; ASD as in the authors' code: teacher in every step, loss in eager mode."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .spec import Spec
from .stdio_protocol import Finished, RoundGate
from .workload import ASD_WEIGHT, CLIP_NORM, LR, TEMPERATURE, WEIGHT_DECAY, Data, Workload, build_model

Cohort = Callable[[int], Sequence[int]]  # of a round
Orders = Callable[[int, int], Iterable[Tensor]]  # of a client's samples in the epochs of a round


def asd_loss(student: Tensor, teacher: Tensor, y: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy and the adaptively weighted divergence, as in the paper."""
    log_s, log_q = F.log_softmax(teacher / TEMPERATURE, 1), F.log_softmax(student / TEMPERATURE, 1)
    divergence = F.kl_div(log_q, log_s, reduction="none", log_target=True).sum(1)
    log_u = F.log_softmax(teacher, 1)
    entropy = -(log_u.exp() * log_u).sum(1)
    weights = torch.softmax(-entropy - shares[y].log(), 0)
    return F.cross_entropy(student, y) + ASD_WEIGHT * (weights * divergence).sum()


def train(
    model: nn.Module, x: Tensor, y: Tensor, orders: Iterable[Tensor], workload: Workload, teacher: nn.Module | None
) -> int:
    """One client's local training; returns the number of steps."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, LR, weight_decay=WEIGHT_DECAY)
    shares = torch.bincount(y, minlength=workload.classes) / len(y)
    steps = 0
    for order in orders:
        for rows in order.split(workload.batch):
            inputs, targets = x[rows], y[rows]
            logits = model(inputs)
            if teacher is None:
                loss = F.cross_entropy(logits, targets)
            else:
                with torch.no_grad():
                    wisdom = teacher(inputs)
                loss = asd_loss(logits, wisdom, targets, shares)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
            optimizer.step()
            steps += 1
    return steps


class Loop:
    def __init__(
        self, workload: Workload, data: Data, cohort: Cohort | None = None, orders: Orders | None = None
    ) -> None:
        self.workload, self.data = workload, data
        self.model = build_model(workload)
        self._teacher = copy.deepcopy(self.model).eval() if workload.asd else None
        random = np.random.default_rng(0)
        self._cohort = cohort or (lambda _: random.choice(workload.clients, workload.cohort, replace=False).tolist())
        self._orders = orders or (lambda *_: random_orders(workload))

    def round(self, number: int) -> tuple[int, int]:
        """Client updates and local steps done; self.model goes from one round's average to the next."""
        start = copy.deepcopy(self.model.state_dict())
        mean = {name: torch.zeros_like(value) for name, value in start.items()}
        if self._teacher:
            self._teacher.load_state_dict(start)
        clients = self._cohort(number)
        sizes = [len(self.data.targets[k]) for k in clients]
        steps = 0
        self.model.train()
        for k, size in zip(clients, sizes, strict=True):
            self.model.load_state_dict(start)
            x, y = self.data.inputs[k], self.data.targets[k]
            steps += train(self.model, x, y, self._orders(number, k), self.workload, self._teacher)
            for name, value in self.model.state_dict().items():
                mean[name].add_(value, alpha=size / sum(sizes))
        self.model.load_state_dict(mean)
        return len(clients), steps


def random_orders(workload: Workload) -> Iterable[Tensor]:
    return (torch.randperm(workload.samples) for _ in range(workload.epochs))


def main() -> None:
    spec = Spec.from_argv()
    torch.set_num_threads(spec.setting["threads"])
    gate = RoundGate(torch=torch.__version__)
    loop = Loop(spec.workload, spec.data())
    number = 0
    while True:
        updates, steps = loop.round(number)
        number += 1
        gate.round_done(updates, steps, lambda: loop.data.test_loss(loop.model))


if __name__ == "__main__":
    with contextlib.suppress(Finished):
        main()
