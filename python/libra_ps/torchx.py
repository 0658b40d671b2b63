"""A component of TorchX with the four roles of a job.

    torchx run --scheduler local_cwd --wait path/to/libra_ps/torchx.py:job --options "epochs=3,mode=ssp"

For one machine, and for trying a scheduler. TorchX starts no member again by itself: where members must come back, use systemd, Slurm or
Kubernetes with the files of `deploy/`. It needs `pip install torchx`; `libra_ps` is not imported.
"""

# No `from __future__ import annotations`: TorchX reads types of parameters, not their text.
import shlex

from torchx import specs


def job(
    servers: int = 2,
    switches: int = 1,
    workers: int = 2,
    options: str = "",
    libra: str = "libra",
    port: int = 7700,
    token_file: str = "",
    image: str = "",
    cpu: int = 1,
    memory_mb: int = 1024,
) -> specs.AppDef:
    """A job of the Libra parameter server.

    Args:
        servers: processes that have the rows
        switches: processes that add up the gradients of hot rows; 0 for none
        workers: processes that train
        options: options of `libra controller`, as in epochs=3,mode=ssp
        libra: binary, in the path of all machines
        port: port of the controller
        token_file: file with the token of the cluster, needed for more than one machine; at the same place on all
        image: directory or image of the scheduler, which has a shell
        cpu: processors of each process
        memory_mb: memory of each process, in MiB
    """
    sizes = {"server": servers, "switch": switches, "worker": workers}
    counts = [f"--{'switches' if role == 'switch' else f'{role}s'}={count}" for role, count in sizes.items()]
    wanted = [f"--{option}" for option in options.split(",") if option]
    token = [f"--token-file={token_file}"] if token_file else []
    listen = f"0.0.0.0:{port}" if token_file else f"127.0.0.1:{port}"

    def role(name: str, count: int, arguments: list[str]) -> specs.Role:
        # The variable that has the machine of the first role is known when the scheduler is; on one machine it is not set.
        host = f'"${{{specs.macros.rank0_env}:-127.0.0.1}}"'
        command = shlex.join([libra, name, *token, *arguments])
        if name != "controller":
            command += f" --patience=60 --controller={host}:{port}"
        return specs.Role(
            name=name,
            image=image,
            entrypoint="sh",
            args=["-c", f"exec {command}"],
            num_replicas=count,
            resource=specs.Resource(cpu=cpu, gpu=0, memMB=memory_mb),
        )

    roles = [role("controller", 1, [f"--listen={listen}", *counts, *wanted])]
    roles += [role(name, count, []) for name, count in sizes.items() if count]
    return specs.AppDef(name="libra", roles=roles)
