"""What `module.weight` is: the shape of the rows without their values."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from .errors import NotSupported
from .definitions import Initial, Normal, Uniform, Zero

if TYPE_CHECKING:
    from .nn import RowsModule


def _filled(val: float) -> Initial:
    if val != 0.0:
        raise NotSupported(f"rows that begin at {val} are not there yet: begin at 0, or load them with copy_")
    return Zero()


def _normal(mean: float = 0.0, std: float = 1.0, *_: Any, **__: Any) -> Initial:
    if mean != 0.0:
        raise NotSupported(f"rows with the mean {mean} are not there yet: load them with copy_")
    return Normal(std)


def _uniform(a: float = 0.0, b: float = 1.0, *_: Any, **__: Any) -> Initial:
    if not math.isclose(a, -b):
        raise NotSupported(f"rows between {a} and {b} are not there yet: take a range around 0, or load them with copy_")
    return Uniform(b)


_INITIAL: dict[Any, Callable[..., Initial]] = {
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.zero_: lambda *_: Zero(),
    torch.Tensor.fill_: _filled,
    torch.nn.init.normal_: _normal,
    torch.nn.init.uniform_: _uniform,
    torch.nn.init.constant_: _filled,
}

#: Questions about the shape, which a tensor without values answers.
_SHAPE = frozenset(
    (
        torch.Tensor.size,
        torch.Tensor.dim,
        torch.Tensor.ndimension,
        torch.Tensor.numel,
        torch.Tensor.nelement,
        torch.Tensor.element_size,
        torch.Tensor.is_floating_point,
        torch.Tensor.is_complex,
        torch.Tensor.__len__,
        torch.Tensor.shape.__get__,  # type: ignore[attr-defined]
        torch.Tensor.ndim.__get__,  # type: ignore[attr-defined]
        torch.Tensor.dtype.__get__,  # type: ignore[attr-defined]
        torch.Tensor.device.__get__,
        torch.Tensor.layout.__get__,  # type: ignore[attr-defined]
        torch.Tensor.is_sparse.__get__,  # type: ignore[attr-defined]
    )
)

#: Functions of torch.nn.init that have no distribution of tables, by their code. They ask for the shape first, and some of them
#: change values before they come to what is refused, or return early.
_REFUSED = {
    inspect.unwrap(function).__code__: function.__name__
    for function in (
        torch.nn.init.sparse_,
        torch.nn.init.orthogonal_,
        torch.nn.init.trunc_normal_,
        torch.nn.init.eye_,
        torch.nn.init.dirac_,
    )
}
#: Those that ask for the number of rows.
_OF_SHAPE = {
    inspect.unwrap(function).__code__: function.__name__
    for function in (torch.nn.init.kaiming_normal_, torch.nn.init._calculate_fan_in_and_fan_out)
}

_IS_META: Any = torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]


class Weight(Tensor):
    """The rows of a table as a tensor without values.

    The functions of `torch.nn.init` set the initial values before the first look-up, and `copy_` loads rows. Anything else
    raises, because the rows are not in this process, or not in one place.
    """

    module: RowsModule

    @staticmethod
    def __new__(cls, module: RowsModule) -> Weight:
        size = (module.num_embeddings or 0, module.embedding_dim)
        weight: Weight = Tensor._make_subclass(cls, torch.empty(size, dtype=torch.float32, device="meta"))
        weight.module = module
        return weight

    @property
    def data(self) -> Weight:  # type: ignore[override]
        return self

    @property
    def requires_grad(self) -> bool:
        return self.module.handle.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.module.handle.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Weight:
        self.module.handle.requires_grad_(requires_grad)
        return self

    def detach(self) -> Weight:
        return self

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<rows of {self.module}>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        weight = args[0] if args else kwargs.get("tensor")
        if isinstance(weight, cls):
            if not args:
                args = (kwargs.pop("tensor"),)
            caller = sys._getframe(1).f_code
            if caller in _REFUSED:
                raise _not_supported(_REFUSED[caller])
            if caller in _OF_SHAPE and weight.module.num_embeddings is None:
                raise NotSupported(
                    f'table "{weight.module.table.label}" has no bound, so initial values cannot follow from the number of its '
                    "rows: take normal_ or uniform_ of torch.nn.init, or init="
                )
            if func == _IS_META:
                # Functions of torch.nn.init leave a tensor on the meta device as it is, without an error.
                return False
            if func in _SHAPE:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            if func in _INITIAL:
                kwargs.pop("generator", None)
                weight.module.table.set_initial(_INITIAL[func](*args[1:], **kwargs))
                return weight
            if func is torch.nn.init.kaiming_uniform_:
                # Its body calls the methods above.
                with torch._C.DisableTorchFunctionSubclass():
                    fan = torch.empty(weight.shape, device="meta")
                return _kaiming_uniform(weight, fan, *args[1:], **kwargs)
            if func is torch.Tensor.copy_:
                weight.module.load_rows(args[1])
                return weight
        raise _not_supported(getattr(func, "__name__", str(func)))


def _not_supported(name: str) -> NotSupported:
    return NotSupported(
        f"{name} of the rows of a table, which are on the parameter server: "
        "libra_ps.functional.rows(module, ids) reads some, libra_ps.to_torch(model) all; initial values are set by "
        "normal_, uniform_, zeros_, xavier_ and kaiming_ of torch.nn.init, and copy_ loads rows"
    )


def _kaiming_uniform(
    weight: Weight,
    shape: Tensor,
    a: float = 0,
    mode: Literal["fan_in", "fan_out"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Weight:
    if mode == "fan_out" and weight.module.num_embeddings is None:
        raise NotSupported(f'table "{weight.module.table.label}" has no bound, so mode="fan_out" has no number of rows')
    fan = torch.nn.init._calculate_correct_fan(shape, mode)
    bound = math.sqrt(3.0) * torch.nn.init.calculate_gain(nonlinearity, a) / math.sqrt(fan)  # type: ignore[arg-type]
    weight.module.table.set_initial(Uniform(bound))
    return weight
