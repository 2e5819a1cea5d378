"""Accuracy on the clients' own test data, with each client's own BatchNorm where that stays with it (FedBN)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..common.schema import ConfigError
from ..data.federated import Samples
from ..data.host_to_device import send
from ..data.transform import to_float
from .client.flat_model import by_position, channels_last
from .context import Context
from .distributed.process_group import ProcessGroup
from .label_accuracy import sampled_clients, spread


class ClientTests:
    def __init__(self, context: Context, group: ProcessGroup) -> None:
        """Each rank looks after the clients whose records it keeps."""
        self._context, self._group = context, group
        data = context.experiment.data
        clients = sampled_clients(data.num_clients).tolist()
        tests = {k: samples for k in clients if (samples := data.client_test(k)) is not None and samples.labels}
        if not tests:
            raise ConfigError(
                "client_test_accuracy = true, but the data have no test samples of each client; give them as "
                "test_users of fa.data.from_arrays or as client_tests of from_clients or from_torch"
            )
        self._tests = {k: samples for k, samples in tests.items() if context.shard.owner(k) == group.rank}

    def summary(self, vector: Tensor) -> dict[str, float]:
        """Of a model [N]: mean, mean of the worst tenth and standard deviation over clients, in percent."""
        context, own, found = self._context, self._context.trainer.model, {}
        layout, records = context.experiment.layout, context.records
        with own.holding(vector) as module, torch.no_grad():
            module.eval()
            for k, samples in self._tests.items():
                if layout.local is not None:
                    record = records.read(k)
                    upload = context.initial if record is None else record["upload"].to(vector.device)
                    own.whole.copy_(layout.personal(vector, upload))
                found[k] = 100.0 * self._right(samples) / samples.labels
        together = {k: accuracy for part in self._group.gather(found) for k, accuracy in part.items()}
        return spread(torch.tensor([together[k] for k in sorted(together)], dtype=torch.float64))

    def _right(self, samples: Samples) -> int:
        """How many samples, or positions of sequences, the model as it stands has right."""
        experiment, model, right = self._context.experiment, self._context.trainer.model, 0
        data, like = experiment.data, model.vector
        parts = (part.split(experiment.config.eval_batch_size) for part in (samples.inputs, samples.targets))
        for x, y in zip(*parts, strict=True):
            inputs = channels_last(to_float(send(x, like.device), data.mean, data.std, like.dtype))
            with model.autocast():
                logits = by_position(model.module(inputs))
            right += int((logits.argmax(1) == send(y, like.device).flatten()).sum())
        return right
