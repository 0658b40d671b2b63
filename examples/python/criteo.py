"""Samples of the Criteo Kaggle display advertising challenge, and synthetic ones of the same format.

    python examples/python/criteo.py synthetic.txt --rows 100000

A line has a label, 13 integers and 26 categories of eight hexadecimal digits, separated by tabs. Missing fields are empty.
"""

from __future__ import annotations

import argparse
import itertools
from array import array
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

NUMBERS, FIELDS = 13, 26
MISSING = -(1 << 31)

#: Distinct categories of each field in the seven days of the challenge.
CATEGORIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


class Samples(NamedTuple):
    """A label, 13 numbers and 26 categories for each sample, as in the file. Missing ones are MISSING."""

    labels: Tensor
    numbers: Tensor
    categories: Tensor


class Batch(NamedTuple):
    """Input of a model: labels, numbers in a range that suits a perceptron, and ids below the rows of each field."""

    labels: Tensor
    numbers: Tensor
    ids: Tensor


def table_rows(rows_max: int) -> list[int]:
    """Returns the rows of each field. The first row is that of missing categories."""
    return [min(count + 1, rows_max) for count in CATEGORIES]


def read(path: Path, rows: int) -> Samples:
    """Returns the first samples of a file."""
    values = array("q")
    with path.open() as lines:
        for number, line in enumerate(itertools.islice(lines, rows), 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 1 + NUMBERS + FIELDS:
                raise SystemExit(f"{path}:{number}: {len(fields)} fields, a label, 13 numbers and 26 categories are 40")
            values.extend(int(field) if field else MISSING for field in fields[: 1 + NUMBERS])
            values.extend(int(field, 16) if field else MISSING for field in fields[1 + NUMBERS :])
    table = torch.tensor(values, dtype=torch.int64).reshape(-1, 1 + NUMBERS + FIELDS)
    labels, numbers, categories = torch.split(table, [1, NUMBERS, FIELDS], 1)
    return Samples(labels.squeeze(1).float(), numbers, categories)


def write(path: Path, samples: Samples) -> None:
    """Writes samples as a file that `read` reads."""
    with path.open("w") as file:
        for label, numbers, categories in zip(*(part.tolist() for part in samples)):
            fields = [str(int(label)), *("" if number == MISSING else str(number) for number in numbers)]
            fields += ["" if category == MISSING else f"{category:08x}" for category in categories]
            file.write("\t".join(fields) + "\n")


def synthetic(rows: int, seed: int = 1, categories_max: int = 1_000_000, exponent: float = 1.05) -> Samples:
    """Draws samples, whose categories have a Zipf distribution, and whose labels a hidden model has drawn.

    That model adds a weight of each category, a weighted sum of the numbers and a product of two fields. A model that knows it
    has an AUC of about 0.83.
    """
    draw = torch.Generator().manual_seed(seed)
    logits = torch.zeros(rows)
    factors = torch.zeros(2, rows)
    numbers = torch.empty(rows, NUMBERS, dtype=torch.int64)
    for column in range(NUMBERS):
        normal = torch.randn(rows, generator=draw)
        numbers[:, column] = (normal + 2).exp().long()
        logits += (0.3 if column % 2 else -0.2) * normal * (column < 6)
    categories = torch.empty(rows, FIELDS, dtype=torch.int64)
    for field, count in enumerate(CATEGORIES):
        count = min(count, categories_max)
        ranks = zipf(rows, count, exponent, draw)
        weights = torch.randn(count, generator=draw)
        logits += 0.3 * weights[ranks]
        if field in (1, 5):
            factors[field // 5] = weights[ranks]
        # Multiplication by an odd number shuffles the numbers of 32 bits.
        categories[:, field] = ((ranks + 1) * 2654435761 + field * 97) & 0xFFFFFFFF
    labels = (torch.rand(rows, generator=draw) < torch.sigmoid(logits + 0.5 * factors.prod(0) - 1.2)).float()
    numbers[torch.rand(rows, NUMBERS, generator=draw) < 0.05] = MISSING
    categories[torch.rand(rows, FIELDS, generator=draw) < 0.02] = MISSING
    return Samples(labels, numbers, categories)


def zipf(rows: int, count: int, exponent: float, draw: torch.Generator) -> Tensor:
    """Draws ranks below `count`, where rank r has a frequency in proportion to (r + 1) ** -exponent."""
    shares = torch.arange(1, count + 1, dtype=torch.float64).pow(-exponent).cumsum(0)
    return torch.searchsorted(shares, torch.rand(rows, dtype=torch.float64, generator=draw) * shares[-1]).clamp_(max=count - 1)


def prepare(samples: Samples, rows_of_fields: list[int]) -> Batch:
    """Returns the input of a model: the logarithms of numbers, and categories hashed to the rows of their fields."""
    known = samples.numbers.clamp(min=0).float().log1p()
    rows = torch.tensor(rows_of_fields)
    # The remainder of a product, so that the lowest bits of a category do not decide alone.
    hashed = (samples.categories * 0x9E3779B1 & 0x7FFFFFFFFFFF) >> 15
    ids = torch.where(samples.categories == MISSING, 0, 1 + hashed % (rows - 1))
    return Batch(samples.labels, known, ids)


def split(batch: Batch, share: float = 0.1) -> tuple[Batch, Batch]:
    """Returns the first samples to train on, and the last ones to test with."""
    trained = int(len(batch.labels) * (1.0 - share))
    return Batch(*(part[:trained] for part in batch)), Batch(*(part[trained:] for part in batch))


def auc(scores: Tensor, labels: Tensor) -> float:
    """Returns the probability that a positive sample has a higher score than a negative one; a tie counts half."""
    _, places, counts = torch.unique(scores.double(), return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1).double() / 2)[places]
    positive = labels > 0.5
    hits, misses = int(positive.sum()), int((~positive).sum())
    if not hits or not misses:
        raise SystemExit(f"AUC needs both labels: the test has {hits} positive and {misses} negative samples")
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))


def parser(text: str | None) -> argparse.ArgumentParser:
    """Returns the options that dlrm.py and dlrm_torch.py share."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, help="samples in the format of Criteo Kaggle (train.txt); synthetic ones without it")
    made.add_argument("--rows", type=int, default=1_000_000, help="samples that are read or drawn; the last tenth is the test")
    made.add_argument("--rows-max", type=int, default=1_000_000, help="rows of a table at most: more categories share rows")
    made.add_argument("--embedding-dim", type=int, default=16, help="values of a row")
    made.add_argument("--batch-size", type=int, default=2048, help="samples of a step, of all workers together")
    made.add_argument("--epochs", type=int, default=1, help="passes over the data; click models overfit from the second on")
    made.add_argument("--lr", type=float, default=0.02, help="learning rate of Adagrad")
    made.add_argument("--seed", type=int, default=1, help="of initial values, the order of samples and synthetic data")
    made.add_argument("--json", action="store_true", help="print the summary as one line of JSON, and nothing else")
    return made


def load(data: Path | None, rows: int, rows_max: int, seed: int) -> tuple[Batch, Batch, list[int]]:
    """Returns samples to train on, samples to test with and the rows of each table."""
    samples = read(data, rows) if data else synthetic(rows, seed, rows_max)
    sizes = table_rows(rows_max)
    return *split(prepare(samples, sizes)), sizes


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Writes synthetic samples to a file.")
    options.add_argument("path", type=Path)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    write(chosen.path, synthetic(chosen.rows, chosen.seed))
