"""`python -m libra_ps.bench`: Libra beside plain torch, in turns on one machine."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    try:
        import torch
    except ImportError:
        print("libra_ps.bench needs torch: pip install libra-ps[torch]", file=sys.stderr)
        return 1
    from .measure import Report
    from .runs import RUNS, Options

    defaults = Options()
    described = "\n".join(f"  {name:<10} {run.__doc__}" for name, run in RUNS.items())
    parser = argparse.ArgumentParser(
        prog="python -m libra_ps.bench",
        description=f"{__doc__}\n\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=[*RUNS, "all"])
    parser.add_argument("--turns", type=int, default=defaults.turns, help="turns of each system")
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of a system in a turn")
    parser.add_argument("--threads", type=int, default=2, help="intra-op threads of torch")
    parser.add_argument("--json", type=Path, help="file for the figures of all turns")
    parser.add_argument("--dense", choices=["ddp", "server"], default=defaults.dense, help="dense parameters of processes")
    parser.add_argument("--no-sparse", action="store_true", help="no sparse gradients of torch between processes: gloo may crash")
    parser.add_argument("--divide", type=int, default=defaults.divide, help="divide all sizes, for a short try")
    given = parser.parse_args(arguments)
    if "RANK" not in os.environ:
        torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    # As by default, and without a warning.
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
    report = Report()
    options = Options(max(given.turns, 1), given.seconds, max(given.divide, 1), given.dense, not given.no_sparse)
    for run in RUNS.values() if given.what == "all" else [RUNS[given.what]]:
        run(options, report)
    if given.json is not None and os.environ.get("RANK", "0") == "0":
        machine = f"{os.cpu_count()} cores, {platform.platform()}"
        report.write(given.json, torch=torch.__version__, machine=machine, turns=given.turns, threads=given.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
