"""Label proportions: fa.label_prior, and the unchecked function behind it that the simulator uses."""

import pytest
import torch

import fedasd_fast as fa
from fedasd_fast.loss.label_prior import label_proportions


def test_label_prior_counts():
    targets = torch.tensor([0, 1, 1, 3])
    assert torch.equal(fa.label_prior(targets, 4), torch.tensor([0.25, 0.5, 0.0, 0.25]))
    padded = torch.tensor([[0, 1, 1, 3], [2, 2, -100, -100]])
    assert torch.equal(
        fa.label_prior(padded, 4, client_dim=0), torch.tensor([[0.25, 0.5, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]])
    )
    for bad, message in (
        (torch.tensor([4]), "label 4"),
        (torch.tensor([-1]), "label -1"),
        (torch.tensor([0.5]), "dtype"),
        (torch.tensor([], dtype=torch.long), "no label"),
        (torch.zeros(2, 2, 2, dtype=torch.long), "shape"),
    ):
        with pytest.raises(ValueError, match=message):
            fa.label_prior(bad, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_proportions_of_one_client_and_of_a_padded_stack_have_the_same_bits(dtype):
    generator = torch.Generator().manual_seed(0)
    clients = [torch.randint(7, (n,), generator=generator) for n in (1, 3, 11, 30)]
    padded = torch.nn.utils.rnn.pad_sequence(clients, batch_first=True, padding_value=-1)
    stacked = label_proportions(padded, 7, ignore_index=-1, dtype=dtype)
    for targets, row in zip(clients, stacked, strict=True):
        expected = torch.bincount(targets, minlength=7).to(dtype) / len(targets)
        assert torch.equal(row, expected)
        assert torch.equal(label_proportions(targets, 7, ignore_index=None, dtype=dtype), expected)
    assert stacked.dtype == dtype


def test_a_client_without_labels_has_proportions_of_zero():
    assert torch.equal(label_proportions(torch.tensor([[-100, -100], [1, -100]]), 2), torch.tensor([[0.0, 0], [0, 1]]))
    assert torch.equal(label_proportions(torch.zeros(0, dtype=torch.long), 3, ignore_index=None), torch.zeros(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], 2), "^targets is a list; expected a torch.Tensor"),
        ((torch.tensor([0, 1]), 2.5), "^num_classes is a float; expected an integer"),
        ((torch.tensor([0, 1]), "2"), "^num_classes is a str; expected an integer"),
        ((torch.tensor([0, 1]), 2**40), "^num_classes = 1099511627776; expected a positive number"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fa.label_prior(*arguments)
