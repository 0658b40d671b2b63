"""Look-ups as functions of autograd.

Each table has a *handle*, a parameter of one element whose gradient is the L2 norm of the gradient of its rows.
Backward passes sum gradients by id in the native module; the handle's post-accumulate hook commits them and
writes the norm. What torch then does to the handle's gradient (clearing, clipping, unscaling) is done to the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from . import _native
from .errors import Error, NotPushed, NotSupported
from .session import Session, Table

if TYPE_CHECKING:
    from .nn import EmbeddingBag, RowsModule

_task: Any = torch._C._current_graph_task_id
_thread = threading.get_ident


_MODES = {"sum": 0, "mean": 1, "max": 2}
_ROWS, _EVEN, _OFFSETS = 0, 1, 2

#: Outputs are made by it: torch.empty with a type and a device takes longer.
_CPU = torch.empty(0, dtype=torch.float32, device="cpu")

#: Gradient of a handle, of which each pass has a copy: its hook writes the norm into it.
_ZERO = torch.zeros(1, dtype=torch.float32, device="cpu")

#: Table, address of ids, number of ids, 64 bits, padding id, shape, mode, bags or address of offsets, size of a bag or number
#: of offsets, last offset is the end, address of weights, divides by frequency.
NativeRequest: TypeAlias = tuple[int, int, int, bool, "int | None", int, int, int, int, bool, int, bool]


class Request(NamedTuple):
    """A look-up of one table."""

    #: As the native module takes it.
    native: NativeRequest
    size: tuple[int, ...]
    #: Tensors whose memory is used.
    tensors: tuple[Tensor | None, ...]


def prepare_ids(ids: Tensor, name: str) -> Tensor:
    """Returns ids on the CPU, contiguous, of 32 or 64 bits."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, not {type(ids).__name__}")
    if ids.dtype is not torch.int64 and ids.dtype is not torch.int32:
        if ids.dtype not in (torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32):
            hint = ": view(torch.int64) keeps the bits, for a table with hash=True" if ids.dtype is torch.uint64 else ""
            raise TypeError(f"{name} must be int64 or int32, not {ids.dtype}{hint}")
        ids = ids.to(torch.int64)
    if not ids.is_cpu:
        ids = ids.cpu()
    return ids if ids.is_contiguous() else ids.contiguous()


def request_rows(table: Table, ids: Tensor, padding: int | None, by_frequency: bool) -> Request:
    """Describes a look-up without pooling."""
    ids = prepare_ids(ids, "input")
    count = ids.numel()
    is_wide = ids.dtype is torch.int64
    size = (*ids.shape, table.definition.width)
    native = (table.number, ids.data_ptr(), count, is_wide, padding, _ROWS, 0, 0, 0, False, 0, by_frequency)
    return Request(native, size, (ids,))


def request_bags(
    table: Table,
    ids: Tensor,
    offsets: Tensor | None,
    weights: Tensor | None,
    mode: str,
    includes_last: bool,
    padding: int | None,
    by_frequency: bool,
) -> Request:
    """Describes a look-up with pooling."""
    ids = prepare_ids(ids, "input")
    if weights is not None:
        if mode != "sum":
            raise NotImplementedError(f'per_sample_weights are for mode "sum", not "{mode}"')
        if weights.shape != ids.shape:
            raise ValueError(f"per_sample_weights have the shape {tuple(weights.shape)}, input has {tuple(ids.shape)}")
    width = table.definition.width
    if ids.dim() == 2:
        if offsets is not None:
            raise ValueError("offsets are for an input of one dimension; the rows of one of two are the bags")
        bags, second = ids.shape
        shape, first = _EVEN, bags
    elif ids.dim() == 1:
        if offsets is None:
            raise ValueError("offsets are needed for an input of one dimension")
        offsets = prepare_ids(offsets, "offsets")
        if offsets.dim() != 1:
            raise ValueError(f"offsets must have one dimension, not {offsets.dim()}")
        if offsets.dtype is not ids.dtype:
            offsets, ids = offsets.to(torch.int64), ids.to(torch.int64)
        shape, first, second = _OFFSETS, offsets.data_ptr(), offsets.numel()
        bags = max(second - includes_last, 0)
    else:
        raise ValueError(f"input must have one or two dimensions, not {ids.dim()}")
    address = 0
    if weights is not None:
        weights = weights.detach().to(dtype=torch.float32, device="cpu").contiguous()
        address = weights.data_ptr()
    native = (
        table.number,
        ids.data_ptr(),
        ids.numel(),
        ids.dtype is torch.int64,
        padding,
        shape,
        _MODES[mode],
        first,
        second,
        includes_last,
        address,
        by_frequency,
    )
    return Request(native, (bags, width), (ids, offsets, weights))


