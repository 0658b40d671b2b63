"""Two workers under DistributedDataParallel, of which one has an infinite gradient: both must skip the step."""

import sys

import libra_ps as libra
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
libra.init(mode="sync", seed=3)
torch.manual_seed(0)
model = torch.nn.Sequential(libra.nn.Embedding(20, 2), torch.nn.Linear(2, 1))
optimizer = libra.optim.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
unused = "unused" in sys.argv[1:]
ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=unused)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
ids = torch.tensor([rank, 5])

if unused:
    with ddp.no_sync():
        ddp(ids).sum().backward()
    raise SystemExit("it was not refused")

for step in range(4):
    libra.barrier()
    before = [model[0].read_rows(), *(parameter.detach().clone() for parameter in model[1].parameters())]
    optimizer.zero_grad()
    loss = ddp(ids).square().mean()
    if step == 2 and rank == 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    libra.barrier()
    after = [model[0].read_rows(), *model[1].parameters()]
    is_equal = [torch.equal(old, new) for old, new in zip(before, after)]
    assert is_equal == [step == 2] * 3, (rank, step, is_equal)
    assert scaler.get_scale() == (1024.0 if step < 2 else 512.0), (rank, step, scaler.get_scale())
values = torch.cat([model[0].read_rows().reshape(-1), *(parameter.detach().reshape(-1) for parameter in model[1].parameters())])
of_all = [torch.zeros_like(values) for _ in range(workers)]
dist.all_gather(of_all, values)
assert all(torch.equal(value, values) for value in of_all)
sys.stdout.write(f"done {rank}\n")
