"""Lightning: the cache is built when training begins, the loss is one line of the training step.

python lightning_module.py
"""

import copy
import logging
import warnings

import lightning
import torch
from task import compare
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import fedasd_fast as fa


class Client(lightning.LightningModule):
    def __init__(self, global_model: nn.Module, asd_weight: float) -> None:
        super().__init__()
        self.model = copy.deepcopy(global_model)
        self.loss_fn = fa.ASDLoss(asd_weight)

    def on_train_start(self) -> None:
        """The model is on its device and still the global one: it is the teacher."""
        self.cache = fa.TeacherCache.build(self.model, self.trainer.train_dataloader)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        x, y, rows = batch
        return self.loss_fn(self.model(x), self.cache[rows], y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.1)


def train(global_model: nn.Module, dataset: Dataset, asd_weight: float) -> nn.Module:
    client = Client(global_model, asd_weight)
    trainer = lightning.Trainer(
        max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(client, DataLoader(fa.with_rows(dataset), batch_size=20, shuffle=True))
    return client.model


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    compare(train)
