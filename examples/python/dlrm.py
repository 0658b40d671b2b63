"""Deep learning recommendation model (Naumov et al. 2019) on the format of Criteo Kaggle, with its tables on Libra.

    python examples/python/dlrm.py --data train.txt
    python examples/python/dlrm.py --rows 100000                     # synthetic samples, seconds
    torchrun --nproc-per-node 2 examples/python/dlrm.py --rows 100000
    LIBRA_DENSE=server torchrun --nproc-per-node 2 examples/python/dlrm.py --rows 100000

The model, its training and its test are those of dlrm_torch.py. Only the 26 tables differ.
"""

from __future__ import annotations

import json
import math
import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import criteo
import libra_ps as libra
from dlrm_torch import DLRM, draw_rows, score, train


def tables(sizes: list[int], width: int) -> libra.nn.EmbeddingBagCollection:
    """One table for each field. All are looked up in one call."""
    return libra.nn.EmbeddingBagCollection(
        libra.nn.TableConfig(f"c{field}", rows, width, init=libra.Uniform(1 / math.sqrt(rows)))
        for field, rows in enumerate(sizes, 1)
    )


def main() -> None:
    parser = criteo.parser(__doc__)
    parser.add_argument("--mode", choices=["async", "ssp", "sync"], help="what a step waits for: sync alone, async with others")
    initial = "rows begin at values that the server draws when they are read, or at those of dlrm_torch.py"
    parser.add_argument("--initial", choices=["server", "torch"], default="server", help=initial)
    arguments = parser.parse_args()
    workers, is_first = int(os.environ.get("WORLD_SIZE", 1)), os.environ.get("RANK", "0") == "0"
    # With LIBRA_DENSE=server the servers keep the dense parameters, and workers need no process group.
    in_ddp = workers > 1 and os.environ.get("LIBRA_DENSE") != "server"
    # Ray Train has made one.
    has_group = torch.distributed.is_initialized()
    if in_ddp and not has_group:
        torch.distributed.init_process_group("gloo")
    session = libra.init(mode=arguments.mode, seed=arguments.seed)
    data, test, sizes = criteo.load(arguments.data, arguments.rows, arguments.rows_max, arguments.seed)
    bags = tables(sizes, arguments.embedding_dim)
    if arguments.initial == "torch":
        draw_rows(bags, arguments.seed)
    torch.manual_seed(arguments.seed)
    model: nn.Module = DLRM(bags, len(sizes), arguments.embedding_dim)
    optimizer = libra.optim.wrap(torch.optim.Adagrad(model.parameters(), lr=arguments.lr), model)
    if in_ddp:
        model = DistributedDataParallel(model)
    before = score(model, test, arguments.batch_size)
    # No worker changes rows while another still scores.
    libra.barrier()
    begin, losses = time.perf_counter(), []
    for epoch in range(arguments.epochs):
        log = is_first and not arguments.json
        losses.append(train(model, optimizer, data, arguments.batch_size, arguments.seed + epoch, log))
    seconds = time.perf_counter() - begin
    libra.end_epoch()
    after = score(model, test, arguments.batch_size)
    if is_first and arguments.json:
        rate = arguments.epochs * len(data.labels) / seconds
        summary = {"auc_before": before, "auc": after, "loss": losses, "samples_per_s": rate, "workers": workers}
        print(json.dumps({**summary, "mode": session.mode, "initial": arguments.initial}))
    elif is_first:
        print(f"test AUC {after:.4f} ({before:.4f} before training), loss {losses[-1]:.4f}, {seconds:.1f} s, {session.mode}")
    if in_ddp and not has_group:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
