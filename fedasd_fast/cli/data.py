"""fedasd data: lists, downloads and checks datasets, and plots partitions."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..common.formatting import format_bytes
from ..common.plotting import save_figure
from ..common.progress import ProgressDisplay
from ..common.table import Table
from ..data import data_directory, get, list_datasets, load_dataset
from ..data.availability import status
from ..data.catalogue import find_entry
from ..report.label_distribution import describe_skew, label_counts, label_distribution_figure
from .options import add_data_dir, add_settings, configuration

_MAX_CLIENTS = 10_000  # in a plot; of a larger population, evenly spaced ones


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists, downloads and checks datasets, and plots the label distribution of a partition."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the datasets, and which of them are installed")
    listing.set_defaults(function=show_list)
    getting = actions.add_parser("get", help="download a dataset; resumes partial downloads, verifies checksums")
    getting.add_argument("name", metavar="NAME")
    getting.add_argument("--url", help="another address: of the file, or, ending in a slash, of the files' folder")
    getting.add_argument("--variant", help="one of its published formats (CIFAR: python, binary)")
    getting.set_defaults(function=download)
    checking = actions.add_parser("check", help="read datasets completely and print their sizes")
    checking.add_argument("names", nargs="*", metavar="NAME", help="default: all that are installed")
    checking.set_defaults(function=check)
    for sub in (listing, getting, checking):
        add_data_dir(sub)
    drawing = actions.add_parser("partition", help="plot the label distribution over the clients")
    add_settings(drawing)
    drawing.add_argument("--out", metavar="FILE", help="the plot (default: partition-DATASET-PARTITION.png)")
    drawing.set_defaults(function=plot_partition)


def show_list(arguments: argparse.Namespace) -> int:
    rows = [
        [s.name, format_bytes(s.size) if s.size else "yes" if s.present else "no", s.description]
        for s in list_datasets(arguments.data_dir)
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    folder = data_directory(arguments.data_dir)
    print(f"in {folder}" + (":" if folder.is_dir() else ", which does not exist yet:"))
    for name, installed, description in rows:
        print(f"  {name:{widths[0]}}  {installed:>{widths[1]}}  {description}")
    print("`fedasd data get NAME` downloads one")
    return 0


def download(arguments: argparse.Namespace) -> int:
    found = status(arguments.name, arguments.data_dir)
    if found.where is not None and not (arguments.url or arguments.variant):
        print(f"{arguments.name} is there already: {found.where}; `fedasd data check {arguments.name}` reads it")
        return 0
    display = ProgressDisplay()

    def show_bytes(file: str, done: int, total: int | None) -> None:
        size = f" of {total / 1e6:.1f} MB, {done / total:.0%}" if total else " MB"
        display(file, done, total, count=f"{done / 1e6:.1f}{size}")

    try:
        path = get(arguments.name, arguments.data_dir, show_bytes, url=arguments.url, variant=arguments.variant)
    finally:
        display.close()
    print(f"{arguments.name} is in {path}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Reads every file (and fills the cache); a damaged file is an error."""
    installed = [s.name for s in list_datasets(arguments.data_dir) if s.present and s.name != "synthetic"]
    for name in arguments.names:
        find_entry(name)
    rows = []
    for name in arguments.names or installed:
        found = load_dataset(name, arguments.data_dir)
        shape = "x".join(map(str, found.train.inputs.shape[1:]))
        rows.append([name, f"{len(found.train):,}", f"{len(found.test):,}", str(found.num_classes), shape])
    Table(["dataset", "training", "test", "classes", "shape"], rows).show()
    return 0


def plot_partition(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    path = Path(arguments.out or f"partition-{config.dataset}-{config.partition}.png")
    counts = label_counts(config, _MAX_CLIENTS)
    if len(counts) < config.clients:
        print(f"a sample: {len(counts):,} of {config.clients:,} clients, evenly spaced")
    print(describe_skew(counts))
    figure = label_distribution_figure(counts, f"{config.dataset}, {config.partition}")
    print(f"plot: {save_figure(figure, path)}")
    return 0
