"""Text for the prediction of the next character: plain UTF-8, in clients by file or by speaker.

    path               a file, a directory or an archive of files (hidden ones are left out), in data_dir or the current
                       directory; by default the descriptions of datasets that are included in scikit-learn: 13 files of
                       English, 41 kB
    split_by           file, or speaker: `NAME:` at the start of a line, as in plays, begins a speech, which ends before
                       the next one; each word of a name begins with a capital or a digit.  Speakers of several files
                       are different clients, and what precedes the first one is left out
    sequence_length    T
    test_fraction      of each client's sequences, its last ones

The characters of all clients, in the order of their code points, are the classes.  A client's text is cut into
sequences: T characters, and as targets the T characters that are one further; the next sequence begins with the last
one's last target.  The last sequence of a client is filled up with targets that are ignored.  Line ends of
Windows are read as `\\n`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ..common.schema import ConfigError
from .archives import Files
from .directory import DatasetNotFound
from .federated import IGNORED
from .reader import Array, DataError, DecodeContext, DecodedArrays

MAX_TEXT_BYTES = 64 << 20  # of all files; a character takes 16 bytes in memory
MAX_CHARACTERS = 1 << 16  # different ones: each is a class
# In all versions of scikit-learn since 1.4; a file that a later one adds would be one more client.
INCLUDED = (
    "breast_cancer", "california_housing", "covtype", "diabetes", "digits", "iris", "kddcup99", "lfw", "linnerud",
    "olivetti_faces", "rcv1", "twenty_newsgroups", "wine_data",
)  # fmt: skip
_WORD = r"[A-Z0-9\u00c0-\u00d6\u00d8-\u00de][\w.'\u2019-]*"
_SPEAKER = re.compile(rf"({_WORD}(?: {_WORD}){{0,5}}):(?:[ \t]+(.*)|[ \t]*)")


@dataclass(frozen=True)
class TextOptions:
    path: str | None = None  # of the text, in data_dir or here; None: the text included in scikit-learn
    split_by: Literal["file", "speaker"] = "file"
    sequence_length: int = 64
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        if self.sequence_length < 1:
            raise ConfigError(
                f"dataset_args.sequence_length = {self.sequence_length}; expected a whole number of at least 1"
            )
        if not 0 < self.test_fraction < 1:
            raise ConfigError(f"dataset_args.test_fraction = {self.test_fraction}; expected a fraction in (0, 1)")


class IncludedText(Files):
    """The descriptions of datasets in scikit-learn."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}.rst" for name in INCLUDED)


def included_text() -> Files:
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise DatasetNotFound(
            "the text of scikit-learn is not there: pip install 'fedasd-fast[simulation]', or name a text of your own "
            "with dataset_args.path=FILE_OR_DIRECTORY"
        )
    return IncludedText(Path(found.origin).parent / "datasets" / "descr")


def read_text(files: Files, options: TextOptions, context: DecodeContext) -> DecodedArrays:
    texts, notices = _texts(files), []
    if options.split_by == "speaker":
        texts = _by_speaker(texts, files)
    short = [name for name, text in texts.items() if len(text) < 2]
    if short:
        notices.append(f"{len(short)} clients with fewer than two characters are left out, the first is {short[0]:.60}")
    kept = [text for text in texts.values() if len(text) >= 2]
    if not kept:
        raise DataError(f"{files.path} has no text of two characters or more; name another file or directory")
    characters = sorted(set().union(*kept))
    if len(characters) > MAX_CHARACTERS:
        raise DataError(
            f"{files.path} has {len(characters):,} different characters; at most {MAX_CHARACTERS:,} are read"
        )
    number = {character: i for i, character in enumerate(characters)}
    clients = [_sequences([number[c] for c in text], options.sequence_length) for text in kept]
    tests = [int(len(x) * options.test_fraction) for x, _ in clients]
    if not any(tests):
        raise DataError(
            f"{files.path}: no client has enough text for a test sequence of {options.sequence_length} characters; use "
            "a smaller dataset_args.sequence_length, a larger test_fraction, or more text"
        )
    ends = [len(x) - n for (x, _), n in zip(clients, tests, strict=True)]  # of each client's training sequences
    return DecodedArrays(
        train_x=np.concatenate([x[:end] for (x, _), end in zip(clients, ends, strict=True)]),
        train_y=np.concatenate([y[:end] for (_, y), end in zip(clients, ends, strict=True)]),
        test_x=np.concatenate([x[end:] for (x, _), end in zip(clients, ends, strict=True)]),
        test_y=np.concatenate([y[end:] for (_, y), end in zip(clients, ends, strict=True)]),
        num_classes=len(characters),
        users=np.repeat(np.arange(len(clients)), ends),
        notices=tuple(notices),
    )


def _texts(files: Files) -> dict[str, str]:
    """By the name of the file, in the order of names."""
    texts, total = {}, 0
    for name in files.names:
        content = files.read(name)
        total += len(content)
        if total > MAX_TEXT_BYTES:
            raise DataError(f"{files.path} has more than {MAX_TEXT_BYTES:,} bytes of text; use a part of it")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{files.where(name)} is not UTF-8 ({error.reason} at byte {error.start}); convert it with iconv, or "
                "move it elsewhere if it is no text"
            ) from None
        texts[name] = text.replace("\r\n", "\n")
    return texts


def _by_speaker(texts: Mapping[str, str], files: Files) -> dict[str, str]:
    """The speeches of each, joined, in the order of first appearance."""
    speeches: dict[str, list[str]] = {}
    for name, text in texts.items():
        for speaker, line in _spoken_lines(text):
            speeches.setdefault(f"{name}: {speaker}", []).append(line)
    if not speeches:
        raise DataError(
            f"{files.path} has no line that begins with `NAME:`; write the speaker so, or use "
            "dataset_args.split_by=file"
        )
    return {speaker: "\n".join(lines) for speaker, lines in speeches.items()}


def _spoken_lines(text: str) -> Iterator[tuple[str, str]]:
    speaker = None
    for line in text.split("\n"):
        if found := _SPEAKER.fullmatch(line):
            speaker, line = found[1], found[2] or ""
        if speaker is not None and line.strip():
            yield speaker, line


def _sequences(ids: list[int], length: int) -> tuple[Array, Array]:
    """Inputs and targets, int64 [n, T] each."""
    n = -(-(len(ids) - 1) // length)
    x, y = np.zeros(n * length, np.int64), np.full(n * length, IGNORED, np.int64)
    x[: len(ids) - 1], y[: len(ids) - 1] = ids[:-1], ids[1:]
    return x.reshape(n, length), y.reshape(n, length)
