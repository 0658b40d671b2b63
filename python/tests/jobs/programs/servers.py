"""A model that was made in plain torch, on servers: beside a twin that sees the batches of all workers."""

import argparse
import sys

import libra_ps as libra
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--checkpoint")
arguments = parser.parse_args()

session = libra.init(mode="sync", seed=3, servers=2, timeout=60)
rank, workers = session.rank, session.workers
# Other values in every worker: those of rank 0 count.
torch.manual_seed(100 + rank)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Embedding(60, 4)
        self.b = torch.nn.EmbeddingBag(40, 3, mode="sum")
        self.dense = torch.nn.Linear(7, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.a(x), self.b(y)], 1)).square()


model = Model()
model, optimizer = libra.wrap(model, torch.optim.SGD(model.parameters(), lr=0.02), dense="server")
session.begin()
twin = libra.to_torch(model)
its = torch.optim.SGD(twin.parameters(), lr=0.02)
torch.manual_seed(7)
worst = 0.0


def train(steps: int) -> None:
    global worst
    for _ in range(steps):
        x = torch.stack([torch.randperm(60) for _ in range(workers)])
        y = torch.stack([torch.randperm(60)[:, None] % 40 for _ in range(workers)])
        optimizer.zero_grad()
        loss = model(x[rank], y[rank]).mean()
        loss.backward()
        optimizer.step()
        its.zero_grad()
        with torch.no_grad():
            expected = twin(x[rank], y[rank]).mean().item()
        twin(x.reshape(-1), y.reshape(-1, 1)).mean().backward()
        its.step()
        worst = max(worst, abs(loss.item() - expected) / abs(expected))


train(arguments.steps)
if arguments.checkpoint:
    libra.save(arguments.checkpoint, model, optimizer, steps=arguments.steps)
    kept = {name: value.clone() for name, value in twin.state_dict().items()}
    momenta = its.state_dict()
    train(5)
    assert libra.load(arguments.checkpoint, model, optimizer) == {"steps": arguments.steps}
    twin.load_state_dict(kept)
    its.load_state_dict(momenta)
    train(20)
libra.barrier()
found, expected = model.state_dict(), twin.state_dict()
for name, value in expected.items():
    assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-5), (name, (found[name] - value).abs().max())
assert worst < 1e-5, worst
sys.stdout.write(f"done {rank} {worst}\n")
