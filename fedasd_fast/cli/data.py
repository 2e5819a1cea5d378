"""fedasd data: lists, downloads and checks datasets, and plots partitions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..common.formatting import format_bytes, plural
from ..common.plotting import save_figure
from ..common.progress import ProgressDisplay
from ..common.schema import ConfigError
from ..common.table import Table
from ..data import DataError, data_directory, get, list_datasets
from ..data.availability import Status, status
from ..data.catalogue import find_entry
from ..data.verification import verify
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
    checking = actions.add_parser("check", help="read datasets completely and compare published checksums")
    checking.add_argument("names", nargs="*", metavar="NAME", help="default: all that are there")
    checking.set_defaults(function=check)
    for sub in (listing, getting, checking):
        add_data_dir(sub)
    drawing = actions.add_parser("partition", help="plot the label distribution over the clients")
    add_settings(drawing)
    drawing.add_argument("--out", metavar="FILE", help="the plot (default: partition-DATASET-PARTITION.png)")
    drawing.set_defaults(function=plot_partition)


def show_list(arguments: argparse.Namespace) -> int:
    rows = [[s.name, _installed(s), _description(s)] for s in list_datasets(arguments.data_dir)]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    print_folder(arguments)
    for name, installed, description in rows:
        print(f"  {name:{widths[0]}}  {installed:>{widths[1]}}  {description}")
    print("`fedasd data get NAME` downloads one")
    return 0


def _installed(found: Status) -> str:
    """Its size, if it is there and has one."""
    if found.lacks:
        return "incomplete"
    return format_bytes(found.size) if found.size else "yes" if found.present else "no"


def _description(found: Status) -> str:
    if found.lacks:
        return f"{found.where} lacks {', '.join(found.lacks)}"
    return f"{found.description}; here {found.part}" if found.part else found.description


def print_folder(arguments: argparse.Namespace) -> None:
    folder = data_directory(arguments.data_dir)
    print(f"in {folder}" + (":" if folder.is_dir() else ", which does not exist yet:"), flush=True)


def download(arguments: argparse.Namespace) -> int:
    found = status(arguments.name, arguments.data_dir)
    if found.present and found.where is not None and not (arguments.url or arguments.variant):
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
    """Reads every file and compares published checksums; exits with 2 if a dataset is damaged or incomplete."""
    there = [s.name for s in list_datasets(arguments.data_dir) if (s.present or s.lacks) and s.name != "synthetic"]
    for name in arguments.names:
        find_entry(name)
    rows, problems, display = [], [], ProgressDisplay()
    for name in arguments.names or there:
        try:
            found = verify(name, arguments.data_dir, display)
        except (DataError, ConfigError) as error:  # a dataset that is damaged, or not there
            problems.append(f"fedasd: {error}")
            continue
        finally:
            display.close()
        shape = "x".join(map(str, found.shape))
        how = f"{plural(found.checksums, 'checksum')} equal" if found.checksums else "read"
        rows.append([name, f"{found.train:,}", f"{found.test:,}", str(found.num_classes), shape, how])
        problems += [f"fedasd: {name}: {notice}" for notice in found.notices]
    if rows:
        print_folder(arguments)
        Table(["dataset", "training", "test", "classes", "shape", "verified"], rows).show()
    for line in problems:
        print(line, file=sys.stderr)
    return 0 if len(rows) == len(arguments.names or there) else 2


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
