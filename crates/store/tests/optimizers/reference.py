#!/usr/bin/env python3
"""Writes reference.txt: rows after random gradients, as other implementations compute them in float64.

    python3 -m venv venv && venv/bin/pip install numpy torch keras
    venv/bin/pip download --no-deps torchrec && unzip torchrec-*.whl torchrec/optim/rowwise_adagrad.py
    venv/bin/python reference.py torchrec/optim/rowwise_adagrad.py > reference.txt

PyTorch computes all but FTRL-proximal (Keras, on PyTorch) and row-wise Adagrad (torchrec's own file, alone: the
package wants GPU kernels to be installed). Schedules and clipping are PyTorch's too, but for the inverse square
root, which is written out below.

Each case runs twice. `exact` keeps everything in float64. `stored` rounds the row, and nothing else, to float32
after each step, as a store of float32 rows must: what is left of a difference is the arithmetic.

Gradients and first values are not stored: the test makes the same ones (splitmix64 from the name of the case).
All numbers that go in are exact in float32.
"""

import importlib.util
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
keras.config.set_floatx("float64")

WIDTH = 8
STEPS = 1000
WRITTEN = (1, 10, 100, 1000)
MASK = (1 << 64) - 1


def mix(bits):
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


class Numbers:
    def __init__(self, name):
        self.state = 0
        for byte in name.encode():
            self.state = mix(self.state ^ byte)

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mix(self.state)

    def even(self):
        """Between -1 and 1 in steps of 2^-21, and 8 bits to decide something else."""
        bits = self.bits()
        return (bits >> 42) / (1 << 21) - 1.0, bits & 255

    def first(self):
        return [self.even()[0] for _ in range(WIDTH)]

    def gradient(self, scale):
        """One in 8 is 0; lanes are 0.25 apart on the average, and those from 4 on are 64 times smaller."""
        lanes = []
        for lane in range(WIDTH):
            value, other = self.even()
            size = scale / 64 if lane >= 4 else scale
            lanes.append(0.0 if other % 8 == 0 else (value + (lane % 4) / 4) * size)
        return lanes


def f32(value):
    return float(np.float32(value))


class Torch:
    """Any optimizer with the interface of PyTorch, with its schedulers and its clipping."""

    def __init__(self, make, schedule=None, clip=None):
        self.make, self.schedule, self.clip = make, schedule, clip

    def begin(self, first):
        self.row = torch.nn.Parameter(torch.tensor([first]))
        self.optimizer = self.make([self.row])
        self.scheduler = self.schedule(self.optimizer) if self.schedule else None

    def step(self, gradient):
        # None: the row is not touched, but the schedule goes on.
        self.row.grad = None if gradient is None else torch.tensor([gradient])
        if self.clip and gradient is not None:
            self.clip([self.row])
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()

    def round(self):
        self.row.data = self.row.data.float().double()

    def values(self):
        return self.row.data[0].tolist()


class Ftrl:
    """Keras counts half of l2, and weighs the squares by 2: the l2 of McMahan et al. is twice its."""

    def __init__(self, alpha, beta, l1, l2):
        self.numbers = dict(
            learning_rate=f32(alpha),
            initial_accumulator_value=0.0,
            l1_regularization_strength=f32(l1),
            l2_regularization_strength=f32(l2) / 2,
            beta=f32(beta),
        )

    def begin(self, _):
        self.row = keras.Variable(np.zeros(WIDTH), dtype="float64")
        self.optimizer = keras.optimizers.Ftrl(**self.numbers)

    def step(self, gradient):
        self.optimizer.apply([torch.tensor(gradient)], [self.row])

    def round(self):
        self.row.assign(self.row.value.float().double())

    def values(self):
        return self.row.value.tolist()


def row_wise_adagrad(path):
    spec = importlib.util.spec_from_file_location("rowwise_adagrad", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda row: module.RowWiseAdagrad(row, lr=f32(0.1), eps=f32(1e-2))


def warmed(steps, then):
    """Even from 1 / steps to 1, then another scheduler."""
    schedulers = torch.optim.lr_scheduler

    def schedule(optimizer):
        warm = schedulers.LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)
        return schedulers.SequentialLR(optimizer, [warm, then(optimizer)], milestones=[steps])

    return schedule


