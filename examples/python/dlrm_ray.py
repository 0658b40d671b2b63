"""dlrm.py with workers of Ray Train, and the servers beside them on the same Ray cluster.

    ray start --head
    python examples/python/dlrm_ray.py --rows 100000

Options behind those below are those of dlrm.py. Servers keep a log in a directory that all nodes reach, so nodes of theirs may be lost; a
switch gets the hot rows of a plan (LIBRA_PLAN), which a run of dlrm.py alone writes (LIBRA_PROFILE). Where the name of a machine stands
for its loopback, workers on several need GLOO_SOCKET_IFNAME, the interface between them.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import libra_ps
import libra_ps.ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

HERE = os.path.dirname(os.path.abspath(__file__))


def loop(config: dict[str, Any]) -> None:
    """Trains as one of the workers, which have a process group already."""
    sys.path.insert(0, config["examples"])
    import dlrm

    sys.argv = ["dlrm.py", *config["options"]]
    dlrm.main()
    # Ray Train kills its workers, which would look like a loss of them.
    libra_ps.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--switches", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    failures = "times that Ray Train begins again with new workers, on the rows as they are by then"
    parser.add_argument("--max-failures", type=int, default=0, help=failures)
    parser.add_argument("--spread", action="store_true", help="workers are on different nodes, as far as there are enough")
    parser.add_argument("--storage", default="~/ray_results", help="directory of results and logs that all nodes reach")
    arguments, options = parser.parse_known_args()
    storage = os.path.abspath(os.path.expanduser(arguments.storage))
    os.makedirs(storage, exist_ok=True)
    job = os.path.join(storage, "job.toml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(f'log = true\n[server]\nstate-dir = "{storage}/{{job}}/{{member}}"\n')
    sizes = {name: getattr(arguments, name) for name in ("servers", "switches", "workers")}
    with libra_ps.ray.cluster(job, **sizes) as cluster:
        print(f"libra top --http {cluster.status()['http'].removeprefix('http://')}", file=sys.stderr, flush=True)
        given = {name: os.environ[name] for name in ("LIBRA_PLAN", "GLOO_SOCKET_IFNAME") if name in os.environ}
        if "LIBRA_PLAN" in given:
            given["LIBRA_PLAN"] = os.path.abspath(given["LIBRA_PLAN"])
        TorchTrainer(
            loop,
            train_loop_config={"examples": HERE, "options": options},
            scaling_config=ScalingConfig(
                num_workers=arguments.workers, placement_strategy="SPREAD" if arguments.spread else "PACK"
            ),
            run_config=RunConfig(
                storage_path=storage,
                failure_config=FailureConfig(max_failures=arguments.max_failures),
                worker_runtime_env={"env_vars": {**cluster.environment, **given}},
            ),
        ).fit()


if __name__ == "__main__":
    main()
