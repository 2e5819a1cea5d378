"""Hugging Face Trainer: a subclass whose compute_loss is ASD.

    python hugging_face.py

A small vision transformer, made from its configuration alone: nothing is downloaded.
"""

import copy
from typing import Any

import torch
from task import CLASSES, client_dataset, pixels
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.utils import logging

import fedasd_fast as fa

ASD_WEIGHT = 3.0


class Images(Dataset):
    """Samples as Trainer wants them: dicts with `labels`."""

    def __init__(self, images: torch.Tensor, targets: torch.Tensor) -> None:
        self.images, self.targets = images.view(-1, 1, 8, 8), targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": self.targets[index]}


class ASDTrainer(Trainer):
    """The model that it is given is also the teacher: it runs once, before the first step."""

    def __init__(self, model: ViTForImageClassification, train_dataset: Dataset, asd_weight: float, **rest: Any):
        numbered = fa.with_rows(train_dataset)  # samples get the key "rows"
        super().__init__(model=model, train_dataset=numbered, **rest)
        self.cache = fa.TeacherCache.build(self.model, numbered)  # knows the outputs of Hugging Face models
        self.asd_weight = asd_weight

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        rows, labels = inputs.pop("rows"), inputs.pop("labels")
        outputs = model(**inputs)
        loss = fa.asd_objective(outputs.logits, self.cache[rows], labels, None, self.asd_weight)
        return (loss, outputs) if return_outputs else loss


def arguments(**changes: Any) -> TrainingArguments:
    return TrainingArguments(
        output_dir="unused", save_strategy="no", report_to="none", use_cpu=True, seed=0, disable_tqdm=True,
        logging_strategy="no", per_device_train_batch_size=32, learning_rate=2e-3,
        remove_unused_columns=False,  # or the key "rows" would be removed
        **changes,
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: ViTForImageClassification) -> float:
    test = Images(*pixels("test"))
    return 100 * (model.eval()(pixel_values=test.images).logits.argmax(1) == test.targets).double().mean().item()


def main() -> None:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    global_model = ViTForImageClassification(
        ViTConfig(image_size=8, patch_size=2, num_channels=1, hidden_size=32, num_hidden_layers=2,
                  num_attention_heads=2, intermediate_size=64, num_labels=CLASSES)
    )  # fmt: skip
    common = Images(*(x[:500] for x in pixels("train")))
    Trainer(global_model, arguments(num_train_epochs=25), train_dataset=common).train()
    results = [accuracy(global_model)]
    client = Images(*client_dataset().tensors)
    for asd_weight in (0.0, ASD_WEIGHT):
        trainer = ASDTrainer(copy.deepcopy(global_model), client, asd_weight, args=arguments(num_train_epochs=3))
        trainer.train()
        results.append(accuracy(trainer.model))
    print("global model {:.1f} %, client {:.1f} %, with ASD {:.1f} %".format(*results))


if __name__ == "__main__":
    main()
