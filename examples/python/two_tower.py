"""Two-tower retrieval (Yi et al. 2019) on MovieLens 1M: the items that a user may like, out of all items.

    python examples/python/two_tower.py --data ml-1m
    python examples/python/two_tower.py                              # synthetic data, seconds
    torchrun --nproc-per-node 2 examples/python/two_tower.py

A tower turns ids into a vector of length 1. The items of a batch are the wrong answers for each other's users. The directory
has ml-1m.train.rating (or ncf.train.pairs.tsv) and ml-1m.test.rating.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import libra_ps as libra


class Tower(nn.Module):
    """Rows of ids, a perceptron, and a length of 1."""

    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.rows = libra.nn.Embedding(ids, width, init=libra.Normal(0.1))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.rows(ids)
        # What the perceptron adds to the row: a tower begins as the row itself.
        return nn.functional.normalize(rows + self.mlp(rows), dim=1)


class TwoTower(nn.Module):
    """The user's vector times those of the batch's items, less the logarithm of how often an item is in a batch."""

    def __init__(self, users: int, items: int, width: int, temperature: float, shares: Tensor) -> None:
        super().__init__()
        self.user, self.item = Tower(users, width), Tower(items, width)
        self.temperature = temperature
        self.log_shares: Tensor
        self.register_buffer("log_shares", shares.clamp(min=1e-9).log(), persistent=False)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        scores: Tensor = self.user(user) @ self.item(item).T
        # An item that is twice in the batch is no wrong answer for the user of its other place.
        twin = (item == item[:, None]).fill_diagonal_(False)
        return (scores / self.temperature - self.log_shares[item]).masked_fill(twin, -1e9)


def read(folder: Path) -> tuple[Tensor, Tensor]:
    """Returns pairs of user and item to train on, and one pair of each user to test with."""
    train = folder / "ml-1m.train.rating"
    train = train if train.exists() else folder / "ncf.train.pairs.tsv"
    paths = (train, folder / "ml-1m.test.rating")
    pairs = [torch.tensor([[int(field) for field in line.split("\t")[:2]] for line in path.open()]) for path in paths]
    return pairs[0], pairs[1]


def synthetic(users: int = 500, items: int = 1000, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Pairs of users with items of their own tenth, each 40 times in train and once in test."""
    draw = torch.Generator().manual_seed(seed)
    user = torch.arange(users).repeat(41)
    item = torch.randint(items // 10, (len(user),), generator=draw) * 10 + user % 10
    pairs = torch.stack([user, item], 1)
    return pairs[users:], pairs[:users]


def recall(model: TwoTower, train: Tensor, test: Tensor, items: int, count: int) -> float:
    """Returns the share of test pairs whose item is among the `count` best of all that the user has not seen."""
    model.eval()
    with torch.no_grad():
        vectors = model.item(torch.arange(items))
        scores = model.user(torch.arange(int(test[:, 0].max()) + 1)) @ vectors.T
    model.train()
    right = scores[test[:, 0], test[:, 1]]
    known = train[train[:, 0] < len(scores)]
    scores[known[:, 0], known[:, 1]] = -2.0
    better = (scores[test[:, 0]] > right[:, None]).sum(1)
    return float((better < count).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of MovieLens 1M; synthetic data without it")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the pairs")
    parser.add_argument("--batch-size", type=int, default=512, help="pairs of a worker's step: more are more wrong answers")
    parser.add_argument("--embedding-dim", type=int, default=32, help="values of a row, and of the vectors")
    parser.add_argument("--temperature", type=float, default=0.1, help="scores are divided by it: lower is sharper")
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate of Adam")
    parser.add_argument("--recall-at", type=int, default=50, help="items that are retrieved for a user")
    parser.add_argument("--mode", choices=["async", "ssp", "sync"], help="what a step waits for: sync alone, async with others")
    parser.add_argument("--seed", type=int, default=1, help="of initial values and the order of pairs")
    parser.add_argument("--json", action="store_true", help="print the summary as one line of JSON, and nothing else")
    arguments = parser.parse_args()
    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if workers > 1:
        torch.distributed.init_process_group("gloo")
    session = libra.init(mode=arguments.mode, seed=arguments.seed)
    torch.manual_seed(arguments.seed)
    train, test = read(arguments.data) if arguments.data else synthetic()
    users, items = (int(max(train[:, column].max(), test[:, column].max())) + 1 for column in (0, 1))
    shares = torch.bincount(train[:, 1], minlength=items) / len(train)

    towers = TwoTower(users, items, arguments.embedding_dim, arguments.temperature, shares)
    optimizer = libra.optim.wrap(torch.optim.Adam(towers.parameters(), lr=arguments.lr), towers)
    model: nn.Module = DistributedDataParallel(towers) if workers > 1 else towers
    loss_of = nn.CrossEntropyLoss()
    before, begin, losses = recall(towers, train, test, items, arguments.recall_at), time.perf_counter(), []
    for epoch in range(arguments.epochs):
        # The same order in all workers, of which each takes its share. DistributedDataParallel needs the same number of steps.
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(arguments.seed + epoch))
        order = order[rank : len(order) // workers * workers : workers]
        total, start = 0.0, time.perf_counter()
        for batch in torch.split(order, arguments.batch_size):
            scores = model(train[batch, 0], train[batch, 1])
            loss = loss_of(scores, torch.arange(len(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(order))
        rate = workers * len(order) / (time.perf_counter() - start)
        if rank == 0 and not arguments.json:
            print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}, {rate:,.0f} pairs/s", file=sys.stderr)
    seconds = time.perf_counter() - begin
    libra.end_epoch()
    after = recall(towers, train, test, items, arguments.recall_at)
    if rank == 0 and arguments.json:
        summary = {"recall_before": before, "recall": after, "at": arguments.recall_at, "items": items, "loss": losses}
        print(json.dumps({**summary, "pairs_per_s": arguments.epochs * len(train) / seconds, "workers": workers}))
    elif rank == 0:
        print(f"recall@{arguments.recall_at} of {items} items {after:.4f} ({before:.4f} before training), mode {session.mode}")
    if workers > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