class _LookUp(torch.autograd.Function):
    """One look-up: (handle, weights or None) -> output."""

    @staticmethod
    def forward(
        ctx: Any, handle: Tensor, weights: Tensor | None, table: Table, session: Session, request: Request, is_apart: bool
    ) -> Tensor:
        output = _CPU.new_empty(request.size)
        (ctx.lookup,) = session.native.look_up([request.native], [output.data_ptr()], is_apart, True)
        ctx.table = table
        ctx.session = session
        ctx.weights = None if weights is None else (weights.shape, weights.dtype, weights.device)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        of_rows = ctx.needs_input_grad[0]
        if of_rows:
            check_pushed(ctx.table)
        gradient, stride = _prepare_gradient(gradients[0])
        of_weights, address = None, 0
        if ctx.weights is not None and ctx.needs_input_grad[1]:
            shape, dtype, device = ctx.weights
            of_weights = torch.empty(shape, dtype=torch.float32, device="cpu")
            address = of_weights.data_ptr()
        ctx.session.native.backward(_task(), _thread(), [(ctx.lookup, gradient.data_ptr(), stride, of_rows, address)])
        if of_weights is not None:
            of_weights = of_weights.to(dtype=dtype, device=device)
        of_handle = _ZERO.clone() if of_rows else None
        if torch.is_grad_enabled() and gradients[0].requires_grad:
            # With create_graph=True: a second derivative through the rows must not be 0 silently.
            of_handle, of_weights = _once(gradients[0], of_handle), _once(gradients[0], of_weights)
        return of_handle, of_weights, None, None, None, None


def _run(
    session: Session, requests: Sequence[Request], outputs: Sequence[Tensor], is_apart: bool, keeps: bool
) -> list[_native.PooledLookup]:
    addresses = [output.data_ptr() for output in outputs]
    return session.native.look_up([request.native for request in requests], addresses, is_apart, keeps)


class _LookUpMany(torch.autograd.Function):
    """Several look-ups in one crossing: (handles.., ) -> outputs."""

    @staticmethod
    def forward(
        ctx: Any, tables: Sequence[Table], session: Session, requests: Sequence[Request], is_apart: bool, *handles: Tensor
    ) -> tuple[Tensor, ...]:
        outputs = tuple([_CPU.new_empty(request.size) for request in requests])
        ctx.lookups = _run(session, requests, outputs, is_apart, True)
        ctx.tables = tables
        ctx.session = session
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        # A handle may stand for several look-ups, and only one of them returns its gradient.
        needed = ctx.needs_input_grad[4:]
        arguments, kept = [], []
        of_handles: list[Tensor | None] = []
        is_differentiated = torch.is_grad_enabled()
        # Views of one tensor take half the time of so many tensors.
        zeros = _ZERO.new_zeros(len(gradients), 1).unbind(0)
        for table, lookup, gradient, is_needed, of_handle in zip(ctx.tables, ctx.lookups, gradients, needed, zeros):
            if gradient is None or not is_needed:
                of_handles.append(None)
                continue
            check_pushed(table)
            prepared, stride = _prepare_gradient(gradient)
            kept.append(prepared)
            arguments.append((lookup, prepared.data_ptr(), stride, True, 0))
            if is_differentiated and gradient.requires_grad:
                of_handle = _once(gradient, of_handle)
            of_handles.append(of_handle)
        ctx.session.native.backward(_task(), _thread(), arguments)
        return (None, None, None, None, *of_handles)


