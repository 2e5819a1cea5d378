"""A method of your own: FedAdagrad (Reddi et al., 2021) in a dozen lines, with and without ASD.

    python examples/own_method.py

A method says what differs from FedAvg; local training, ASD, executors and checkpoints come with it.  docs/methods.md
lists what can be overridden.
"""

from dataclasses import dataclass

import fedasd_fast as fa
from fedasd_fast.algorithms import Method, register


@register("fedadagrad")
@dataclass(frozen=True)
class FedAdagrad(Method):
    """The server treats the mean change of the clients' models as a gradient, and takes a step of Adagrad."""

    lr: float = 0.02  # fields are arguments: method_args={"lr": 0.1}
    tau: float = 1e-3

    server_state = ("squares",)  # a vector [P], zeros at first, saved with checkpoints

    def combine(self, server, mean, change):
        model = server.model.double()
        delta = mean - model
        squares = server.state["squares"] + delta.square()
        return model + self.lr * delta / (squares.sqrt() + self.tau), {"squares": squares}


def main() -> None:
    settings = dict(clients=100, participation=0.1, rounds=30, partition="dirichlet_0.1", local_epochs=2)
    settings |= dict(asd={"weight": 3.0}, executor="stacked", eval_models=["cloud"])
    for method in ("fedavg", "fedavg+asd", "fedadagrad", "fedadagrad+asd"):
        last = fa.simulate(settings | {"method": method}).metrics[-1]
        print(f"{method}: accuracy {last['acc_cloud']:.1f} %, client drift {last['drift']:.2f}")


if __name__ == "__main__":
    main()
