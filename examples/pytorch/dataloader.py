"""A DataLoader that shuffles, without augmentation and with it.

python dataloader.py
"""

import copy

import torch
from task import compare
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import fedasd_fast as fa


def train(global_model: nn.Module, dataset: Dataset, asd_weight: float) -> nn.Module:
    """The teacher runs once.  `with_rows` numbers the samples; by the numbers batches find their rows in the cache."""
    numbered = fa.with_rows(dataset)
    cache = fa.TeacherCache.build(global_model, numbered)  # label proportions too are those of the dataset
    loss_fn = fa.ASDLoss(asd_weight)
    model = copy.deepcopy(global_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        for x, y, rows in DataLoader(numbered, batch_size=20, shuffle=True):
            optimizer.zero_grad()
            loss_fn(model(x), cache[rows], y).backward()
            optimizer.step()
    return model


def shifted(images: Tensor) -> Tensor:
    """Random views: the whole batch moves by up to one pixel in both directions."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return images.view(-1, 8, 8).roll((down, right), dims=(1, 2)).flatten(1)


def train_one_view_a_round(global_model: nn.Module, dataset: TensorDataset, asd_weight: float) -> nn.Module:
    """Each sample is augmented once, before the cache is built.  The student sees what the teacher saw: exact."""
    images, targets = dataset.tensors
    views = torch.cat([shifted(image) for image in images.split(1)])
    return train(global_model, TensorDataset(views, targets), asd_weight)


def train_new_views(global_model: nn.Module, dataset: TensorDataset, asd_weight: float) -> nn.Module:
    """Another view each time: the teacher has to look at it too, so there is no cache, and the loss needs the label
    proportions of the client."""
    loss_fn = fa.ASDLoss(asd_weight, label_prior=fa.label_prior(dataset.tensors[1], 10))
    model = copy.deepcopy(global_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        for x, y in DataLoader(dataset, batch_size=20, shuffle=True):
            view = shifted(x)
            with torch.no_grad():
                teacher_logits = global_model(view)
            optimizer.zero_grad()
            loss_fn(model(view), teacher_logits, y).backward()
            optimizer.step()
    return model


if __name__ == "__main__":
    compare(train, "no augmentation: ")
    compare(train_one_view_a_round, "one view a round: ")
    compare(train_new_views, "new views: ")
