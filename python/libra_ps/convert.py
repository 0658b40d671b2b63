"""Models of plain torch to tables, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch

from . import nn, optim
from .errors import NotSupported
from .session import current
from .definitions import Rule, Zero

_Model = TypeVar("_Model", bound=torch.nn.Module)
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)


def wrap(
    model: _Model,
    optimizer: _Optimizer,
    *,
    min_rows: int = 0,
    names: Mapping[str, str] | None = None,
    tables: Mapping[str, Rule] | None = None,
    dense: str | None = None,
) -> tuple[_Model, _Optimizer]:
    """Moves the rows of every `nn.Embedding` and `nn.EmbeddingBag` of at least `min_rows` to the parameter server.

    `names` are names of tables by qualified name of the module; `tables` are rules by name of the table; `dense` is as in
    `libra_ps.optim.wrap`. Both arguments are changed and returned.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a module, not {type(model).__name__}: call wrap(model, optimizer)")
    replaced: dict[int, torch.nn.Parameter] = {}
    made: dict[int, nn.RowsModule] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) not in (torch.nn.Embedding, torch.nn.EmbeddingBag) or module.num_embeddings < min_rows:
            continue
        if not path:
            raise NotSupported("the model itself is an embedding: put it into a module")
        weight: torch.nn.Parameter = module.weight
        if _has_stepped(optimizer.state.get(weight, {})):
            raise NotSupported(f"{path}: the optimizer has state of it, which cannot be moved yet: wrap before training")
        if id(module) not in made:
            name = (names or {}).get(path, path)
            made[id(module)] = _convert(module, name, shares=weight, shared=replaced)
            replaced[id(weight)] = made[id(module)].handle
        parent, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(parent), attribute, made[id(module)])
    if not made:
        are_here = any(isinstance(module, nn.RowsModule) for module in model.modules())
        hint = ": those of libra_ps.nn take libra_ps.optim.wrap(optimizer, model)" if are_here else ""
        raise ValueError(f"the model has no nn.Embedding or nn.EmbeddingBag of at least {min_rows} rows{hint}")
    for parameter in [parameter for parameter in optimizer.state if id(parameter) in replaced]:
        del optimizer.state[parameter]
    optim.replace_handles(optimizer, replaced)
    return model, optim.wrap(optimizer, model, tables, dense)


def _has_stepped(state: Mapping[str, object]) -> bool:
    """Returns true if a step has changed the state of a parameter; Adagrad makes it before the first step."""
    return any(bool(value.any()) if isinstance(value, torch.Tensor) else bool(value) for value in state.values())


def _convert(
    module: torch.nn.Module, name: str, shares: torch.nn.Parameter, shared: Mapping[int, torch.nn.Parameter]
) -> nn.RowsModule:
    if id(shares) in shared:
        raise NotSupported(f"{name}: its weight is that of another module too: use one libra_ps.nn module for both")
    assert isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))
    is_meta = module.weight.is_meta
    options = {
        "padding_idx": module.padding_idx,
        "max_norm": module.max_norm,
        "scale_grad_by_freq": module.scale_grad_by_freq,
        "_weight": None if is_meta else module.weight.data,
        "_freeze": not module.weight.requires_grad,
        "name": name,
        # Rows that are loaded anyway need no draws.
        "init": None if is_meta else Zero(),
    }
    made: nn.RowsModule
    if isinstance(module, torch.nn.Embedding):
        made = nn.Embedding(module.num_embeddings, module.embedding_dim, **options)  # type: ignore[arg-type]
    else:
        made = nn.EmbeddingBag(
            module.num_embeddings,
            module.embedding_dim,
            mode=module.mode,
            include_last_offset=module.include_last_offset,
            **options,  # type: ignore[arg-type]
        )
    made.train(module.training)
    return made


def to_torch(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a model in plain torch, with all rows."""
    session = current()
    session.begin()
    session.refresh()
    with nn.copying_to_torch():
        return copy.deepcopy(model)
