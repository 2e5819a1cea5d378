"""fedasd data: which datasets are here, downloads, checks, and pictures of partitions."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from ..common.table import Table
from .settings import add_settings, configuration

_MOST_CLIENTS = 10_000  # in a picture; of a larger population, evenly spread ones


def add(subparsers: Any) -> None:
    text = "Lists, downloads and checks datasets, and draws how a partition spreads the labels over the clients."
    parser = subparsers.add_parser("data", help="datasets: list, get, check, partition", description=text)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="which datasets there are, and which of them are here")
    listing.set_defaults(function=show_list)
    getting = actions.add_parser("get", help="download a dataset; continues where it stopped, verifies checksums")
    getting.add_argument("name", metavar="NAME")
    getting.add_argument(
        "--url", help="another address: of the file, or, with a slash at its end, of the files' folder"
    )
    getting.add_argument("--variant", help="one of the forms it is published in (CIFAR: python, binary)")
    getting.set_defaults(function=download)
    checking = actions.add_parser("check", help="read datasets whole and say what is in them")
    checking.add_argument("names", nargs="*", metavar="NAME", help="default: all that are here")
    checking.set_defaults(function=check)
    for sub in (listing, getting, checking):
        sub.add_argument("--data-dir", metavar="DIR", help="where datasets are (default: FEDASD_DATA)")
    drawing = actions.add_parser("partition", help="draw the labels that each client has")
    add_settings(drawing)
    drawing.add_argument("--out", metavar="FILE", help="the picture (default: partition-DATASET-PARTITION.png)")
    drawing.set_defaults(function=draw_partition)


def show_list(arguments: argparse.Namespace) -> int:
    from ..data import data_directory, list_datasets
    from ..simulation.resource_estimate import human

    rows = [
        [s.name, human(s.size) if s.size else "yes" if s.present else "no", s.description]
        for s in list_datasets(arguments.data_dir)
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    print(f"in {data_directory(arguments.data_dir)}:")
    for name, here, description in rows:
        print(f"  {name:{widths[0]}}  {here:>{widths[1]}}  {description}")
    print("`fedasd data get NAME` downloads one")
    return 0


def download(arguments: argparse.Namespace) -> int:
    from ..data import get

    report = _Download()
    path = get(arguments.name, arguments.data_dir, report, url=arguments.url, variant=arguments.variant)
    report.close()
    print(f"{arguments.name} is in {path}")
    return 0


class _Download:
    """A line in a terminal that is written over; nothing in a pipe."""

    def __init__(self) -> None:
        self.last = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, file: str, done: int, total: int | None) -> None:
        if self.live and (time.monotonic() - self.last > 0.2 or done == total):
            self.last = time.monotonic()
            share = f" of {total / 1e6:.1f} MB, {done / total:.0%}" if total else " MB"
            print(f"\r{file}: {done / 1e6:.1f}{share}   ", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.live and self.last:
            print(file=sys.stderr)


def check(arguments: argparse.Namespace) -> int:
    """Reads every file (and fills the cache); what is broken is an error."""
    from ..data import list_datasets, load_dataset
    from ..data.catalogue import find_entry

    here = [s.name for s in list_datasets(arguments.data_dir) if s.present and s.name != "synthetic"]
    for name in arguments.names:
        find_entry(name)
    rows = []
    for name in arguments.names or here:
        found = load_dataset(name, arguments.data_dir)
        shape = "x".join(map(str, found.train.inputs.shape[1:]))
        rows.append([name, f"{len(found.train):,}", f"{len(found.test):,}", str(found.num_classes), shape])
    Table(["dataset", "training", "test", "classes", "shape"], rows).show()
    return 0


def draw_partition(arguments: argparse.Namespace) -> int:
    import numpy as np

    from ..data import federate
    from ..report import label_distribution as labels

    config = configuration(arguments)
    path = Path(arguments.out or f"partition-{config.dataset}-{config.partition}.png")
    data = federate(config)
    shown = np.linspace(0, data.num_clients - 1, min(data.num_clients, _MOST_CLIENTS)).astype(int)
    counts = np.stack([data.label_counts(int(k)).numpy() for k in shown])
    print(labels.caption(counts))
    print(f"picture: {labels.save(counts, f'{config.dataset}, {config.partition}', path)}")
    return 0
