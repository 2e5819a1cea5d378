"""A teacher cache on another device, in a file, and in torch.save."""

import json
import pickle
import struct

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.loss.options import ASDOptions
from tests.conftest import make_batch

TENSORS = ("rows", "constant", "log_weight", "targets", "label_prior")


def make_cache(shape=(7, 5), **keywords):
    batch = make_batch(shape, ignored=0.2)
    return batch, fa.TeacherCache.from_logits(
        batch.teacher, batch.targets, batch.prior, client_dim=batch.client_dim, **keywords
    )


def assert_same(cache, other):
    assert type(cache) is type(other) is fa.TeacherCache
    assert (cache.key, cache.log_rows) == (other.key, other.log_rows)
    for name in TENSORS:
        a, b = getattr(cache, name), getattr(other, name)
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


KINDS = [
    dict(),
    dict(dtype=torch.float64, log_rows=True, temperature=3.0),
    dict(dtype=torch.float16, not_true=True),
    dict(dtype=torch.bfloat16, prior_power=0.5),
    dict(shape=(2, 3, 5)),
    dict(shape=(0, 5)),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_save_and_load(kind, tmp_path):
    batch, cache = make_cache(**kind)
    cache.save(tmp_path / "cache.safetensors")
    loaded = fa.TeacherCache.load(str(tmp_path / "cache.safetensors"))
    assert_same(cache, loaded)
    options = dict(zip(ASDOptions.TEACHER_FIELDS, cache.key, strict=True), client_dim=batch.client_dim)
    losses = [fa.asd_loss(batch.student, x[:], batch.targets, None, **options) for x in (cache, loaded)]
    assert torch.equal(*losses)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_torch_save_needs_no_trust(kind, tmp_path):
    _, cache = make_cache(**kind)
    torch.save({"round": 3, "teacher": cache}, tmp_path / "state.pt")
    assert_same(cache, torch.load(tmp_path / "state.pt", weights_only=True)["teacher"])
    assert_same(cache, pickle.loads(pickle.dumps(cache)))


def test_to_device():
    _, cache = make_cache()
    assert_same(cache, cache.to("cpu"))
    moved = cache.to(torch.device("meta"))
    assert {getattr(moved, name).device.type for name in TENSORS} == {"meta"}
    assert [getattr(moved, name).dtype for name in TENSORS] == [getattr(cache, name).dtype for name in TENSORS]
    assert cache.rows.device.type == "cpu"


def rewrite(path, change):
    """The file with another header."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def metadata(**values):
    return lambda header: header["__metadata__"].update(values)


FORGED = {
    "shape": lambda h: h["constant"].update(shape=[7, 1]),
    "negative size": lambda h: h["rows"].update(shape=[-7, -5]),
    "huge size": lambda h: h["rows"].update(shape=[2**62, 2**62]),
    "beyond the end": lambda h: h["rows"].update(data_offsets=[0, 10**9]),
    "unknown type": lambda h: h["rows"].update(dtype="F8"),
    "other type": lambda h: h["constant"].update(dtype="I64"),
    "no offsets": lambda h: h["targets"].pop("data_offsets"),
    "tensor missing": lambda h: h.pop("log_weight"),
    "tensor too many": lambda h: h.update(more=h["rows"]),
    "no options": lambda h: h["__metadata__"].pop("key"),
    "metadata": lambda h: h.update(__metadata__=[]),
    "entry": lambda h: h.update(rows=3),
    "not a cache": metadata(format="pt"),
    "newer version": metadata(version="2"),
    "four options": metadata(key="[2.0, 1.0, 1.0, 1.0]"),
    "temperature 0": metadata(key="[0.0, 1.0, 1.0, 1.0, false]"),
    "options of another kind": metadata(key='["2", 1.0, 1.0, 1.0, false]'),
    "log_rows": metadata(log_rows="3"),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_files_are_refused(change, tmp_path):
    path = tmp_path / "cache.safetensors"
    make_cache()[1].save(path)
    rewrite(path, lambda header: None)
    assert_same(fa.TeacherCache.load(path), make_cache()[1])
    rewrite(path, change)
    with pytest.raises(ValueError, match=r"cache.safetensors (is not a safetensors file|does not hold a TeacherCache)"):
        fa.TeacherCache.load(path)


def test_files_that_are_cut_off_are_refused(tmp_path):
    path = tmp_path / "cache.safetensors"
    make_cache()[1].save(path)
    content = path.read_bytes()
    for size in (0, 4, 8, 100, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="is not a safetensors file"):
            fa.TeacherCache.load(path)


def test_a_forged_pickle_is_refused(tmp_path):
    _, cache = make_cache()
    cache.__dict__["constant"] = torch.zeros(3)
    torch.save(cache, tmp_path / "state.pt")
    with pytest.raises(Exception, match="constant has dtype"):
        torch.load(tmp_path / "state.pt", weights_only=True)
