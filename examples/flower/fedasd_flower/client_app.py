"""ClientApp: local training with ASD.  The server's model is start and teacher; the reply has nothing about ASD."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedasd_flower.task import client_samples, make_model, train_client

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)  # clients run side by side
    config, settings = message.content["config"], context.run_config
    seed, client = int(config["seed"]), int(context.node_config["partition-id"])
    images, targets = client_samples(client, int(context.node_config["num-partitions"]), settings["delta"], seed)
    model = make_model(seed)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    torch.manual_seed(hash((seed, config["server-round"], client)))  # of numbers, so the same everywhere
    train_client(
        model, images, targets, asd_weight=config["asd-weight"], augment=settings["augment"],
        epochs=settings["local-epochs"], batch_size=settings["batch-size"], lr=settings["lr"],
    )  # fmt: skip
    metrics = MetricRecord({"num-examples": len(targets)})  # FedAvg's weight of this client
    reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=reply, reply_to=message)