class _Once(torch.autograd.Function):
    """Passes a gradient on, and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise NotSupported(
            "second derivatives through the rows of a table: build the module with double_backward=True. The gradient of its "
            "handle has none: take that of the output of the module, or of libra_ps.functional.rows"
        )


def _once(gradient: Tensor, value: Tensor | None) -> Any:
    return None if value is None else _Once.apply(gradient, value)


def _prepare_gradient(gradient: Tensor) -> tuple[Tensor, int | None]:
    """Returns a gradient on the CPU, and the values from row to row unless it is contiguous."""
    if gradient.dtype is not torch.float32 or not gradient.is_cpu:
        gradient = gradient.to(dtype=torch.float32, device="cpu")
    if gradient.is_contiguous():
        return gradient, None
    if gradient.dim() == 2 and gradient.stride(1) == 1:
        # Columns of the gradient of a concatenation.
        return gradient, gradient.stride(0)
    return gradient.contiguous(), None


def check_pushed(table: Table) -> None:
    """Raises if gradients of a table would be pushed by no optimizer."""
    if table.rule is None:
        raise NotPushed(
            f'table "{table.label}" has a gradient and no optimizer: '
            "wrap the optimizer with libra_ps.optim.wrap(optimizer, model)"
        )


def check_dense(tables: Sequence[Table]) -> None:
    """Raises if nothing keeps the dense parameters of several workers equal. Notes which handles are averaged."""
    from torch.nn.parallel import DistributedDataParallel

    get: Any = DistributedDataParallel._get_active_ddp_module
    ddp = get()
    in_ddp = ddp is not None
    if in_ddp and ddp.find_unused_parameters and not ddp.require_backward_grad_sync:
        raise NotSupported(
            "find_unused_parameters=True with no_sync(): the norm of a table that one worker does not use would be that of "
            "another pass. Take one of them"
        )
    for table in tables:
        if table.has_dense and not in_ddp:
            raise Error(
                "several workers, and nothing keeps their dense parameters equal: wrap the optimizer with "
                'dense="server", or wrap the model in torch.nn.parallel.DistributedDataParallel after '
                "libra_ps.optim.wrap, and call that"
            )
        table.in_ddp = in_ddp


class Commit:
    """Post-accumulate hook of the handle of a table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __call__(self, handle: Tensor) -> None:
        gradient = handle.grad
        table = self.table
        if gradient is None or table.session is None:
            # Frozen after the forward pass: what is pending is dropped in the step.
            table.is_committed = True
            return
        table.session.native.commit(table.number, _task(), _thread(), gradient.data_ptr())
        table.is_committed = True
        if table.in_ddp:
            # DistributedDataParallel writes the mean of the norms after all hooks, in a callback: a callback of a callback runs
            # after that.
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: queue(lambda: self._remember(handle)))

    def _remember(self, handle: Tensor) -> None:
        if handle.grad is not None and self.table.session is not None:
            self.table.session.native.remember(self.table.number, handle.grad.item())


def look_up(table: Table, handle: Tensor, weights: Tensor | None, request: Request, training: bool) -> Tensor:
    """Runs one look-up. In evaluation nothing of it is kept."""
    session = table.session
    assert session is not None
    if session.is_cluster:
        session.begin()
        if session.ahead is not None and training:
            session.ahead.note(request.native)
    if session.dense:
        session.refresh()
    is_apart = not training
    if is_apart and session.is_dirty:
        session.flush()
    needs = handle.requires_grad or (weights is not None and weights.requires_grad)
    if needs and torch.is_grad_enabled():
        if session.workers > 1:
            check_dense((table,))
        output: Tensor = _LookUp.apply(handle, weights, table, session, request, is_apart)
        return output
    output = _CPU.new_empty(request.size)
    session.native.look_up([request.native], [output.data_ptr()], is_apart, False)
    return output


def look_up_many(
    tables: Sequence[Table], handles: Sequence[Tensor], requests: Sequence[Request], training: bool
) -> tuple[Tensor, ...]:
    """Runs several look-ups in one crossing."""
    if not requests:
        return ()
    session = tables[0].session
    assert session is not None
    if session.is_cluster:
        session.begin()
        if session.ahead is not None and training:
            for request in requests:
                session.ahead.note(request.native)
    if session.dense:
        session.refresh()
    is_apart = not training
    if is_apart and session.is_dirty:
        session.flush()
    if torch.is_grad_enabled() and any(handle.requires_grad for handle in handles):
        if session.workers > 1:
            check_dense(tables)
        outputs: tuple[Tensor, ...] = _LookUpMany.apply(tables, session, requests, is_apart, *handles)
        return outputs
    outputs = tuple(_CPU.new_empty(request.size) for request in requests)
    _run(session, requests, outputs, is_apart, False)
    return outputs


