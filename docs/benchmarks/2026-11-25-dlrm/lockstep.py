"""dlrm_torch.py with two steps at a time whose gradients are those of the same values, as those of two workers in lockstep.

    PYTHONPATH=examples/python python docs/benchmarks/2026-11-25-dlrm/lockstep.py --batch-size 128
"""

from __future__ import annotations

from typing import Any

import torch

import dlrm_torch


class Lockstep(torch.optim.Adagrad):
    """Adagrad that keeps the gradients of a step until the next one, and then makes both steps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.kept: list[torch.Tensor | None] | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        second = [parameter.grad for parameter in parameters]
        if self.kept is None:
            self.kept = second
            return
        for gradients in (self.kept, second):
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient
            super().step()
        self.kept = None


torch.optim.Adagrad = Lockstep  # type: ignore[misc]
dlrm_torch.main()
