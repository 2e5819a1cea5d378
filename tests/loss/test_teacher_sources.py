"""TeacherCache.build from what people have: Datasets, DataLoaders, dicts, Hugging Face models."""

from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import fedasd_fast as fa

N, FEATURES, CLASSES = 23, 6, 4
Sample = namedtuple("Sample", "inputs targets")


class Dictionaries(Dataset):
    """As tokenised texts come: dicts with the label under `labels`."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        x, y = SAMPLES
        return {"input_ids": x[i], "attention_mask": torch.ones(FEATURES), "labels": int(y[i])}


class Together(TensorDataset):
    """Reads a batch at once, as some stored datasets do."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.calls = 0

    def __getitems__(self, indices):
        self.calls += 1
        return [self[i] for i in indices]


class KeywordModel(nn.Module):
    """Called and answering as models of Hugging Face: keywords in, an output with .logits out."""

    def __init__(self, output):
        super().__init__()
        self.linear, self.output = MODEL, output

    def forward(self, input_ids, attention_mask, labels=None):
        assert labels is None
        return self.output(self.linear(input_ids * attention_mask))


torch.manual_seed(0)
SAMPLES = torch.randn(N, FEATURES), torch.randint(CLASSES, (N,))
MODEL = nn.Linear(FEATURES, CLASSES)
with torch.no_grad():
    LOGITS = MODEL(SAMPLES[0])
EXPECTED = fa.TeacherCache.from_logits(LOGITS, SAMPLES[1], fa.label_prior(SAMPLES[1], CLASSES))


def assert_expected(cache):
    for name in ("rows", "constant", "log_weight", "targets", "label_prior"):
        torch.testing.assert_close(getattr(cache, name), getattr(EXPECTED, name), rtol=1e-5, atol=1e-6)


SOURCES = {
    "dataset": lambda: TensorDataset(*SAMPLES),
    "dataset with rows": lambda: fa.with_rows(TensorDataset(*SAMPLES)),
    "subset": lambda: Subset(TensorDataset(*(torch.cat([x, x]) for x in SAMPLES)), range(N, 2 * N)),
    "loader": lambda: DataLoader(TensorDataset(*SAMPLES), batch_size=5),
    "shuffled loader with rows": lambda: DataLoader(fa.with_rows(TensorDataset(*SAMPLES)), batch_size=5, shuffle=True),
    "loader with workers": lambda: DataLoader(fa.with_rows(TensorDataset(*SAMPLES)), 5, shuffle=True, num_workers=2),
    "loader of named tuples": lambda: DataLoader([Sample(x, y) for x, y in zip(*SAMPLES, strict=True)], 5),
    "shuffled named tuples": lambda: DataLoader(
        fa.with_rows([Sample(x, y) for x, y in zip(*SAMPLES, strict=True)]), 5, shuffle=True
    ),
    "batches read at once": lambda: DataLoader(fa.with_rows(Together(*SAMPLES)), batch_size=5, shuffle=True),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_row_i_is_sample_i(source):
    assert_expected(fa.TeacherCache.build(MODEL, source(), batch_size=4))


def test_proportions_and_labels_may_be_given():
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4])
    cache = fa.TeacherCache.build(MODEL, TensorDataset(*SAMPLES), label_prior=prior)
    assert torch.equal(cache.label_prior, prior)
    inputs_only = TensorDataset(SAMPLES[0])
    assert_expected(fa.TeacherCache.build(MODEL, inputs_only, SAMPLES[1]))
    shuffled = DataLoader(fa.with_rows(inputs_only), batch_size=5, shuffle=True)
    assert_expected(fa.TeacherCache.build(MODEL, shuffled, SAMPLES[1]))


def test_shuffled_batches_find_their_rows():
    """The loop of the documentation."""
    dataset = fa.with_rows(TensorDataset(*SAMPLES))
    cache = fa.TeacherCache.build(MODEL, dataset)
    student = nn.Linear(FEATURES, CLASSES)
    seen = []
    for x, y, rows in DataLoader(dataset, batch_size=5, shuffle=True):
        loss = fa.asd_loss(student(x), cache[rows], y, None)
        expected = fa.asd_loss(student(x), MODEL(x).detach(), y, cache.label_prior)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        seen += rows.tolist()
    assert sorted(seen) == list(range(N))


def test_with_rows():
    numbered = fa.with_rows(TensorDataset(*SAMPLES))
    assert len(numbered) == N
    assert numbered[3][2] == 3
    assert numbered[-1][2] == N - 1
    assert fa.with_rows(Dictionaries())[2]["rows"] == 2
    assert fa.with_rows(torch.arange(5) * 2)[3] == (torch.tensor(6), 3)
    together = Together(*SAMPLES)
    batches = list(DataLoader(fa.with_rows(together), batch_size=10))
    assert together.calls == 3
    assert torch.equal(batches[1][2], torch.arange(10, 20))
    with pytest.raises(IndexError):
        numbered[N]
    with pytest.raises(TypeError, match="dataset is a DataLoader; expected a Dataset"):
        fa.with_rows(DataLoader(TensorDataset(*SAMPLES)))
    with pytest.raises(ValueError, match='a key "rows" already'):
        fa.with_rows([{"rows": 1}])[0]


