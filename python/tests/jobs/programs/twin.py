"""Trains with tables under DistributedDataParallel, beside a plain model that sees the batches of all workers."""

import argparse

import libra_ps as libra
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--clip", type=float)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--events", action="store_true")
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
libra.init(mode="sync", seed=3, log=arguments.events)
torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = libra.nn.Embedding(60, 4)
        self.b = libra.nn.EmbeddingBag(40, 3, mode="sum")
        self.dense = torch.nn.Linear(7, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.a(x), self.b(y)], 1)).square()


model = Model()
optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.02), model)
twin = libra.to_torch(model)
its = torch.optim.SGD(twin.parameters(), lr=0.02)
ddp = torch.nn.parallel.DistributedDataParallel(model)
worst = 0.0
for _ in range(arguments.steps):
    optimizer.zero_grad()
    its.zero_grad()
    for micro in range(arguments.accumulate):
        # Equal seeds: every worker draws the batches of all.
        x, y = torch.randint(60, (workers, 16)), torch.randint(40, (workers, 16, 3))
        if micro + 1 < arguments.accumulate:
            with ddp.no_sync():
                loss = ddp(x[rank], y[rank]).mean()
                loss.backward()
        else:
            loss = ddp(x[rank], y[rank]).mean()
            loss.backward()
        theirs = twin(x.reshape(-1), y.reshape(-1, 3)).mean()
        theirs.backward()
    if arguments.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
    else:
        its.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        worst = max(worst, abs(mean.item() / workers - theirs.item()) / abs(theirs.item()))
    optimizer.step()
sums = [torch.zeros(1) for _ in range(workers)]
dist.all_gather(sums, sum(parameter.detach().sum() for parameter in model.dense.parameters()).reshape(1))
assert all(torch.equal(value, sums[0]) for value in sums), f"dense replicas drift: {sums}"
libra.barrier()
rows = model.a.read_rows()
parts = [torch.zeros_like(rows) for _ in range(workers)]
dist.all_gather(parts, rows)
assert all(torch.equal(part, rows) for part in parts)
if rank == 0:
    print(f"worst {worst}", flush=True)