def cases(path):
    o, s, clip = torch.optim, torch.optim.lr_scheduler, torch.nn.utils
    betas = (f32(0.9), f32(0.999))

    def sgd(row):
        return o.SGD(row, lr=f32(0.1))

    yield "sgd", 1, Torch(sgd)
    yield "sgd_decay", 1, Torch(lambda r: o.SGD(r, lr=f32(0.1), weight_decay=f32(0.01)))
    yield "momentum", 1, Torch(lambda r: o.SGD(r, lr=f32(0.01), momentum=f32(0.9)))
    yield "nesterov", 1, Torch(lambda r: o.SGD(r, lr=f32(0.01), momentum=f32(0.9), nesterov=True))
    yield "adagrad", 1, Torch(lambda r: o.Adagrad(r, lr=f32(0.1), eps=f32(1e-8)))
    yield "adagrad_epsilon", 1, Torch(lambda r: o.Adagrad(r, lr=f32(0.1), eps=f32(1e-2)))
    yield "adagrad_decay", 1, Torch(lambda r: o.Adagrad(r, lr=f32(0.1), eps=f32(1e-2), weight_decay=f32(0.1)))
    yield "row_adagrad", 1, Torch(row_wise_adagrad(path))
    yield "adam", 1, Torch(lambda r: o.Adam(r, lr=f32(0.01), betas=betas, eps=f32(1e-8)))
    yield "adam_epsilon", 1, Torch(lambda r: o.Adam(r, lr=f32(0.01), betas=betas, eps=f32(1e-2)))
    yield "adam_decay", 1, Torch(
        lambda r: o.Adam(r, lr=f32(0.01), betas=betas, eps=f32(1e-2), weight_decay=f32(0.1))
    )
    yield "adamw", 1, Torch(
        lambda r: o.AdamW(r, lr=f32(0.01), betas=betas, eps=f32(1e-2), weight_decay=f32(0.1))
    )
    yield "rms_prop", 1, Torch(lambda r: o.RMSprop(r, lr=f32(0.01), alpha=f32(0.9), eps=f32(1e-2)))
    yield "ftrl", 1, Ftrl(0.1, 1.0, 0.0, 0.0)
    yield "ftrl_l1_l2", 1, Ftrl(0.1, 0.5, 2.0, 0.5)
    # The gradients of these two are large, because PyTorch adds 1e-6 to the norm.
    yield "clip_value", 1024, Torch(sgd, clip=lambda r: clip.clip_grad_value_(r, 700.0))
    yield "clip_norm", 1024, Torch(sgd, clip=lambda r: clip.clip_grad_norm_(r, 1500.0))
    yield "step_decay", 1, Torch(sgd, lambda op: s.StepLR(op, 150, gamma=f32(0.5)))
    yield "exponential", 1, Torch(sgd, lambda op: s.ExponentialLR(op, gamma=f32(0.3) ** (1 / 400)))
    yield "warm_constant", 1, Torch(sgd, warmed(300, lambda op: s.ConstantLR(op, factor=1.0)))
    yield "warm_linear", 1, Torch(sgd, warmed(50, lambda op: s.LinearLR(op, 1.0, f32(0.1), total_iters=800)))
    yield "warm_cosine", 1, Torch(
        sgd, warmed(100, lambda op: s.CosineAnnealingLR(op, T_max=900, eta_min=f32(0.1) * f32(0.01)))
    )
    yield "warm_inverse_root", 1, Torch(
        sgd, lambda op: s.LambdaLR(op, lambda n: (n + 1) / 64 if n < 64 else (64 / n) ** 0.5)
    )
    # Touched in one step of three, which its own corrections count, and its schedule does not.
    yield "adam_lazy", 1, Torch(
        lambda r: o.Adam(r, lr=f32(0.01), betas=betas, eps=f32(1e-2)),
        lambda op: s.StepLR(op, 100, gamma=f32(0.75)),
    )


def run(name, scale, case, rounds):
    numbers = Numbers(name)
    case.begin(numbers.first())
    for step in range(1, STEPS + 1):
        touched = numbers.bits() % 3 == 0 or not name.endswith("lazy")
        gradient = numbers.gradient(scale)
        case.step(gradient if touched else None)
        if rounds:
            case.round()
        if step in WRITTEN:
            values = " ".join(f"{value:.10e}" for value in case.values())
            print(name, "stored" if rounds else "exact", step, values)


def main():
    print(f"# By reference.py, with PyTorch {torch.__version__} and Keras {keras.__version__}:")
    print("# case, how the row is kept, steps, the row")
    for name, scale, case in cases(sys.argv[1]):
        for rounds in (False, True):
            run(name, scale, case, rounds)


main()