def rows(module: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the distinct rows of ids, and for each id the position of its row.

    The rows have a gradient, so models may use them in ways that no module of this package has.
    """
    from .nn import RowsModule

    if not isinstance(module, RowsModule):
        hint = ": take one of its tables, as in module.tables[name]" if hasattr(module, "tables") else ""
        raise TypeError(f"rows() takes a module of libra_ps.nn, not {type(module).__name__}{hint}")
    return _distinct(module, prepare_ids(ids, "ids"))[:2]


def _distinct(module: RowsModule, ids: Tensor) -> tuple[Tensor, Tensor, int | None]:
    """Returns the distinct rows of ids, for each id the position of its row, and the position of the padding id."""
    distinct, inverse = torch.unique(ids, return_inverse=True)
    table, padding = module.open(), module.padding_idx
    try:
        found = look_up(table, module.handle, None, request_rows(table, distinct, padding, False), module.training)
    except IndexError:
        # Positions are those of all ids.
        session = table.session
        assert session is not None
        request = request_rows(table, ids, padding, False)
        _run(session, [request], [_CPU.new_empty(request.size)], True, False)
        raise
    position = None
    if padding is not None:
        at = (distinct == padding).nonzero()
        position = int(at) if len(at) else None
    return found, inverse, position


def rows_by_torch(module: RowsModule, ids: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Looks up a row for each id by functions of torch, which have second derivatives."""
    found, inverse, padding = _distinct(module, prepare_ids(ids, "input"))
    return torch.nn.functional.embedding(inverse, found.to(dtype=dtype), padding)


def bags_by_torch(
    module: EmbeddingBag, request: Request, includes_last: bool, weights: Tensor | None, dtype: torch.dtype | None
) -> Tensor:
    """Looks up bags by functions of torch, which have second derivatives; `embedding_bag` of torch has none."""
    ids, offsets, _ = request.tensors
    assert ids is not None
    bags = request.size[0]
    if offsets is None:
        bag_of_id = torch.arange(bags, device="cpu").repeat_interleave(ids.shape[1])
    else:
        bounds = offsets if includes_last else torch.cat([offsets, offsets.new_tensor([ids.numel()])])
        lengths = bounds.diff()
        if not len(bounds) or bounds[0] != 0 or bounds[-1] != ids.numel() or bool((lengths < 0).any()):
            # Names what is wrong with them.
            session = module.open().session
            assert session is not None
            _run(session, [request], [_CPU.new_empty(request.size)], True, False)
        bag_of_id = torch.arange(bags, device="cpu").repeat_interleave(lengths)
    found, inverse, padding = _distinct(module, ids)
    looked_up = torch.nn.functional.embedding(inverse.reshape(-1), found.to(dtype=dtype))
    if weights is not None:
        looked_up = looked_up * weights.reshape(-1, 1).to(looked_up)
    if padding is not None:
        is_row = inverse.reshape(-1) != padding
        looked_up, bag_of_id = looked_up[is_row], bag_of_id[is_row]
    return pool_by_torch(looked_up, bag_of_id, bags, module.mode)


def pool_by_torch(looked_up: Tensor, bag_of_id: Tensor, bags: int, mode: str) -> Tensor:
    """Pools rows, given the bag of each."""
    size = (bags, looked_up.shape[1])
    if mode != "max":
        sums = looked_up.new_zeros(size).index_add(0, bag_of_id, looked_up)
        if mode == "sum":
            return sums
        counts = looked_up.new_zeros(bags).index_add(0, bag_of_id, looked_up.new_ones(len(looked_up)))
        return sums / counts.clamp(min=1.0).unsqueeze(1)
    if not len(looked_up):
        return looked_up.new_zeros(size) + looked_up.sum(0)
    # Of equal values the first has the gradient.
    values, bag = looked_up.detach(), bag_of_id.unsqueeze(1).expand_as(looked_up)
    largest = values.new_full(size, -torch.inf).scatter_reduce(0, bag, values, "amax")
    is_largest = (values == largest[bag_of_id]) | values.isnan()
    count = len(values)
    position = torch.arange(count, device="cpu").unsqueeze(1).expand_as(values)
    first = position.new_full(size, count).scatter_reduce(0, bag, position.where(is_largest, count), "amin")
    return looked_up.gather(0, first.clamp(max=count - 1)).where(first < count, 0.0)


__all__ = ["Commit", "Request", "look_up", "look_up_many", "request_bags", "request_rows", "rows"]
