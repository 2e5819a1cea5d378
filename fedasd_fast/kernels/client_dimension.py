"""Whether the first dimension of a tensor is that of clients: what callers must say, for shapes alone do not tell."""

from __future__ import annotations

from torch import Tensor

from .checks import as_int64, require


def check_dimensions(tensor: Tensor, name: str, client_dim: int | None, own: int = 2) -> None:
    """`own` dimensions ([B, C], or [B] for labels), and one of clients before them if it is asked for.

    Clients are normalised one by one, the positions of a sequence all together: what is meant must be said.
    """
    if client_dim is not None:
        require(as_int64(client_dim, "client_dim") == 0, f"client_dim = {client_dim}; expected 0 or None")
    shape, one = tuple(tensor.shape), ("[B, C]" if own == 2 else "[N]")
    if client_dim is None and tensor.dim() > own:
        flat = f"{name}.flatten(0, -2)" if own == 2 else f"{name}.flatten()"
        raise ValueError(
            f"{name} has shape {shape}, which may mean clients or the positions of one batch: pass client_dim=0 if the "
            f"first dimension is that of clients ([K, {one[1:]}), or {flat} and so on if all belong to one batch"
        )
    expected = one if client_dim is None else f"[K, {one[1:]} with client_dim=0"
    require(tensor.dim() == own + (client_dim is not None), f"{name} has shape {shape}; expected {expected}")
