"""Dense parameters that are kept on the servers, as rows of a table for each parameter group of an optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import NotSupported
from .session import Table, current
from .definitions import Definition, Zero

#: Values of a row: small enough that servers share the rows of a layer, large enough that keys cost nothing.
WIDTH = 4096


class DenseGroup:
    """The parameters of one group, one behind the other in the rows of a table. The last row is padded with zeros."""

    def __init__(self, name: str, parameters: Sequence[torch.nn.Parameter], group: int) -> None:
        self.parameters = list(parameters)
        self.group = group
        count = sum(parameter.numel() for parameter in self.parameters)
        self.rows = math.ceil(count / WIDTH)
        width = math.ceil(count / self.rows)
        self._flat = torch.zeros(self.rows * width, dtype=torch.float32, device="cpu")
        self._views = []
        begin = 0
        for parameter in self.parameters:
            self._views.append(self._flat[begin : begin + parameter.numel()].view_as(parameter))
            begin += parameter.numel()
        #: Servers have newer values than the parameters.
        self.is_spent = False
        definition = Definition(self.rows, width, False, Zero())
        session = current()
        self.table = session.find(name, definition) or Table(definition, name)
        self.table.open()
        self._session = session

    def send(self) -> None:
        """Sets the rows to the values of the parameters."""
        self._flat.zero_()
        with torch.no_grad():
            torch._foreach_copy_(self._views, [parameter.detach() for parameter in self.parameters])
        ids = torch.arange(self.rows, device="cpu")
        self._session.write_rows(self.table, ids.numpy(), self._flat.view(self.rows, -1).numpy())
        # Those of one worker count, or of a run before.
        self.is_spent = self._session.is_cluster

    def stage(self, gradients: Sequence[Tensor | None]) -> None:
        """Adds gradients to the next push of the session. A parameter without one has the gradient 0."""
        self._flat.zero_()
        pairs = [(view, gradient) for view, gradient in zip(self._views, gradients) if gradient is not None]
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [gradient for _, gradient in pairs])
        native, factor = self._session.native, self._session.factor
        native.stage(self.table.number, self.rows, self._flat.data_ptr(), factor)
        self.is_spent = True

    @property
    def place(self) -> tuple[int, int, int]:
        """Table, rows, and the address that their values are read to."""
        return self.table.number, self.rows, self._flat.data_ptr()

    def take(self) -> None:
        """Sets the parameters to the values that were read."""
        self.is_spent = False
        with torch.no_grad():
            torch._foreach_copy_([parameter.detach() for parameter in self.parameters], self._views)


def groups_of(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module, handles: Mapping[int, object]
) -> list[DenseGroup]:
    """Returns the dense parameters of an optimizer, by parameter group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = []
    for index, group in enumerate(optimizer.param_groups):
        dense = [parameter for parameter in group["params"] if id(parameter) not in handles and parameter.requires_grad]
        for parameter in dense:
            if not parameter.is_cpu or parameter.dtype is not torch.float32:
                raise NotSupported(
                    f'dense="server" is for parameters of float32 on the CPU, not {parameter.dtype} on {parameter.device}'
                )
        if dense:
            name = names.get(id(dense[0]), f"group-{index}")
            groups.append(DenseGroup(f"dense.{name}", dense, index))
    return groups


def keep_on_servers(model: torch.nn.Module, groups: Sequence[DenseGroup]) -> None:
    """Gives the values of parameters to the servers, and lets the model read them where it is saved and loaded."""
    session = current()

    def send(*_: object) -> None:
        for group in groups:
            group.send()

    send()
    session.dense.extend(groups)
    hooks: Any = model
    hooks.register_state_dict_pre_hook(lambda *_: session.refresh())
    hooks.register_load_state_dict_post_hook(send)