OUTPUTS = {
    "logits": lambda logits: logits,
    "attribute": lambda logits: SimpleNamespace(logits=logits),
    "dict": lambda logits: OrderedDict(loss=torch.zeros(()), logits=logits),
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_dicts_and_model_outputs(output):
    model = KeywordModel(output)
    inputs = {"input_ids": SAMPLES[0], "attention_mask": torch.ones(N, FEATURES)}
    prior = fa.label_prior(SAMPLES[1], CLASSES)
    assert_expected(fa.TeacherCache.build(model, inputs, SAMPLES[1], prior, batch_size=7))
    assert_expected(fa.TeacherCache.build(model, Dictionaries(), batch_size=7))
    shuffled = DataLoader(fa.with_rows(Dictionaries()), batch_size=5, shuffle=True)
    assert_expected(fa.TeacherCache.build(model, shuffled))
    pairs = [({"input_ids": x, "attention_mask": torch.ones(FEATURES)}, y) for x, y in zip(*SAMPLES, strict=True)]
    assert_expected(fa.TeacherCache.build(model, DataLoader(pairs, batch_size=5)))


def test_dict_inputs_of_many_clients():
    inputs = {"input_ids": torch.randn(3, 5, FEATURES), "attention_mask": torch.ones(3, 5, FEATURES)}
    targets = torch.randint(CLASSES, (3, 5))
    prior = fa.label_prior(targets, CLASSES, client_dim=0)
    cache = fa.TeacherCache.build(KeywordModel(OUTPUTS["attribute"]), inputs, targets, prior, client_dim=0)
    with torch.no_grad():
        logits = MODEL(inputs["input_ids"])
    torch.testing.assert_close(cache.rows, fa.TeacherCache.from_logits(logits, targets, prior, client_dim=0).rows)


def test_forward_replaces_the_call_of_the_model():
    def forward(model, batch):
        assert not model.training
        return {"logits": model.linear(batch["input_ids"])}

    model = KeywordModel(OUTPUTS["logits"]).train()
    loader = DataLoader(fa.with_rows(Dictionaries()), batch_size=5, shuffle=True)
    assert_expected(fa.TeacherCache.build(model, loader, forward=forward))
    assert model.training
    prior = fa.label_prior(SAMPLES[1], CLASSES)
    cache = fa.TeacherCache.build(MODEL, SAMPLES[0] / 2, SAMPLES[1], prior, forward=lambda m, x: m(2 * x))
    assert_expected(cache)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
    ids=str,
)
def test_dtype_follows_the_logits(dtype, stored):
    prior = fa.label_prior(SAMPLES[1], CLASSES)
    logits = LOGITS.to(dtype)
    assert fa.TeacherCache.from_logits(logits, SAMPLES[1], prior).rows.dtype == stored
    half = fa.TeacherCache.from_logits(logits, SAMPLES[1], prior, dtype=torch.float16)
    assert half.rows.dtype == torch.float16


def test_a_cache_of_float64_logits_is_exact():
    wide = fa.TeacherCache.build(nn.Identity(), TensorDataset(LOGITS.double(), SAMPLES[1]))
    assert (wide.rows.dtype, wide.label_prior.dtype) == (torch.float64, torch.float64)
    student = torch.randn(N, CLASSES, dtype=torch.float64)
    raw = fa.asd_loss(student, LOGITS.double(), SAMPLES[1], wide.label_prior)
    torch.testing.assert_close(fa.asd_loss(student, wide[:], SAMPLES[1], None), raw, rtol=1e-12, atol=1e-12)


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*SAMPLES, strict=True)


def loader(**options):
    return DataLoader(TensorDataset(*SAMPLES), **{"batch_size": 5, **options})


def numbered_loader(**options):
    return DataLoader(fa.with_rows(TensorDataset(*SAMPLES)), batch_size=5, **options)


