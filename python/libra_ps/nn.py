"""Modules with the signatures of `torch.nn`, whose rows are on the parameter server."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from . import functional
from .errors import Error, Mismatch, NotSupported, TooLarge
from .session import Table
from .definitions import Admission, Definition, Eviction, Initial, Normal, check_name, frozen_ids
from .weight import Weight

#: A state_dict with more bytes of rows would not fit into the memory of usual machines.
STATE_DICT_BYTES_MAX = 1 << 30

_copies_to_torch = False


@contextmanager
def copying_to_torch() -> Iterator[None]:
    """Lets deepcopy make plain modules of torch out of those of this package."""
    global _copies_to_torch
    _copies_to_torch = True
    try:
        yield
    finally:
        _copies_to_torch = False


class RowsModule(torch.nn.Module):
    """A module that looks up rows of one table."""

    num_embeddings: int | None
    embedding_dim: int
    padding_idx: int | None
    scale_grad_by_freq: bool
    #: The parameter that stands for the rows.
    handle: torch.nn.Parameter

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        scale_grad_by_freq: bool,
        weight: Tensor | None,
        freeze: bool,
        device: Any,
        dtype: Any,
        name: str | None,
        init: Initial | None,
        hash: bool,
        output_dtype: torch.dtype | None,
        frozen: Iterable[int] | Tensor | None,
        admission: Admission | None,
        eviction: Eviction | None,
        double_backward: bool,
    ) -> None:
        super().__init__()
        if double_backward and scale_grad_by_freq:
            raise NotSupported("double_backward=True with scale_grad_by_freq: torch has no second derivatives of it")
        if max_norm is not None:
            raise NotSupported("max_norm changes rows while they are read: set clip= in the rule of the optimizer instead")
        if dtype not in (None, torch.float32):
            raise NotSupported(f"rows are float32, not {dtype}: set output_dtype={dtype}")
        self.scale_grad_by_freq = scale_grad_by_freq
        self.double_backward = double_backward
        self.max_norm = None
        self._output_dtype = output_dtype
        self._output_device: torch.device | None = None
        self._has_own_name = name is not None
        initial = Normal(1.0) if init is None else init
        ids = frozen_ids(frozen)
        definition = Definition(num_embeddings, embedding_dim, hash, initial, ids, admission, eviction)
        self.num_embeddings, self.embedding_dim = definition.rows, definition.width
        self.padding_idx = _check_padding(padding_idx, self.num_embeddings)
        self._set_table(_share(definition, name))
        if freeze:
            self.handle.requires_grad_(False)
        if weight is not None:
            self.load_rows(weight)

    def _set_table(self, table: Table) -> None:
        self.table = table
        if table.handle is None or (table.binding is not None and table.binding() is not None):
            # The module of a table that an optimizer has already takes it over: a cell of a notebook ran twice.
            table.handle = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))
            _hook(table)
        self.register_parameter("handle", table.handle)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            raise NotSupported(
                "weight cannot be assigned, as rows are on the parameter server: weight.copy_(values) loads rows, "
                "and modules of one name= share them"
            )
        super().__setattr__(name, value)

    def open(self) -> Table:
        """Returns the table, which is in the session from now on."""
        table = self.table
        handle = self._parameters["handle"]
        if table.handle is not handle:
            if type(handle) is not torch.nn.Parameter:
                raise NotSupported(
                    f"the handle of a table is a {type(handle).__name__}: name it in ignored_params of fully_shard"
                )
            if table.binding is not None and table.binding() is not None:
                raise Error(f'table "{table.label}" was taken over by a newer module of the same name')
            table.handle = handle
            _hook(table)
        if table.session is None or table.session.is_closed:
            table.open().native.set_threads(torch.get_num_threads())
        return table

    @property
    def weight(self) -> Weight:
        """The rows as a tensor without values, for `torch.nn.init` and `copy_`."""
        return Weight(self)

    def load_rows(self, weight: Tensor) -> None:
        """Sets all rows, and forgets the state that optimizers have of them."""
        if self.num_embeddings is None:
            raise NotSupported(
                f'table "{self.table.label}" has no bound, so not all of its rows can be set: load it with libra_ps.load'
            )
        expected = (self.num_embeddings, self.embedding_dim)
        if tuple(weight.shape) != expected:
            raise ValueError(f"rows have the shape {tuple(weight.shape)}, the module has {expected}")
        self._write(torch.arange(weight.shape[0], device="cpu"), weight)

    def _write(self, ids: Tensor, values: Tensor) -> None:
        table = self.open()
        values = values.detach().to(dtype=torch.float32, device="cpu").contiguous()
        ids = ids.detach().to(dtype=torch.int64, device="cpu").contiguous()
        assert table.session is not None
        table.session.write_rows(table, ids.numpy(), values.numpy())
        if self.padding_idx is not None:
            of_padding = values[ids == self.padding_idx]
            if len(of_padding):
                self._set_padding_row(of_padding[-1].clone())

    def _set_padding_row(self, row: Tensor) -> None:
        table = self.table
        if table.padding_row is not None and not torch.equal(table.padding_row, row):
            raise Mismatch(f'two modules of table "{table.label}" have other rows for their padding_idx')
        table.padding_row = row if bool(row.any()) else None
        if table.session is not None and table.padding_row is not None:
            table.session.native.set_padding_row(table.number, row.data_ptr())

    def read_rows(self) -> Tensor:
        """Returns all rows of a table with a bound."""
        if self.num_embeddings is None:
            raise NotSupported(f'table "{self.table.label}" has no bound: read some rows with libra_ps.functional.rows')
        table = self.open()
        values = torch.empty(self.num_embeddings, self.embedding_dim, dtype=torch.float32, device="cpu")
        ids = torch.arange(self.num_embeddings, device="cpu")
        assert table.session is not None
        table.session.begin()
        table.session.native.read(table.number, ids.data_ptr(), ids.numel(), values.data_ptr())
        if self.padding_idx is not None:
            row = table.padding_row
            values[self.padding_idx] = 0.0 if row is None else row
        return values

    def _finish(self, output: Tensor) -> Tensor:
        if self._output_dtype is not None or self._output_device is not None:
            return output.to(dtype=self._output_dtype, device=self._output_device)
        return output

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # The handle stays as it is: its gradient is a norm, which half precision would round.
        sample = fn(torch.empty(0, dtype=torch.float32, device="cpu"))
        if sample.dtype is not torch.float32 and sample.is_floating_point():
            self._output_dtype = sample.dtype
        if sample.device.type not in ("cpu", "meta"):
            self._output_device = sample.device
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.num_embeddings is None:
            raise NotSupported(f'{prefix}weight: table "{self.table.label}" has no bound: save it with libra_ps.save')
        size = 4 * self.num_embeddings * self.embedding_dim
        total = size + getattr(destination, "_libra_bytes", 0)
        if total > STATE_DICT_BYTES_MAX:
            raise TooLarge(
                f"{prefix}weight: the tables have more than {STATE_DICT_BYTES_MAX >> 20} MiB together, too much for a "
                "state_dict: save them with libra_ps.save"
            )
        destination._libra_bytes = total
        destination[prefix + "weight"] = self.read_rows()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + "weight"
        if key not in state_dict:
            missing_keys.append(key)
        else:
            try:
                self.load_rows(state_dict[key])
            except ValueError as error:
                error_msgs.append(f"{key}: {error}")
        if strict:
            own = [other for other in state_dict if other.startswith(prefix) and other != key]
            unexpected_keys.extend(other for other in own if "." not in other[len(prefix) :])

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if _copies_to_torch:
            return self.to_torch()
        raise Error(
            f"{type(self).__name__} cannot be copied, as its rows are not in the module: "
            "libra_ps.to_torch(model) returns a copy in plain torch"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error(
            f"{type(self).__name__} cannot be pickled, as its rows are not in the module: "
            "save model.state_dict(), or everything with libra_ps.save"
        )

    def _replicate_for_data_parallel(self) -> Any:
        raise Error("nn.DataParallel copies modules, and rows are not in them: use DistributedDataParallel")

    def to_torch(self) -> torch.nn.Module:
        """Returns the module of torch with the rows of this one."""
        raise NotImplementedError


def _hook(table: Table) -> None:
    table.handle.register_post_accumulate_grad_hook(functional.Commit(table))


def _share(definition: Definition, name: str | None) -> Table:
    """Returns the table of this name, or a new one."""
    if name is None:
        return Table(definition, None)
    check_name(name)
    from . import session

    active = session._current
    if active is not None:
        found = active.find(name, definition)
        if found is not None:
            return found
    tables = _declared if active is None else active.declared
    declared = tables.get(name)
    if declared is not None:
        difference = declared.definition.difference(definition)
        if difference:
            raise Mismatch(f'there is a table "{name}" of another definition: {difference}')
        return declared
    table = Table(definition, name)
    tables[name] = table
    return table


#: Tables of modules that were made before there was a session.
_declared: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()


def _check_padding(padding_idx: int | None, rows: int | None) -> int | None:
    if padding_idx is None:
        return None
    if rows is None:
        return padding_idx
    if not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx = {padding_idx} must be within num_embeddings = {rows}")
    return padding_idx % rows


class Embedding(RowsModule):
    """`torch.nn.Embedding` with its rows on the parameter server.

    `name` is that of the table, by default the qualified name of the module in its model. `num_embeddings=None` is a table
    without a bound, for ids below 2^56, or for any with `hash=True`. `init` is `libra_ps.Normal`, `Uniform` or `Zero`.

    Rows of the ids `frozen` are read, and have no gradient. `libra_ps.Admission` and `libra_ps.Eviction` are conditions for
    rows to be made and to go. With `double_backward=True` gradients may be differentiated again: functions of torch then
    take the place of those of this package, which takes more time.
    """

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = True,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        name: str | None = None,
        init: Initial | None = None,
        hash: bool = False,
        output_dtype: torch.dtype | None = None,
        frozen: Iterable[int] | Tensor | None = None,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        double_backward: bool = False,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight, _freeze, device, dtype,
            name, init, hash, output_dtype, frozen, admission, eviction, double_backward,
        )  # fmt: skip
        self.norm_type = norm_type
        self.sparse = sparse

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **options: Any
    ) -> Embedding:
        """Returns a module with these rows."""
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, _weight=embeddings, _freeze=freeze, **options)

    def forward(self, input: Tensor) -> Tensor:
        table = self.open()
        if self.double_backward and torch.is_grad_enabled():
            return self._finish(functional.rows_by_torch(self, input, self._output_dtype))
        request = functional.request_rows(table, input, self.padding_idx, self.scale_grad_by_freq)
        output = functional.look_up(table, table.handle, None, request, self.training)
        return self._finish(output)

    def extra_repr(self) -> str:
        rows = "no bound" if self.num_embeddings is None else self.num_embeddings
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{rows}, {self.embedding_dim}{padding}, table={self.table.label}"

    def to_torch(self) -> torch.nn.Embedding:
        rows = self.read_rows()
        return torch.nn.Embedding(
            rows.shape[0],
            rows.shape[1],
            padding_idx=self.padding_idx,
            scale_grad_by_freq=self.scale_grad_by_freq,
            _weight=rows,
            _freeze=not self.handle.requires_grad,
        )


class EmbeddingBag(RowsModule):
    """`torch.nn.EmbeddingBag` with its rows on the parameter server; options as in `Embedding`."""

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = True,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        _freeze: bool = False,
        name: str | None = None,
        init: Initial | None = None,
        hash: bool = False,
        output_dtype: torch.dtype | None = None,
        frozen: Iterable[int] | Tensor | None = None,
        admission: Admission | None = None,
        eviction: Eviction | None = None,
        double_backward: bool = False,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f'mode = "{mode}" must be "sum", "mean" or "max"')
        if mode == "max" and scale_grad_by_freq:
            raise ValueError('scale_grad_by_freq is not for mode "max"')
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight, _freeze, device, dtype,
            name, init, hash, output_dtype, frozen, admission, eviction, double_backward,
        )  # fmt: skip
        self.norm_type = norm_type
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> EmbeddingBag:
        """Returns a module with these rows."""
        rows, width = embeddings.shape
        return cls(rows, width, _weight=embeddings, _freeze=freeze, **options)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        table = self.open()
        includes_last = self.include_last_offset
        if input.is_nested:
            if offsets is not None:
                raise ValueError("offsets are for an input that is not nested")
            nested: Any = input
            input, offsets, includes_last = nested.values(), nested.offsets(), True
        request = functional.request_bags(
            table, input, offsets, per_sample_weights, self.mode, includes_last, self.padding_idx, self.scale_grad_by_freq
        )
        return self._look_up(request, includes_last, per_sample_weights)

    def _look_up(self, request: functional.Request, includes_last: bool, weights: Tensor | None) -> Tensor:
        if self.double_backward and torch.is_grad_enabled():
            bags = functional.bags_by_torch(self, request, includes_last, weights, self._output_dtype)
        else:
            bags = functional.look_up(self.table, self.table.handle, weights, request, self.training)
        return self._finish(bags)

    def extra_repr(self) -> str:
        rows = "no bound" if self.num_embeddings is None else self.num_embeddings
        return f"{rows}, {self.embedding_dim}, mode={self.mode}, table={self.table.label}"

    def to_torch(self) -> torch.nn.EmbeddingBag:
        rows = self.read_rows()
        bag = torch.nn.EmbeddingBag(
            rows.shape[0],
            rows.shape[1],
            scale_grad_by_freq=self.scale_grad_by_freq,
            mode=self.mode,
            _weight=rows,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
        bag.weight.requires_grad_(self.handle.requires_grad)
        return bag


@dataclass
class TableConfig:
    """A table of a collection, and the features that look it up."""

    name: str
    num_embeddings: int | None
    embedding_dim: int
    features: list[str] = field(default_factory=list)
    mode: str = "sum"
    init: Initial | None = None
    hash: bool = False
    frozen: Iterable[int] | Tensor | None = None
    admission: Admission | None = None
    eviction: Eviction | None = None
    double_backward: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.features, str):
            raise TypeError(f'features = "{self.features}" must be a list of names')
        self.features = self.features or [self.name]


class EmbeddingBagCollection(torch.nn.Module):
    """Bags of many tables, looked up in one crossing to the native module.

    The input is `{feature: (values, offsets)}` or `(values, offsets, weights)`, `{feature: values}` of two dimensions or
    nested, or a `KeyedJaggedTensor`; the output is `{feature: pooled rows}`. Features whose weights have a gradient, and those
    of tables with `double_backward=True`, take a crossing each.
    """

    def __init__(self, tables: Iterable[TableConfig]) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleDict()
        self.features: dict[str, str] = {}
        for config in tables:
            if config.name in self.tables:
                raise ValueError(f'two tables are named "{config.name}"')
            self.tables[config.name] = EmbeddingBag(
                config.num_embeddings,
                config.embedding_dim,
                mode=config.mode,
                name=config.name,
                init=config.init,
                hash=config.hash,
                frozen=config.frozen,
                admission=config.admission,
                eviction=config.eviction,
                double_backward=config.double_backward,
            )
            for feature in config.features:
                if feature in self.features:
                    raise ValueError(f'the feature "{feature}" is of two tables')
                self.features[feature] = config.name

    def forward(self, features: Any) -> dict[str, Tensor]:
        if hasattr(features, "to_dict") and not isinstance(features, Mapping):
            jagged = features.to_dict()
            features = {name: (part.values(), part.offsets(), part.weights_or_none()) for name, part in jagged.items()}
            includes_last = True
        elif isinstance(features, Mapping):
            includes_last = False
        else:
            raise TypeError(f"input must be a dict of features or a KeyedJaggedTensor, not {type(features).__name__}")
        # Features that are looked up in one crossing.
        names, bags = [], []
        requests: list[functional.Request] = []
        outputs: dict[str, Tensor] = {}
        size: tuple[int, ...] | None = None
        has_grad = torch.is_grad_enabled()
        # Attributes that are modules take a search each.
        modules: Mapping[str, Any] = self.tables._modules
        for name, feature in features.items():
            if name not in self.features:
                raise KeyError(f'there is no feature "{name}": the collection has {", ".join(self.features)}')
            values, offsets, weights = feature, None, None
            if isinstance(feature, (tuple, list)):
                if not 1 <= len(feature) <= 3 or not isinstance(feature[0], Tensor):
                    raise TypeError(f'feature "{name}": a tensor, or a tuple of values, offsets and weights, must be given')
                values, offsets, weights = (*feature, None, None)[:3]
            ends = includes_last
            if isinstance(values, Tensor) and values.is_nested:
                if offsets is not None:
                    raise ValueError(f'feature "{name}": offsets are for an input that is not nested')
                nested: Any = values
                values, offsets, ends = nested.values(), nested.offsets(), True
            module = modules[self.features[name]]
            table = module.open()
            try:
                request = functional.request_bags(table, values, offsets, weights, module.mode, ends, None, False)
            except (TypeError, ValueError, NotImplementedError) as error:
                raise type(error)(f'feature "{name}": {error}') from None
            size = size or request.size
            if request.size[0] != size[0]:
                first = next(iter(features))
                raise ValueError(
                    f'feature "{name}" has {request.size[0]} bags, and "{first}" has {size[0]}: '
                    "features of one call have a bag for each sample"
                )
            if has_grad and (module.double_backward or (weights is not None and weights.requires_grad)):
                outputs[name] = module._look_up(request, ends, weights)
                continue
            names.append(name)
            bags.append(module)
            requests.append(request)
        tables = [bag.table for bag in bags]
        found = functional.look_up_many(tables, [table.handle for table in tables], requests, self.training)
        for name, bag, output in zip(names, bags, found):
            outputs[name] = bag._finish(output)
        return {name: outputs[name] for name in features}


