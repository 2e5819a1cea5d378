"""ServerApp: Flower's FedAvg, for clients with and without ASD and for several seeds; a table at the end."""

import statistics

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedasd_flower.task import accuracy, make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    seeds = [int(seed) for seed in str(settings["seeds"]).split()]
    found = {}
    for name, asd_weight in (("FedAvg", 0.0), ("FedAvg + ASD", float(settings["asd-weight"]))):
        found[name] = [run(grid, settings["num-server-rounds"], seed, asd_weight) for seed in seeds]
    print(table(found, seeds), flush=True)


def run(grid: Grid, rounds: int, seed: int, asd_weight: float) -> float:
    """The accuracy of the global model after the last round."""
    model = make_model(seed)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model)})

    result = FedAvg(fraction_evaluate=0.0).start(
        grid,
        ArrayRecord(model.state_dict()),
        num_rounds=rounds,
        train_config=ConfigRecord({"seed": seed, "asd-weight": asd_weight}),
        evaluate_fn=evaluate,
    )
    return float(result.evaluate_metrics_serverapp[rounds]["accuracy"])


def table(found: dict[str, list[float]], seeds: list[int]) -> str:
    lines = ["| accuracy, % | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean |"]
    lines += ["|---|" + "---:|" * (len(seeds) + 1)]
    for name, values in found.items():
        cells = [f"{value:.1f}" for value in [*values, statistics.mean(values)]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
