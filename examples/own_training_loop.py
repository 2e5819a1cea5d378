"""ASD in a training loop of your own: plain PyTorch, with `ASDLoss` and `TeacherCache` as the only additions.

    python examples/own_training_loop.py

A round of federated learning with ten clients that have mostly two labels each.  All start from one global model and
train on their own samples, which makes them forget the other labels; ASD holds on to what the global model knows.
Printed is the accuracy on all labels: of the global model, of the clients' models, and of their average.
"""

import copy

import torch
from torch import Tensor, nn

import fedasd_fast as fa

CLIENTS, CLASSES, FEATURES = 10, 10, 32


def make_samples(targets: Tensor) -> Tensor:
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    return centres[targets] + 1.5 * torch.randn(len(targets), FEATURES)


def client_labels(k: int) -> Tensor:
    """90 samples of the labels k and k + 1, ten of any label."""
    return torch.cat([torch.tensor([k, (k + 1) % CLASSES]).repeat(45), torch.randint(CLASSES, (10,))])


def train_client(global_model: nn.Module, inputs: Tensor, targets: Tensor, asd_weight: float) -> nn.Module:
    """Five local epochs from the global model, which is also the teacher: it runs once, into the cache."""
    prior = fa.label_prior(targets, CLASSES)  # the proportion of each label on this client
    teacher = fa.TeacherCache.build(global_model, inputs, targets, prior)
    loss_fn = fa.ASDLoss(asd_weight=asd_weight)  # cross-entropy + asd_weight x ASD

    model = copy.deepcopy(global_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        for rows in torch.randperm(len(inputs)).split(20):
            optimizer.zero_grad()
            loss_fn(model(inputs[rows]), teacher[rows], targets[rows]).backward()
            optimizer.step()
    return model


def pretrain(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def average(models: list[nn.Module]) -> nn.Module:
    states = [model.state_dict() for model in models]
    result = copy.deepcopy(models[0])
    result.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return result


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are too small to be worth more
    global_model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    common, test = (torch.randint(CLASSES, (n,)) for n in (500, 2000))
    pretrain(global_model, make_samples(common), common)
    test_inputs = make_samples(test)
    clients = [(make_samples(targets), targets) for targets in map(client_labels, range(CLIENTS))]

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return 100 * (model(test_inputs).argmax(1) == test).float().mean().item()

    print(f"global model: {accuracy(global_model):.1f} %")
    for name, asd_weight in (("cross-entropy", 0.0), ("cross-entropy + ASD", 3.0)):
        models = [train_client(global_model, inputs, targets, asd_weight) for inputs, targets in clients]
        clients_mean = sum(map(accuracy, models)) / CLIENTS
        print(f"{name}: clients {clients_mean:.1f} %, their average {accuracy(average(models)):.1f} %")


if __name__ == "__main__":
    main()
