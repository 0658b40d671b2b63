"""Deep learning recommendation model (Naumov et al. 2019) on the format of Criteo Kaggle.

    python examples/python/dlrm_torch.py --data train.txt
    python examples/python/dlrm_torch.py --rows 100000               # synthetic samples, seconds
    torchrun --nproc-per-node 2 examples/python/dlrm_torch.py --rows 100000

The tables of dlrm.py are those of Libra. The rest is the same, and so are the initial values with its --initial torch.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import criteo


class Tables(nn.Module):
    """One bag of rows for each field; the modules and methods are those of libra.nn.EmbeddingBagCollection."""

    def __init__(self, sizes: list[int], width: int) -> None:
        super().__init__()
        bags = {f"c{field}": nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for field, rows in enumerate(sizes, 1)}
        self.tables = nn.ModuleDict(bags)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.tables[name](ids) for name, ids in features.items()}


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with rectifiers between them."""
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    """A perceptron of the numbers, rows of the categories, dot products of all pairs of them, and a perceptron of these."""

    def __init__(self, bags: nn.Module, fields: int, width: int) -> None:
        super().__init__()
        self.bags = bags
        self.names = [f"c{field}" for field in range(1, fields + 1)]
        self.bottom = perceptron(criteo.NUMBERS, 256, 64, width)
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tril_indices(fields + 1, fields + 1, -1), persistent=False)
        self.top = perceptron(width + self.pairs.shape[1], 256, 64, 1)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        bottom = self.bottom(numbers).relu()
        rows = self.bags({name: ids[:, field : field + 1] for field, name in enumerate(self.names)})
        vectors = torch.stack([bottom, *(rows[name] for name in self.names)], 1)
        products = vectors @ vectors.transpose(1, 2)
        score: Tensor = self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], 1))
        return score.squeeze(1)


def draw_rows(bags: nn.Module, seed: int) -> None:
    """Sets the initial rows, evenly spread from -1/sqrt(rows) to 1/sqrt(rows)."""
    draw = torch.Generator().manual_seed(seed)
    for bag in bags.get_submodule("tables").children():
        assert isinstance(bag.weight, Tensor)
        rows, width = bag.weight.shape
        with torch.no_grad():
            bag.weight.copy_(torch.empty(rows, width).uniform_(-1 / math.sqrt(rows), 1 / math.sqrt(rows), generator=draw))


def score(model: nn.Module, test: criteo.Batch, batch_size: int) -> float:
    """Returns the AUC of samples that the model was not trained on."""
    model.eval()
    with torch.no_grad():
        parts = zip(torch.split(test.numbers, batch_size), torch.split(test.ids, batch_size))
        scores = torch.cat([model(numbers, ids) for numbers, ids in parts])
    model.train()
    return criteo.auc(scores, test.labels)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: criteo.Batch, batch_size: int, seed: int, log: bool
) -> float:
    """Makes a pass over the data, and returns its mean loss. Each worker takes its share of every batch."""
    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
    # A last batch that is not full would have fewer samples on some workers.
    samples = len(order) // batch_size * batch_size if workers > 1 else len(order)
    batches = torch.split(order[:samples], batch_size)
    loss_of = nn.BCEWithLogitsLoss()
    begin, total, seen = time.perf_counter(), 0.0, 0
    for step, batch in enumerate(batches, 1):
        batch = batch[rank::workers]
        loss = loss_of(model(data.numbers[batch], data.ids[batch]), data.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
        seen += len(batch)
        is_last = step == len(batches)
        if log and (is_last or (step % 20 == 0 and sys.stderr.isatty())):
            rate, end = seen * workers / (time.perf_counter() - begin), "\n" if is_last else "\r"
            print(f"step {step} of {len(batches)}: loss {total / seen:.4f}, {rate:,.0f} samples/s", end=end, file=sys.stderr)
    return total / seen


def main() -> None:
    arguments = criteo.parser(__doc__).parse_args()
    workers, is_first = int(os.environ.get("WORLD_SIZE", 1)), os.environ.get("RANK", "0") == "0"
    if workers > 1:
        torch.distributed.init_process_group("gloo")
    data, test, sizes = criteo.load(arguments.data, arguments.rows, arguments.rows_max, arguments.seed)
    bags = Tables(sizes, arguments.embedding_dim)
    draw_rows(bags, arguments.seed)
    torch.manual_seed(arguments.seed)
    model: nn.Module = DLRM(bags, len(sizes), arguments.embedding_dim)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=arguments.lr)
    if workers > 1:
        model = DistributedDataParallel(model)
    before, begin, losses = score(model, test, arguments.batch_size), time.perf_counter(), []
    for epoch in range(arguments.epochs):
        log = is_first and not arguments.json
        losses.append(train(model, optimizer, data, arguments.batch_size, arguments.seed + epoch, log))
    seconds = time.perf_counter() - begin
    after = score(model, test, arguments.batch_size)
    if is_first and arguments.json:
        rate = arguments.epochs * len(data.labels) / seconds
        print(json.dumps({"auc_before": before, "auc": after, "loss": losses, "samples_per_s": rate, "workers": workers}))
    elif is_first:
        print(f"test AUC {after:.4f} ({before:.4f} before training), loss {losses[-1]:.4f}, {seconds:.1f} s")
    if workers > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
