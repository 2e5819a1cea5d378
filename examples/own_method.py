"""A method of your own: FedAdam (Reddi et al., 2021) in a dozen lines, with and without ASD.

    python examples/own_method.py

A method says what differs from FedAvg; local training, ASD, executors and checkpoints come with it.  docs/methods.md
lists what can be overridden.
"""

from dataclasses import dataclass

import fedasd_fast as fa
from fedasd_fast.algorithms import Method, register


@register("fedadam")
@dataclass(frozen=True)
class FedAdam(Method):
    """The server treats the mean change of the clients' models as a gradient, and takes a step of Adam."""

    lr: float = 0.02  # fields are arguments: method_args={"lr": 0.1}
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    server_state = ("first", "second")  # a vector [P] each, zeros at first, saved with checkpoints

    def combine(self, server, mean, change):
        model = server.model.double()
        delta = mean - model
        first = self.beta1 * server.state["first"] + (1 - self.beta1) * delta
        second = self.beta2 * server.state["second"] + (1 - self.beta2) * delta.square()
        return model + self.lr * first / (second.sqrt() + self.epsilon), {"first": first, "second": second}


def main() -> None:
    settings = dict(clients=100, participation=0.1, rounds=30, partition="dirichlet_0.1", local_epochs=2)
    settings |= dict(asd={"weight": 3.0}, executor="stacked", eval_models=["cloud"])
    for method in ("fedavg", "fedavg+asd", "fedadam", "fedadam+asd"):
        last = fa.simulate(settings | {"method": method}).metrics[-1]
        print(f"{method}: accuracy {last['acc_cloud']:.1f} %, client drift {last['drift']:.2f}")


if __name__ == "__main__":
    main()
