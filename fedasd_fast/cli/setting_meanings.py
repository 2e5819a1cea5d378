"""One sentence about each setting; its type and default are in the configuration itself.

Names stand here too, without torch, because `fedasd settings` and shell completion do not wait for the registries; a
test compares them.
"""

from __future__ import annotations

DATASETS = (
    *("cifar10", "cifar100", "tinyimagenet", "imagenet100", "imagefolder", "fashionmnist", "mnist", "femnist"),
    *("npz", "text", "digits", "synthetic"),
)
MODELS = (
    *("mlp", "logistic", "cnn_cifar", "convnet_gn", "resnet20_gn", "resnet18_gn", "vit_small", "tiny_vit"),
    *("char_lstm", "char_transformer"),
)
METHODS = (
    *("fedavg", "fedprox", "fedntd", "feddyn", "fedsam", "feddisco", "fedspeed", "scaffold", "fedavgm", "fedadam"),
    *("fedyogi", "fednova", "fedexp", "fedcm", "fedinit", "feddc", "fedgkd", "fedgmt", "fedlesam", "fedsmoo"),
    *("fedsol", "fedlc", "fedrs", "moon"),
)

MEANINGS = {
    "name": "The experiment's name: begins the names of run directories and groups runs on a page.",
    "dataset": f"The dataset: {', '.join(DATASETS)}; `fedasd data list` tells which are present.",
    "dataset_args": "Options of the dataset, for instance the path of an image folder or of a text.",
    "synthetic.shape": "Shape of a synthetic sample.",
    "synthetic.classes": "Number of classes of the synthetic data.",
    "synthetic.samples_per_client": "Training samples of each client.",
    "synthetic.test_samples": "Samples of the test set.",
    "synthetic.modes": "Gaussians that each class is a mixture of.",
    "synthetic.separation": "Standard deviation of the Gaussians' centres: larger is easier.",
    "synthetic.noise": "Standard deviation of samples around their centre: larger is harder.",
    "model": f"The network: {', '.join(MODELS)}, or package.module:Class.",
    "model_args": "Options of the network, as in model_args.hidden=[128,64].",
    "method": f"{', '.join(METHODS)}, or package.module:Class, each with an optional +asd.",
    "method_args": "Options of the method, as in method_args.mu=0.01.",
    "norm_statistics": "Running statistics of BatchNorm: refuse, average (over clients), or local (FedBN: BatchNorm "
    "stays with the client).",
    "partition": "How samples are spread over clients: dirichlet_<delta>, iid, shards_<n>, or natural (by user).",
    "size_sigma": "Client sizes are log-normal with this sigma; 0: all equal.",
    "clients": "Number of clients; 0: as many as the data have, where they are already divided.",
    "participation": "Fraction of the clients that train in a round.",
    "sampling": "bernoulli: each client by chance, so that their number varies; fixed: always as many.",
    "failures.dropout": "Fraction of the sampled clients that return no model.",
    "failures.stragglers": "Fraction of the sampled clients that train for fewer epochs.",
    "devices.profile": "Simulated devices: none, constant, uniform, lognormal, or a CSV file (speed,download,upload); "
    "they give each round simulated seconds.",
    "devices.speed": "Samples that a simulated device trains in a second: the median.",
    "devices.download": "Bytes that it receives in a second: the median.",
    "devices.upload": "Bytes that it sends in a second: the median.",
    "devices.speed_spread": "How much speeds differ: lognormal, standard deviation of the logarithm; uniform, half "
    "width as a fraction of the median.",
    "devices.bandwidth_spread": "The same of both bandwidths.",
    "devices.deadline": "Simulated seconds after which the update of a client does not count; null: no deadline.",
    "availability.pattern": "When simulated devices are there: always, diurnal, or a CSV file (start,end, and client "
    "or trace).",
    "availability.mean": "Mean of the diurnal curve: fraction of the clients that are there.",
    "availability.amplitude": "How far the diurnal curve rises above its mean and falls below it.",
    "availability.time_zones": "Fraction of the period over which the clients' days begin; 0: all at once.",
    "availability.period": "Seconds after which curve or intervals repeat; null: intervals are not repeated.",
    "availability.wait": "Simulated seconds until the server looks again if no client is there.",
    "rounds": "Number of rounds.",
    "local_epochs": "Passes of a client over its data in a round.",
    "batch_size": "Samples in a local step; the last batch of an epoch may be smaller.",
    "optimizer.name": "Optimiser of local training; adamw starts with empty moments in every round.",
    "optimizer.lr": "Learning rate of local training in the first round.",
    "optimizer.lr_decay_per_round": "The learning rate is multiplied by this after every round.",
    "optimizer.weight_decay": "Weight decay, added after clipping.",
    "optimizer.momentum": "Momentum of local SGD, from zero in every round.",
    "optimizer.clip_norm": "Largest norm of the loss gradient; null: no clipping.",
    "optimizer.betas": "Decay of the two moments of AdamW.",
    "optimizer.eps": "What AdamW adds to the root of its second moment.",
    "asd.enabled": "Whether ASD is on; null: if the method's name ends in +asd.",
    "asd.weight": "Weight of the distillation term (lambda).",
    "asd.temperature": "Temperature of both softmaxes in the distillation term (tau).",
    "asd.entropy_temperature": "Temperature of the softmax whose entropy weights a sample.",
    "asd.entropy_power": "How strongly a sure teacher raises a sample's weight; 0: not at all.",
    "asd.prior_power": "How strongly a rare label raises a sample's weight; 0: not at all.",
    "asd.weighting": "adaptive: sample by sample; uniform: all samples of a batch alike.",
    "asd.divergence": "Divergence between teacher and student.",
    "augment": "Random flips and crops of images: none, once a round, or anew in every epoch.",
    "teacher": "cache: the teacher runs once a round; recompute: in every step; cache_approximate: once, without "
    "augmentation.",
    "eval_every": "Rounds between evaluations; the last round is always evaluated.",
    "eval_models": "The averaged models to evaluate; without `all` no client's last model is kept.",
    "eval_batch_size": "Samples that are evaluated at a time.",
    "class_accuracy": "Whether evaluations also give the accuracy of each class.",
    "client_accuracy": "Whether evaluations also give the accuracy over the clients' own label distributions.",
    "client_test_accuracy": "Evaluations also give the accuracy on the clients' own test data.",
    "target_accuracy": "A fraction, as 0.6: the summary tells the rounds and bytes until it was reached.",
    "stop_at_target": "Whether the run ends when an evaluation reaches target_accuracy.",
    "keep_best": "Whether the models of the best evaluated round are kept, in best.pt in the run directory.",
    "checkpoint_every": "Rounds between checkpoints.",
    "on_client_error": "abort: the run stops when a client's training fails; drop: it goes on without that client.",
    "seed": "Of everything random: partition, initial parameters, sampling, order of samples, augmentation.",
    "random_streams": "Version of the random numbers. 2: orders of samples, failures and synthetic samples are drawn "
    "for a whole cohort at once; 1: client by client, as in runs that were saved without this setting.",
    "dtype": "Type of parameters and arithmetic.",
    "precision": "Of local training and evaluation; in half precision, parameters, update and sums stay float32.",
    "device": "Where training runs: cpu, cuda, cuda:1.",
    "tf32": "Products of float32 numbers on a GPU with ten bits of each; null: as torch is set.",
    "cuda_graph": "The local step is recorded once and replayed as a CUDA graph.",
    "executor": "How clients are trained; auto: what a short measurement finds fastest.",
    "workers": "Processes of executor=processes; 0: one for each core.",
    "clients_at_once": "Clients that are trained together on stacked parameters; 0: as many as are fastest.",
    "client_op": "true: clients at once are trained by one compiled call if the network is a chain of linear layers; "
    "false: by batched operations, as other networks are.",
    "threads": "Threads of each process; 0: one for small models, all cores for large ones.",
    "data_dir": "Directory of the datasets; null: FEDASD_DATA, or the default one.",
    "out": "The run directory.",
}
