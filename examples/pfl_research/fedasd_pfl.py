"""FedASD for pfl: federated averaging whose users distil from the model that they were sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.context import CentralContext
from pfl.data.pytorch import PyTorchDataDataset
from pfl.internal.bridge.pytorch.utils import clip_norm_and_update
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from torch import nn, optim

import fedasd_fast as fa


@dataclass(frozen=True)
class FedASDParams(NNAlgorithmParams):
    """asd_weight: lambda, the weight of ASD beside the cross-entropy; 0 is federated averaging."""

    asd_weight: float


class FedASD(FederatedAveraging):
    """A user's dataset is a PyTorchDataDataset of `fa.with_rows(dataset)`, which may shuffle: samples find their rows.

    The model's forward gives logits; its `loss` is not used for training.
    """

    def train_one_user(
        self,
        initial_model_state: MappedVectorStatistics,
        model: PyTorchModel,
        user_dataset: PyTorchDataDataset,
        central_context: CentralContext,
    ) -> tuple[MappedVectorStatistics, Metrics]:
        # The model is still the global one: it runs once, and its outputs serve all epochs.
        cache = fa.TeacherCache.build(model.pytorch_model, user_dataset.raw_data)
        loss_fn = fa.ASDLoss(central_context.algorithm_params.asd_weight)
        model.do_multiple_epochs_of(
            user_dataset, central_context.model_train_params, _train_step, cache=cache, loss_fn=loss_fn
        )
        return model.get_model_difference(initial_model_state), Metrics()


def _train_step(
    net: nn.Module,
    optimizer: optim.Optimizer,
    batch: tuple[Any, ...],
    train_kwargs: Mapping[str, Any],
    step: Any,
    cache: fa.TeacherCache,
    loss_fn: fa.ASDLoss,
) -> None:
    """As pfl's own step of SGD, with another loss: mixed precision and gradient clipping work as usual."""
    if step.grad_accumulation_state.accumulation_steps > 1:
        raise ValueError("grad_accumulation_steps > 1: the parts of a batch need alpha_normalizer, see the README")
    x, y, rows = batch
    with step.amp_context:
        loss = loss_fn(net(x), cache[rows], y)
    (loss if step.grad_scaler is None else step.grad_scaler.scale(loss)).backward()
    step.grad_accumulation_state.increment()
    clip_norm_and_update(net, optimizer, step)
