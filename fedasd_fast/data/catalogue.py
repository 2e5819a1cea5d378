"""The catalogue of datasets: description, licence, downloads, file names, normalisation, and the reader of each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.schema import ConfigError, nearest
from .cifar import BATCHES, read_cifar10, read_cifar100
from .directory import DatasetNotFound
from .idx import read_idx
from .imagefolder import TEST_FOLDERS, FolderOptions, ImageNet100Options, read_imagefolder
from .images import ImageOptions
from .npz import PathOptions, read_npz
from .reader import DecodedArrays
from .text import TextOptions, read_text
from .tinyimagenet import ANNOTATIONS, read_tinyimagenet

Channels = tuple[float, ...]


@dataclass(frozen=True)
class NoOptions:
    pass


@dataclass(frozen=True)
class Download:
    path: str  # in data_dir
    url: str
    md5: str
    size: int | None = None  # bytes


@dataclass(frozen=True)
class DatasetEntry:
    name: str
    description: str
    licence: str
    read: Callable[..., DecodedArrays] | None = None  # (files, options, context); None: not read from files
    paths: tuple[str, ...] = ()  # directories and archives to look for in data_dir, best first
    options: type[Any] = PathOptions
    cached: bool = True  # decoding takes so long that what it gave is kept
    downloads: Mapping[str, tuple[Download, ...]] = field(default_factory=dict)  # by variant, the default first
    advice: str = ""  # how to obtain it if it cannot be downloaded
    normalisation: tuple[Channels, Channels] | None = None  # mean and std of each channel, of values in [0, 1]
    published: tuple[int, int] | None = None  # training and test samples
    required: tuple[tuple[str, ...], ...] = ()  # in its directory: one path of each tuple
    class_directories: int = 0  # in `train` of its directory; fewer are a part of it, which works
    unpacked: Mapping[str, str] = field(default_factory=dict)  # MD5 of published files inside the archives

    def files(self, variant: str | None = None) -> tuple[Download, ...]:
        if not self.downloads:
            raise DatasetNotFound(f"{self.name} cannot be downloaded. {self.advice}")
        if variant is not None and variant not in self.downloads:
            raise ConfigError(f"variant = {variant!r} of {self.name}{nearest(variant, self.downloads)}")
        return self.downloads[variant or next(iter(self.downloads))]

    def candidates(self, data_dir: Path, path: str | None) -> list[Path]:
        """Where it may be; `data_dir` may also be the dataset's own directory, and a path one in the current one."""
        if path is not None:
            given = Path(path).expanduser()
            return [data_dir / given] if given.is_absolute() else [data_dir / given, Path.cwd() / given]
        itself = [data_dir] if data_dir.name in self.paths else []
        return [data_dir / path for path in self.paths] + itself

    def find(self, data_dir: Path, path: str | None = None) -> Path:
        candidates = self.candidates(data_dir, path)
        existing = [candidate for candidate in candidates if candidate.exists()]
        if existing:  # an archive beside a directory that is not complete is the better one
            return next((candidate for candidate in existing if not self.missing(candidate)), existing[0])
        if not candidates:
            raise DatasetNotFound(f"the path of {self.name} is not known. {self.advice}")
        looked = "".join(f"\n    {candidate}" for candidate in candidates)
        raise DatasetNotFound(f"{self.name} was not found; looked for{looked}\n{self._remedy(data_dir)}")

    def missing(self, where: Path) -> list[str]:
        """What a directory or an archive lacks, as far as a glance tells: names and sizes, not contents."""
        if where.is_dir():
            return [paths[0] for paths in self.required if not any((where / path).exists() for path in paths)]
        sizes = {Path(file.path).name: file.size for files in self.downloads.values() for file in files}
        expected, found = sizes.get(where.name), where.stat().st_size
        return [f"{expected - found:,} of {expected:,} bytes"] if expected and found < expected else []

    def part(self, where: Path) -> str:
        """`20 of 200 classes`; empty if it has all of them, or their number is not known."""
        if not self.class_directories or not (where / "train").is_dir():
            return ""
        found = sum(path.is_dir() for path in (where / "train").iterdir())
        return f"{found} of {self.class_directories} classes" if found != self.class_directories else ""

    def notices(self, arrays: DecodedArrays) -> list[str]:
        """What is unusual about this copy."""
        found = len(arrays.train_y), len(arrays.test_y)
        if not self.published or found == self.published or arrays.notices:
            return list(arrays.notices)
        numbers = f"{found[0]} training and {found[1]} test samples"
        return [f"{numbers}; the published dataset has {self.published[0]} and {self.published[1]}"]

    @property
    def checksums(self) -> dict[str, str]:
        """The published MD5 by the name of the file, of archives and of what is inside."""
        archives = {Path(file.path).name: file.md5 for files in self.downloads.values() for file in files}
        return {**archives, **self.unpacked}

    def _remedy(self, data_dir: Path) -> str:
        if not self.downloads:
            return self.advice
        addresses = "".join(f"\n    {file.url}" for file in self.files())
        folder = (data_dir / self.files()[0].path).parent
        return (
            f"Download it with\n    fedasd data get {self.name} --data-dir {shlex.quote(str(data_dir))}\n"
            f"or put the published files into {folder}:{addresses}"
        )


