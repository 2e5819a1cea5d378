"""client_dim: what more than two dimensions mean is said, never guessed."""

import pytest
import torch

import fedasd_fast as fa
from tests.conftest import make_batch

LOSSES = {
    "asd_loss": lambda batch, **keywords: fa.asd_loss(*batch, **keywords),
    "asd_objective": lambda batch, **keywords: fa.asd_objective(*batch, 3.0, **keywords),
    "asd_loss_and_grad": lambda batch, **keywords: fa.asd_loss_and_grad(*batch, 3.0, **keywords)[0],
    "ASDLoss": lambda batch, **keywords: fa.ASDLoss(3.0, **keywords)(*batch),
    "from_logits": lambda batch, **keywords: fa.TeacherCache.from_logits(*list(batch)[1:], **keywords),
}
REFERENCE = {
    "asd_loss": lambda batch, **keywords: fa.reference.asd_loss(*batch, **keywords),
    "asd_objective": lambda batch, **keywords: fa.reference.asd_objective(*batch, 3.0, **keywords),
}
CALLS = [*LOSSES.values(), *REFERENCE.values()]
IDS = [*LOSSES, *(f"reference.{name}" for name in REFERENCE)]
BOTH_READINGS = r"has shape \(.*may mean clients or the positions of one batch.*client_dim=0.*\.flatten\(0, -2\)"


@pytest.mark.parametrize("call", CALLS, ids=IDS)
@pytest.mark.parametrize("shape", [(2, 4, 6), (2, 3, 4, 6)], ids=str)
def test_more_than_two_dimensions_without_it_name_both_readings(call, shape):
    with pytest.raises(ValueError, match=BOTH_READINGS):
        call(make_batch(shape))


@pytest.mark.parametrize("call", CALLS, ids=IDS)
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 6)], ids=str)
def test_it_asks_for_exactly_one_dimension_of_clients(call, shape):
    with pytest.raises(ValueError, match=r"has shape .*expected \[K, B, C\] with client_dim=0"):
        call(make_batch(shape), client_dim=0)


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_other_values_are_refused(call):
    for value in (1, -3):
        with pytest.raises(ValueError, match=f"client_dim = {value}; expected 0 or None"):
            call(make_batch((2, 4, 6)), client_dim=value)
    with pytest.raises(TypeError, match="client_dim is a str"):
        call(make_batch((2, 4, 6)), client_dim="0")


@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_clients_and_positions_are_different_losses(implementation):
    clients = make_batch((3, 4, 6), torch.float64)
    prior = clients.prior[0]
    each = fa.asd_loss(
        clients.student, clients.teacher, clients.targets, prior.expand(3, 6), client_dim=0,
        implementation=implementation,
    )  # fmt: skip
    for k, loss in enumerate(each):
        own = [tensor[k] for tensor in (clients.student, clients.teacher, clients.targets)]
        torch.testing.assert_close(loss, fa.asd_loss(*own, prior))
    positions = fa.asd_loss(
        clients.student.flatten(0, -2), clients.teacher.flatten(0, -2), clients.targets.flatten(), prior,
        implementation=implementation,
    )  # fmt: skip
    assert (positions - each.mean()).abs() > 1e-3  # each client is normalised on its own


def test_label_prior():
    targets = torch.tensor([[0, 1, 1], [2, 2, 2]])
    with pytest.raises(ValueError, match=r"targets has shape \(2, 3\).*client_dim=0.*targets\.flatten\(\)"):
        fa.label_prior(targets, 3)
    each = fa.label_prior(targets, 3, client_dim=0)
    torch.testing.assert_close(each, torch.tensor([[1 / 3, 2 / 3, 0], [0, 0, 1]]))
    torch.testing.assert_close(fa.label_prior(targets.flatten(), 3), each.mean(0))
    with pytest.raises(ValueError, match=r"expected \[K, N\] with client_dim=0"):
        fa.label_prior(targets[0], 3, client_dim=0)


def test_a_cache_of_a_language_model_says_what_to_do():
    """Token ids [N, T] and logits [B, T, C]."""
    model, tokens = torch.nn.Embedding(7, 7), torch.randint(7, (5, 4))
    prior = fa.label_prior(tokens.flatten(), 7)
    with pytest.raises(ValueError, match=r"targets has shape \(5, 4\).*client_dim=0.*targets\.flatten\(\)"):
        fa.TeacherCache.build(model, tokens, tokens, prior)
    with torch.no_grad():
        logits = model(tokens).flatten(0, -2)
    cache = fa.TeacherCache.from_logits(logits, tokens.flatten(), prior)
    rows = torch.arange(8, 12)  # the positions of the third text
    loss = fa.asd_loss(torch.zeros(4, 7), cache[rows], tokens[2], None)
    torch.testing.assert_close(loss, fa.asd_loss(torch.zeros(4, 7), logits[rows], tokens[2], prior))


def test_vmap_needs_no_client_dim_inside():
    batch = make_batch((3, 4, 6))
    inside = torch.func.vmap(lambda *one: fa.asd_objective(*one, 3.0))(*batch)
    torch.testing.assert_close(inside, fa.asd_objective(*batch, 3.0, client_dim=0))
    with pytest.raises(ValueError, match=BOTH_READINGS):
        torch.func.vmap(lambda *one: fa.asd_objective(*one, 3.0))(*make_batch((2, 3, 4, 6)))
