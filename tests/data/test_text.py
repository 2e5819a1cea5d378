from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import from_dict
from fedasd_fast.data import DataError, federate, load_dataset, text
from fedasd_fast.data.text import _sequences, _spoken_lines, read_text
from fedasd_fast.data.verification import verify


def decoded(dataset, rows, part="train"):
    """The characters that a client's sequences stand for: its first one, then all targets."""
    samples = getattr(dataset, part)
    x, y = samples.inputs[rows], samples.targets[rows]
    return [int(x[0, 0]), *y[y != -100].tolist()]


def test_clients_are_files_and_characters_are_numbered_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"caba\r\ncab")
    (tmp_path / "a.txt").write_text("äcb")
    (tmp_path / ".hidden").write_text("zzz")
    data = load_dataset("text", path=str(tmp_path), sequence_length=2, test_fraction=0.5)
    number = {c: i for i, c in enumerate("\nabcä")}
    assert data.num_classes == 5
    assert data.users.tolist() == [0, 1, 1]  # one sequence of a.txt, two of four of b.txt
    assert decoded(data, data.users == 0) == [number[c] for c in "äcb"]
    assert decoded(data, data.users == 1) == [number[c] for c in "caba\n"]
    assert decoded(data, slice(None), "test") == [number[c] for c in "\ncab"]
    assert data.test.targets[-1, -1] == -100  # filled up
    assert data.train.inputs.dtype == torch.int64


def test_speakers_of_a_play() -> None:
    play = "A prologue.\nKING HENRY V:\nOnce more\n\nunto the breach\nNym: Pray thee: stay\n"
    play += "it is so: he said\nNym:\n  Go\n"
    assert list(_spoken_lines(play)) == [
        ("KING HENRY V", "Once more"), ("KING HENRY V", "unto the breach"), ("Nym", "Pray thee: stay"),
        ("Nym", "it is so: he said"), ("Nym", "  Go"),
    ]  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(ids=st.lists(st.integers(0, 9), min_size=2, max_size=60), length=st.integers(1, 20))
def test_sequences_hold_every_pair_of_neighbours_once(ids: list[int], length: int) -> None:
    x, y = _sequences(ids, length)
    assert x.shape == y.shape == (-(-(len(ids) - 1) // length), length)
    valid = y != -100
    assert list(zip(x[valid].tolist(), y[valid].tolist(), strict=True)) == list(itertools.pairwise(ids))
    assert valid.any(axis=1).all()


def test_the_included_text_is_that_of_scikit_learn() -> None:
    data = load_dataset("text")
    assert len(data.users.unique()) == len(text.INCLUDED) == 13
    assert data.num_classes > 60
    assert verify("text").train == len(data.train)


@pytest.mark.parametrize(
    ("content", "args", "message"),
    [
        (b"caf\xe9 au lait", {}, "play.txt is not UTF-8 .* at byte 3.; convert it with iconv"),
        (b"no speaker here", {"split_by": "speaker"}, "has no line that begins with `NAME:`"),
        (b"x", {}, "no text of two characters"),
        (b"short", {"sequence_length": 64}, "no client has enough text for a test sequence of 64"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path: Path, content: bytes, args: dict[str, object], message: str) -> None:
    (tmp_path / "play.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset("text", tmp_path, path="play.txt", **args)


def test_large_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("abcdefgh")
    monkeypatch.setattr(text, "MAX_TEXT_BYTES", 7)
    with pytest.raises(DataError, match="has more than 7 bytes of text; use a part of it"):
        load_dataset("text", tmp_path, path="a.txt")
    monkeypatch.setattr(text, "MAX_TEXT_BYTES", 8)
    monkeypatch.setattr(text, "MAX_CHARACTERS", 5)
    with pytest.raises(DataError, match="has 8 different characters; at most 5 are read"):
        load_dataset("text", tmp_path, path="a.txt")


def test_clients_without_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abababababab")
    (tmp_path / "empty.txt").write_text("")
    found = read_text(text.Files(tmp_path), text.TextOptions(sequence_length=2), text.DecodeContext())
    assert found.users.max() == 0
    assert found.notices == ("1 clients with fewer than two characters are left out, the first is empty.txt",)


def test_settings_and_partitions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 50)
    with pytest.raises(ConfigError, match="sequence_length = 0; expected a whole number of at least 1"):
        load_dataset("text", tmp_path, path="a.txt", sequence_length=0)
    with pytest.raises(ConfigError, match=r"test_fraction = 1.0; expected a fraction in \(0, 1\)"):
        load_dataset("text", tmp_path, path="a.txt", test_fraction=1.0)
    given = {"dataset": "text", "dataset_args": {"path": str(tmp_path / "a.txt"), "sequence_length": 5}, "clients": 4}
    with pytest.raises(
        ConfigError, match=r"partition = dirichlet_0.3, but text has sequences.*natural .with users. or iid"
    ):
        federate(from_dict(given))
    data = federate(from_dict({**given, "partition": "iid"}))
    assert data.sizes.tolist() == [4, 4, 4, 4]
    assert (data.positions, data.input_shape) == (5, (5,))
    assert np.array_equal(data.label_counts(0).numpy(), np.bincount(data.client(0).targets.flatten(), minlength=2))