def find_entry(name: str) -> DatasetEntry:
    if name not in CATALOGUE:
        raise ConfigError(f"dataset = {name!r}{nearest(name, CATALOGUE)}")
    return CATALOGUE[name]


def _cifar(classes: int, folders: tuple[str, str], python: tuple[str, int], binary: tuple[str, int]) -> dict[str, Any]:
    """MD5 and size of the archive of each variant."""
    base, stem = "https://www.cs.toronto.edu/~kriz/", f"cifar-{classes}"
    archives = {"python": (f"{stem}-python.tar.gz", *python), "binary": (f"{stem}-binary.tar.gz", *binary)}
    return dict(
        name=f"cifar{classes}",
        description=f"60,000 colour images of 32x32 in {classes} classes",
        licence="no formal licence; cite A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        paths=(*folders, *(file for file, *_ in archives.values())),
        downloads={key: (Download(file, base + file, md5, n),) for key, (file, md5, n) in archives.items()},
        published=(50_000, 10_000),
    )


def _idx(folder: str, base: str, published: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """MD5 and size of training images and labels, test images and labels."""
    names = [f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    files = tuple(Download(f"{folder}/{n}", base + n, *about) for n, about in zip(names, published, strict=True))
    required = tuple((n, n.replace("-idx", ".idx"), n[:-3], n[:-3].replace("-idx", ".idx")) for n in names)
    return dict(read=read_idx, downloads={"idx": files}, published=(60_000, 10_000), required=required)


IMAGENET_NORMALISATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_ENTRIES = (
    DatasetEntry(
        **_cifar(
            10,
            ("cifar-10-batches-py", "cifar-10-batches-bin"),
            ("c58f30108f718f92721af3b95e74349a", 170_498_071),
            ("c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),
        ),
        read=read_cifar10,
        required=tuple((name, f"{name}.bin") for name in (*BATCHES, "test_batch")),
        unpacked={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        normalisation=((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    ),
    DatasetEntry(
        **_cifar(
            100,
            ("cifar-100-python", "cifar-100-binary"),
            ("eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
            ("03b5dce01913d631647c71ecec9e9cb8", 168_513_733),
        ),
        read=read_cifar100,
        required=(("train", "train.bin"), ("test", "test.bin")),
        unpacked={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        normalisation=((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    ),
    DatasetEntry(
        name="tinyimagenet",
        description="110,000 colour images of 64x64 in 200 classes (Tiny-ImageNet-200)",
        licence="for non-commercial research, as ImageNet; from Stanford's course CS231n",
        read=read_tinyimagenet,
        paths=("tiny-imagenet-200", "tiny-imagenet-200.zip"),
        required=(("train",), (ANNOTATIONS,), ("val/images",)),
        class_directories=200,
        options=ImageOptions,
        downloads={
            "zip": (
                Download(
                    "tiny-imagenet-200.zip",
                    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    "90528d7ca1a48142e341f4ef8d21d0de",
                    248_100_043,
                ),
            )
        },
        normalisation=IMAGENET_NORMALISATION,
        published=(100_000, 10_000),
    ),
    DatasetEntry(
        name="imagenet100",
        description="100 classes of ImageNet, one directory each",
        licence="for non-commercial research, by registration at image-net.org",
        read=read_imagefolder,
        paths=("imagenet100", "imagenet-100", "imagenet100.zip", "imagenet-100.zip"),
        required=(("train",), TEST_FOLDERS),
        class_directories=100,
        options=ImageNet100Options,
        advice="Register at https://image-net.org/download-images, take the directories of the 100 classes you want, "
        "and put them (or links to them) there as train/<class>/*.JPEG and val/<class>/*.JPEG.",
        normalisation=((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ),
    DatasetEntry(
        name="imagefolder",
        description="your own images: train/<class>/*.jpg and val/<class>/*.jpg (or test/)",
        licence="yours",
        read=read_imagefolder,
        paths=("imagefolder", "imagefolder.zip"),
        required=(("train",), TEST_FOLDERS),
        options=FolderOptions,
        advice="Put your images there as train/<class>/*.jpg and val/<class>/*.jpg, or name another directory with "
        "dataset_args.path=DIRECTORY.",
        normalisation=IMAGENET_NORMALISATION,
    ),
    DatasetEntry(
        **_idx(
            "fashion-mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            (
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            ),
        ),
        name="fashionmnist",
        description="70,000 grey images of 28x28 in 10 classes of clothing",
        licence="MIT (Zalando SE); cite Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
        paths=(
            "fashion-mnist",
            "FashionMNIST/raw",
            "/usr/share/datasets/fashion-mnist",
        ),  # the last: Debian
        normalisation=((0.2860,), (0.3530,)),
    ),
    DatasetEntry(
        **_idx(
            "mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
        ),
        name="mnist",
        description="70,000 grey images of 28x28 of handwritten digits",
        licence="usually given as CC BY-SA 3.0; cite LeCun, Bottou, Bengio and Haffner, 1998",
        paths=("mnist", "MNIST/raw"),
        normalisation=((0.1307,), (0.3081,)),
    ),
    DatasetEntry(
        name="femnist",
        description="handwritten characters with their writers, as femnist.npz",
        licence="NIST's data is public domain; cite Caldas et al., LEAF, 2018",
        read=read_npz,
        paths=("femnist.npz",),
        advice="Make the file from LEAF (https://leaf.cmu.edu) with numpy.savez: train_x uint8 [n, 28, 28], train_y, "
        "train_users, test_x, test_y, num_classes=62; the docstring of fedasd_fast.data.npz describes them.",
    ),
    DatasetEntry(
        name="npz",
        description="your own arrays in one .npz file, with users if there are any",
        licence="yours",
        read=read_npz,
        advice="Name the file with dataset_args.path=FILE.npz; the docstring of fedasd_fast.data.npz describes it.",
    ),
    DatasetEntry(
        name="text",
        description="characters of plain text, in clients by file or by speaker; by default from scikit-learn",
        licence="yours; scikit-learn's descriptions of datasets are BSD 3-Clause",
        read=read_text,
        options=TextOptions,
        cached=False,
        advice="Name a file or a directory with dataset_args.path=TEXT; without it, descriptions of datasets that are "
        "included in scikit-learn are read (pip install 'fedasd-fast[simulation]').",
    ),
    DatasetEntry(
        name="digits",
        description="1,797 grey images of 8x8 of handwritten digits, included in scikit-learn",
        licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)",
        options=NoOptions,
        advice="It is included in scikit-learn: pip install 'fedasd-fast[simulation]'.",
        normalisation=((0.3052,), (0.3760,)),  # of the training part
        published=(1_442, 355),
    ),
    DatasetEntry(
        name="synthetic",
        description="mixtures of Gaussians for any number of clients, generated on demand",
        licence="none needed",
        options=NoOptions,
        advice="It is generated on demand.",
    ),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}