IN_ORDER = "does not go through its dataset in order.*with_rows"
WRONG = {
    "shuffled": (lambda: loader(shuffle=True), ValueError, IN_ORDER),
    "own sampler": (lambda: loader(sampler=[1, 0]), ValueError, IN_ORDER),
    "own batches": (
        lambda: DataLoader(TensorDataset(*SAMPLES), batch_sampler=BatchSampler([3, 1], 2, False)),
        ValueError,
        IN_ORDER,
    ),
    "drop_last": (lambda: loader(drop_last=True), ValueError, "gave 20 rows of 23 samples"),
    "drop_last with rows": (
        lambda: numbered_loader(shuffle=True, drop_last=True),
        ValueError,
        "gave 20 rows of 23 samples.*pass its dataset",
    ),
    "rows twice": (
        lambda: numbered_loader(sampler=[*range(N - 1), 0]),
        ValueError,
        "gave 23 rows of 23 samples, not each of them once",
    ),
    "no batches": (lambda: loader(batch_size=None), ValueError, "batch_size=None"),
    "stream": (lambda: DataLoader(Stream(), 5), TypeError, "inputs is a Stream; expected a Dataset with a length"),
    "no labels": (lambda: TensorDataset(SAMPLES[0]), ValueError, "without labels.*pass targets"),
    "float labels": (lambda: TensorDataset(SAMPLES[0], torch.ones(N)), ValueError, "targets has dtype"),
    "label out of range": (lambda: TensorDataset(SAMPLES[0], SAMPLES[1] + CLASSES), ValueError, "neither a class in"),
    "empty": (lambda: TensorDataset(SAMPLES[0][:0], SAMPLES[1][:0]), ValueError, "inputs has no samples"),
    "array": (lambda: SAMPLES[0].numpy(), TypeError, r"inputs is a ndarray; .*torch.from_numpy\(inputs\)"),
    "nothing": (lambda: None, TypeError, "inputs is a NoneType; expected a torch.Tensor, a dict of tensors, a Dataset"),
    "list": (lambda: list(SAMPLES[0]), TypeError, "inputs is a list; expected a torch.Tensor"),
}


@pytest.mark.parametrize(("source", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_sources_say_what_to_pass(source, error, message):
    with pytest.raises(error, match=message):
        fa.TeacherCache.build(MODEL, source())


def test_wrong_arguments_say_what_to_pass():
    prior = fa.label_prior(SAMPLES[1], CLASSES)
    with pytest.raises(TypeError, match=r"targets is a NoneType; expected a torch.Tensor of labels"):
        fa.TeacherCache.build(MODEL, SAMPLES[0])
    with pytest.raises(TypeError, match=r"label_prior is a NoneType; .*label_prior\(targets, num_classes\)"):
        fa.TeacherCache.build(MODEL, *SAMPLES)
    with pytest.raises(ValueError, match="client_dim = 0, but a Dataset holds one client"):
        fa.TeacherCache.build(MODEL, TensorDataset(*SAMPLES), client_dim=0)
    with pytest.raises(TypeError, match="forward is a str"):
        fa.TeacherCache.build(MODEL, *SAMPLES, prior, forward="logits")
    with pytest.raises(ValueError, match=r"the model returned list for 23 inputs.*pass forward="):
        fa.TeacherCache.build(MODEL, *SAMPLES, prior, forward=lambda m, x: [m(x)])
    with pytest.raises(ValueError, match=r"inputs\['b'\] has shape"):
        fa.TeacherCache.build(MODEL, {"a": SAMPLES[0], "b": SAMPLES[0][:3]}, SAMPLES[1], prior)
    with pytest.raises(ValueError, match="targets has shape"):
        fa.TeacherCache.build(MODEL, TensorDataset(*SAMPLES), SAMPLES[1][:4])


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_what_is_no_teacher_says_what_to_pass(implementation):
    student, targets, keywords = torch.randn(N, CLASSES), SAMPLES[1], dict(implementation=implementation)
    with pytest.raises(TypeError, match=r"teacher_logits is a TeacherCache; .*pass cache\[rows\], or cache\[:\]"):
        fa.asd_loss(student, EXPECTED, targets, None, **keywords)
    with pytest.raises(TypeError, match=r"teacher_logits is a ndarray; .*torch.from_numpy\(teacher_logits\)"):
        fa.asd_loss(student, LOGITS.numpy(), targets, EXPECTED.label_prior, **keywords)
    with pytest.raises(TypeError, match=r"targets is a ndarray; expected a torch.Tensor"):
        fa.asd_loss(student, LOGITS, targets.numpy(), EXPECTED.label_prior, **keywords)
    with pytest.raises(TypeError, match=r"teacher_logits is a DataLoader; expected a torch.Tensor, or cache"):
        fa.asd_loss(student, loader(), targets, None, **keywords)
    with pytest.raises(ValueError, match=r"teacher_logits = None.*cache\[rows\]"):
        fa.asd_loss(student, None, targets, None, **keywords)


def test_what_is_no_row_number_says_what_to_pass():
    student, targets = torch.randn(N, CLASSES), SAMPLES[1]
    for rows in (None, loader(), EXPECTED, "all"):
        with pytest.raises(TypeError, match=f"rows is a {type(rows).__name__}; expected row numbers.*with_rows"):
            EXPECTED[rows]
    for rows in (np.arange(3), torch.arange(3, dtype=torch.int32), [0, 1, 2], range(3)):
        loss = fa.asd_loss(student[:3], EXPECTED[rows], targets[:3], None)
        assert torch.equal(loss, fa.asd_loss(student[:3], EXPECTED[:3], targets[:3], None))
    with pytest.raises(IndexError, match=r"rows has dtype torch.float64.*expected int64 or int32 row numbers \[B\]"):
        EXPECTED[np.arange(3.0)]
    with pytest.raises(TypeError, match=r"targets is a ndarray; .*torch.from_numpy\(targets\)"):
        fa.label_prior(targets.numpy(), CLASSES)
