"""Update rules of tables, and optimizers of torch that push their gradients."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from .ahead import ReadAhead
from .dense import DenseGroup, groups_of, keep_on_servers
from .errors import Error, NotFinite, NotSupported
from .nn import RowsModule
from .session import Session, Table, current, logger
from .definitions import Rule

_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)


def _rule(optimizer: str, numbers: Mapping[str, Any], weight_decay: float, schedule: Schedule | None) -> Rule:
    numbers = {name: float(value) for name, value in numbers.items()}
    if weight_decay:
        numbers["weight_decay"] = float(weight_decay)
    if schedule is None:
        return Rule(optimizer, numbers)
    return Rule(optimizer, {**numbers, **schedule.numbers}, schedule.decay)


class Schedule:
    """Factor of the learning rate by the steps of the table: a warm-up of so many steps, then a decay.

    The decays: "none", "step" (every, factor), "exponential" (every, factor), "linear" (steps, floor), "cosine" (steps,
    floor), "inverse_root".
    """

    def __init__(self, warmup: int = 0, decay: str = "none", **numbers: float) -> None:
        self.decay = decay
        self.numbers = {"warmup": float(warmup), **{name: float(value) for name, value in numbers.items()}}


def SGD(lr: float, weight_decay: float = 0.0, schedule: Schedule | None = None) -> Rule:
    """Stochastic gradient descent."""
    return _rule("sgd", {"lr": lr}, weight_decay, schedule)


def Momentum(
    lr: float, momentum: float = 0.9, nesterov: bool = False, weight_decay: float = 0.0, schedule: Schedule | None = None
) -> Rule:
    """SGD with momentum. A row moves only when it has a gradient."""
    return _rule("momentum", {"lr": lr, "momentum": momentum, "nesterov": nesterov}, weight_decay, schedule)


def Adagrad(lr: float, eps: float = 1e-10, weight_decay: float = 0.0, schedule: Schedule | None = None) -> Rule:
    """Adagrad with a rate for each value."""
    return _rule("adagrad", {"lr": lr, "eps": eps}, weight_decay, schedule)


def RowwiseAdagrad(lr: float, eps: float = 1e-10, weight_decay: float = 0.0, schedule: Schedule | None = None) -> Rule:
    """Adagrad with a rate for each row, as that of FBGEMM."""
    return _rule("rowwise_adagrad", {"lr": lr, "eps": eps}, weight_decay, schedule)


def Adam(
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    schedule: Schedule | None = None,
) -> Rule:
    """Adam. Each row counts its own steps."""
    return _rule("adam", {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps}, weight_decay, schedule)


def AdamW(
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    schedule: Schedule | None = None,
) -> Rule:
    """Adam with decoupled weight decay."""
    return _rule("adamw", {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps}, weight_decay, schedule)


def Ftrl(alpha: float, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> Rule:
    """FTRL-proximal."""
    return _rule("ftrl", {"alpha": alpha, "beta": beta, "l1": l1, "l2": l2}, 0.0, None)


def RmsProp(
    lr: float, decay: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, schedule: Schedule | None = None
) -> Rule:
    """RMSprop, not centred."""
    return _rule("rmsprop", {"lr": lr, "decay": decay, "eps": eps}, weight_decay, schedule)


#: Options of optimizers that rules do not have, and the values that turn them off.
_OFF = {
    "amsgrad": False,
    "maximize": False,
    "dampening": 0,
    "centered": False,
    "lr_decay": 0,
    "initial_accumulator_value": 0,
}
#: A rate with which no value changes.
_LEAST_RATE = 1e-30
_RULES = "SGD, Momentum, Adagrad, RowwiseAdagrad, Adam, AdamW, Ftrl, RmsProp"


def rule_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Rule:
    """Returns the rule that a parameter group of an optimizer of torch is."""
    kind = type(optimizer).__name__
    for option, off in _OFF.items():
        if group.get(option, off) != off:
            raise NotSupported(f"{kind}({option}={group[option]}) is no rule of tables: take one of {_RULES} in tables=")
    # Warm-ups begin at 0, where torch changes the state of the optimizer, and no value.
    lr, decay = float(group["lr"]) or _LEAST_RATE, float(group.get("weight_decay", 0.0))
    if isinstance(optimizer, torch.optim.SGD):
        momentum = float(group["momentum"])
        return Momentum(lr, momentum, bool(group["nesterov"]), decay) if momentum else SGD(lr, decay)
    if isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay"):
        return AdamW(lr, _floats(group["betas"]), float(group["eps"]), decay)
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.SparseAdam)):
        return Adam(lr, _floats(group["betas"]), float(group["eps"]), decay)
    if isinstance(optimizer, torch.optim.Adagrad):
        return Adagrad(lr, float(group["eps"]), decay)
    if isinstance(optimizer, torch.optim.RMSprop):
        if group["momentum"]:
            raise NotSupported(f"RMSprop(momentum={group['momentum']}) is no rule of tables: take one of {_RULES} in tables=")
        return RmsProp(lr, float(group["alpha"]), float(group["eps"]), decay)
    raise NotSupported(f"{kind} is no rule of tables: give one of {_RULES} to each table in tables=")


def _floats(betas: Any) -> tuple[float, float]:
    return float(betas[0]), float(betas[1])


def name_tables(model: torch.nn.Module, names: Mapping[str, str] | None = None) -> dict[str, RowsModule]:
    """Names the tables of a model by their modules, and returns a module of each."""
    found: dict[str, RowsModule] = {}
    for path, module in model.named_modules():
        if not isinstance(module, RowsModule):
            continue
        table = module.table
        if table.name is None or (table.name.startswith("table-") and not module._has_own_name):
            _give_name(module, (names or {}).get(path, path or type(module).__name__.lower()))
        assert module.table.name is not None
        found[module.table.name] = module
    return found


def _give_name(module: RowsModule, name: str) -> None:
    table = module.table
    session = current()
    if table.session is session:
        session.rename(table, name)
        return
    existing = session.find(name, table.definition)
    if existing is None:
        session.rename(table, name)
    else:
        # The same model was built again, in a cell of a notebook that ran twice.
        del module._parameters["handle"]
        requires_grad = table.handle.requires_grad
        module._set_table(existing)
        module.handle.requires_grad_(requires_grad)


def replace_handles(optimizer: torch.optim.Optimizer, replaced: Mapping[int, torch.nn.Parameter]) -> None:
    """Puts parameters in the place of others, by id."""
    for group in optimizer.param_groups:
        group["params"] = [replaced.get(id(parameter), parameter) for parameter in group["params"]]


def wrap(
    optimizer: _Optimizer,
    model: torch.nn.Module,
    tables: Mapping[str, Rule] | None = None,
    dense: str | None = None,
) -> _Optimizer:
    """Makes the steps of an optimizer of torch push the gradients of the model's tables, and returns it.

    The rule of a table is that of the parameter group that its handle is in, or the one in `tables`. Rows decay and move
    only when they have a gradient, and count their own steps of Adam.

    With `dense="server"` the servers keep the other parameters, too: their gradients are pushed with those of the rows, and
    their values are read before the next forward pass. By default (or with `dense="local"`, or by `LIBRA_DENSE`) the optimizer
    changes them in this process, and of several workers DistributedDataParallel keeps them equal.
    """
    if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, torch.nn.Module):
        given = f"{type(optimizer).__name__} and {type(model).__name__}"
        raise TypeError(f"an optimizer and a module must be given, not {given}: call wrap(optimizer, model)")
    dense = dense or os.environ.get("LIBRA_DENSE") or "local"
    if dense not in ("local", "server"):
        raise ValueError(f'dense = "{dense}" must be "local" or "server"')
    if isinstance(optimizer, torch.optim.LBFGS):
        raise NotSupported("LBFGS computes with the values of its parameters, and rows are not in their handles")
    before = {id(module): module.handle for module in model.modules() if isinstance(module, RowsModule)}
    modules = name_tables(model)
    if not modules:
        raise ValueError("the model has no module of libra_ps.nn: convert it with libra_ps.wrap(model, optimizer)")
    replaced = {
        id(before[id(module)]): module.handle for module in model.modules() if isinstance(module, RowsModule)
    }
    replace_handles(optimizer, replaced)
    unknown = set(tables or {}) - set(modules)
    if unknown:
        raise ValueError(f'tables= names "{sorted(unknown)[0]}", the model has {", ".join(sorted(modules))}')
    handles = {id(module.handle): module for module in modules.values()}
    groups = groups_of(optimizer, model, handles) if dense == "server" else []
    opened = {name: module.open() for name, module in modules.items()}
    binding = Binding(optimizer, opened, dict(tables or {}), groups)
    if groups:
        keep_on_servers(model, groups)
    if groups or current().is_cluster:
        ReadAhead(current(), model)
    optimizer.register_step_pre_hook(binding.before_step)
    optimizer.register_step_post_hook(binding.after_step)
    return optimizer


class Binding:
    """Tables of an optimizer, and what its steps do to them."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        tables: dict[str, Table],
        rules: dict[str, Rule],
        dense: list[DenseGroup],
    ) -> None:
        self.tables = tables
        self.rules = rules
        #: Dense parameters that are kept on the servers.
        self.dense = dense
        self._optimizer = weakref.ref(optimizer)
        self._groups: dict[str, int] = {}
        #: Options of the parameter groups in the last step.
        self._options: list[tuple[Any, ...] | None] = []
        self._hidden: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._skips = False
        for name, table in tables.items():
            other = table.binding() if table.binding is not None else None
            if other is not None and other is not optimizer and _has_handle(other, table):
                raise ValueError(f'table "{name}" has two optimizers: a table is in one')
        self._find_groups(optimizer)
        handles = {id(table.handle) for table in tables.values()}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        has_dense = not dense and any(
            id(parameter) not in handles and parameter.requires_grad for parameter in parameters
        )
        for group in dense:
            group.table.set_rule(rule_of(optimizer, optimizer.param_groups[group.group]))
        for name, table in tables.items():
            table.set_rule(self._rule_of(optimizer, name))
            table.binding = weakref.ref(optimizer)
            table.has_dense = has_dense
        logger.info(
            "tables %s: rows decay and move only when they have a gradient, and count their own steps",
            ", ".join(f"{name} ({table.rule.optimizer if table.rule else ''})" for name, table in tables.items()),
        )

    def _find_groups(self, optimizer: torch.optim.Optimizer) -> None:
        groups = {id(parameter): index for index, group in enumerate(optimizer.param_groups) for parameter in group["params"]}
        for name, table in self.tables.items():
            if id(table.handle) in groups:
                self._groups[name] = groups[id(table.handle)]
            elif table.handle.requires_grad:
                raise ValueError(
                    f'table "{name}" is in no parameter group of the optimizer: give it model.parameters(), '
                    "or freeze the table with requires_grad_(False)"
                )

    def _rule_of(self, optimizer: torch.optim.Optimizer, name: str) -> Rule:
        if name in self.rules:
            return self.rules[name]
        if name not in self._groups:
            return SGD(1.0)
        return rule_of(optimizer, optimizer.param_groups[self._groups[name]])

    def _session(self) -> Session:
        for table in self.tables.values():
            if table.session is None or table.session.is_closed:
                raise Error("the session was shut down: its tables take no steps")
            return table.session
        raise Error("the optimizer has no tables")

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Settles gradients, and hides handles from the formula of the optimizer."""
        self._session()
        self._restore()
        self._skips = False
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is not None:
            if self.dense:
                raise NotSupported('step(closure) with dense="server": call backward() before step()')
            # Gradients come while the optimizer runs, and a hidden handle would look like a cleared one.
            return
        scale = getattr(optimizer, "grad_scale", None)
        found_inf = getattr(optimizer, "found_inf", None)
        self._skips = found_inf is not None and bool(found_inf)
        self._change_rules(optimizer)
        if not self._skips:
            for table in self.tables.values():
                gradient = table.handle.grad
                if scale is not None and gradient is not None:
                    gradient.div_(scale)
                self._settle(table, gradient)
        for table in self.tables.values():
            self._hide(table.handle)
        for group in self.dense:
            for parameter in group.parameters:
                if scale is not None and parameter.grad is not None:
                    parameter.grad.div_(scale)
                self._hide(parameter)

    def _hide(self, parameter: torch.nn.Parameter) -> None:
        if parameter.grad is not None:
            self._hidden.append((parameter, parameter.grad))
            parameter.grad = None

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Pushes gradients, and shows handles again."""
        session = self._session()
        hidden = {id(handle) for handle, _ in self._hidden}
        self._restore()
        pushed = []
        for table in self.tables.values():
            table.is_committed = False
            if self._skips or table.handle.grad is None:
                continue
            if id(table.handle) not in hidden:
                self._settle(table, table.handle.grad)
                table.handle.data.zero_()
            pushed.append(table.number)
        if not self._skips:
            for group in self.dense:
                group.stage([parameter.grad for parameter in group.parameters])
        session.push(pushed, 1.0)

    def _restore(self) -> None:
        for handle, gradient in self._hidden:
            if handle.grad is None:
                handle.grad = gradient
        self._hidden.clear()

    def _settle(self, table: Table, gradient: torch.Tensor | None) -> None:
        assert table.session is not None
        was_committed = table.is_committed
        norm = 0.0 if gradient is None else gradient.item()
        has_pending = table.session.native.settle(table.number, norm)
        if not math.isfinite(norm):
            raise NotFinite(f'table "{table.label}": a gradient of another worker is not finite; nothing was pushed')
        if has_pending and not was_committed:
            raise Error(
                f'table "{table.label}" has gradients that no backward() has finished: torch.autograd.grad does not write '
                ".grad of tables, and a pass that raised has to be run again"
            )

    def _change_rules(self, optimizer: torch.optim.Optimizer) -> None:
        options = [_options(group) for group in optimizer.param_groups]
        changed = [len(self._options) <= group or option is None or option != self._options[group]
                   for group, option in enumerate(options)]
        if any(changed):
            of_groups = [(self.tables[name], group) for name, group in self._groups.items() if name not in self.rules]
            of_groups += [(dense.table, dense.group) for dense in self.dense]
            for table, group in of_groups:
                if changed[group]:
                    _change_rule(table, rule_of(optimizer, optimizer.param_groups[group]))
        self._options = options


def _options(group: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Returns the options of a parameter group, or None if one of them may change in place."""
    options = tuple(value for name, value in group.items() if name != "params")
    return None if any(isinstance(value, (torch.Tensor, list, dict)) for value in options) else options


def _change_rule(table: Table, rule: Rule) -> None:
    if rule != table.rule:
        assert table.rule is not None
        table.set_rule(rule, keeps_state=rule.optimizer == table.rule.optimizer)


def _has_handle(optimizer: torch.optim.Optimizer, table: Table) -> bool:
    return any(parameter is table.handle for group in optimizer.param_groups for parameter in group["params"])
