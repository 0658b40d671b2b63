"""Neural collaborative filtering (He et al. 2017) on MovieLens 1M.

    python examples/python/neumf_torch.py --data ml-1m
    python examples/python/neumf_torch.py                  # synthetic data, seconds
    torchrun --nproc-per-node 2 examples/python/neumf_torch.py

The directory has the files of the authors: ml-1m.train.rating (or ncf.train.pairs.tsv), ml-1m.test.rating and
ml-1m.test.negative. What differs from neumf.py is three lines.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn

Embedding = nn.Embedding


class NeuMF(nn.Module):
    """Matrix factorisation of 8 factors beside a perceptron of 32, 16 and 8."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.user_gmf, self.item_gmf = Embedding(users, 8), Embedding(items, 8)
        self.user_mlp, self.item_mlp = Embedding(users, 16), Embedding(items, 16)
        layers = [nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.last = nn.Linear(16, 1)
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            nn.init.normal_(table.weight, std=0.01)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], 1))
        score: torch.Tensor = self.last(torch.cat([gmf, mlp], 1))
        return score.squeeze(1)


def read(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns pairs of user and item to train on, and for each user 100 items, of which the last is the right one."""
    path = folder / "ml-1m.train.rating"
    path = path if path.exists() else folder / "ncf.train.pairs.tsv"
    pairs = torch.tensor([[int(field) for field in line.split("\t")[:2]] for line in path.open()])
    right = [int(line.split("\t")[1]) for line in (folder / "ml-1m.test.rating").open()]
    negatives = [[int(item) for item in line.split("\t")[1:]] for line in (folder / "ml-1m.test.negative").open()]
    return pairs, torch.tensor([items + [item] for items, item in zip(negatives, right)])


def synthetic(users: int = 200, items: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """The same shapes, where a user likes the items of its own tenth."""
    taste = torch.arange(users) % 10
    user = torch.randint(users, (8000,))
    item = torch.randint(items // 10, (8000,)) * 10 + taste[user]
    tests = torch.randint(items, (users, 100))
    tests[:, -1] = torch.randint(items // 10, (users,)) * 10 + taste
    return torch.stack([user, item], 1), tests


def hit_ratio(model: nn.Module, tests: torch.Tensor) -> float:
    """Returns the share of users whose right item is among the ten best of 100."""
    model.eval()
    with torch.no_grad():
        users = torch.arange(len(tests)).repeat_interleave(tests.shape[1])
        scores = model(users, tests.reshape(-1)).reshape(tests.shape)
    model.train()
    return float(((scores >= scores[:, -1:]).sum(1) <= 10).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="directory of MovieLens 1M; synthetic data without it")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.batch_size < 1:
        parser.error(f"--batch-size {arguments.batch_size} must be at least 1")
    rank, workers = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(arguments.seed)
    pairs, tests = read(arguments.data) if arguments.data else synthetic()
    users = max(int(pairs[:, 0].max()) + 1, len(tests))
    items = max(int(pairs[:, 1].max()), int(tests.max())) + 1

    model = NeuMF(users, items)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained: nn.Module = model
    if workers > 1 and os.environ.get("LIBRA_DENSE") != "server":
        torch.distributed.init_process_group("gloo")
        trained = nn.parallel.DistributedDataParallel(model)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(arguments.epochs):
        # Four items that a user may not have seen for each that it has.
        user = pairs[:, 0].repeat(5)
        item = torch.cat([pairs[:, 1], torch.randint(items, (4 * len(pairs),))])
        seen = torch.zeros(len(user))
        seen[: len(pairs)] = 1.0
        # All workers draw the same order, and each takes its share of it.
        order = torch.randperm(len(user))[: len(user) // workers * workers][rank::workers]
        begin, total = time.perf_counter(), 0.0
        for start in range(0, len(order), arguments.batch_size):
            batch = order[start : start + arguments.batch_size]
            loss = loss_of(trained(user[batch], item[batch]), seen[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        seconds = time.perf_counter() - begin
        ratio, pace = hit_ratio(model, tests), len(user) / seconds
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total / len(order):.4f}, HR@10 {ratio:.4f}, {pace:,.0f} samples/s", flush=True)


if __name__ == "__main__":
    main()
