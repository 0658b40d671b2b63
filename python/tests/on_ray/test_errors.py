"""Jobs that cannot be started on a Ray cluster, each refused in one line that names what is wrong."""

from __future__ import annotations

import os
import re
import socket
from contextlib import closing
from pathlib import Path

import libra_ps
import libra_ps.ray
import pytest
from conftest import Nodes


def refused(folder: Path, text: str, **sizes: int) -> str:
    path = folder / "job.toml"
    path.write_text(text)
    with pytest.raises(libra_ps.JobFailed) as caught:
        libra_ps.ray.run(path, **{"servers": 1, "switches": 0, "workers": 1, **sizes}).wait(60)
    complaint = str(caught.value)
    assert "\n" not in complaint, complaint
    return complaint


def test_resources_that_are_missing_are_named(nodes: Nodes, tmp_path: Path) -> None:
    text = "[ray]\ntimeout = 2\nworker = { CPU = 2, GPU = 1 }\n"
    complaint = refused(tmp_path, text, workers=2)
    assert "after 2 s worker-0 waits for 2 CPU, 1 GPU: " in complaint
    assert all(f"{node.ip} has " in complaint for node in nodes.all), complaint
    complaint = refused(tmp_path, "[ray]\ntimeout = 2\n", switches=4)
    assert re.search("switch-3 waits for 1 CPU, 1 libra_switch: .* has [0-9] CPU, 0 libra_switch left", complaint), complaint


def test_a_node_without_the_binary_is_named(nodes: Nodes, tmp_path: Path) -> None:
    complaint = refused(tmp_path, '[ray]\nbinary = "/nowhere/libra"\n')
    assert f"controller on node {nodes[0].ip}: there is no program `/nowhere/libra`" in complaint


def test_a_node_with_another_version_is_named(nodes: Nodes, tmp_path: Path) -> None:
    other = tmp_path / "libra"
    # The head has the binary, another node something else of its name.
    here = os.readlink(f"/proc/self/ns/net")
    real = os.environ["LIBRA_BINARY"]
    other.write_text(
        f'#!/bin/sh\n[ "$(readlink /proc/self/ns/net)" = "{here}" ] || [ "$1" != --version ] && exec {real} "$@"\necho libra 0.0.9\n'
    )
    other.chmod(0o755)
    complaint = refused(tmp_path, f'[ray]\nbinary = "{other}"\nstrategy = "STRICT_SPREAD"\n', workers=2)
    assert re.match(r"(server|worker)-[01] on node 10.77.0.[23]: it has libra 0.0.9, .*and the controller libra 0", complaint), complaint


def test_ports_that_are_taken_are_named(nodes: Nodes, tmp_path: Path) -> None:
    with closing(socket.create_server((nodes[0].ip, 7901))):
        complaint = refused(tmp_path, '[ray]\nports = "7901-7902"\n')
    assert complaint == (
        f"controller on node {nodes[0].ip}: 1 of its ports 7901-7902 are free, and 2 needed: choose others in [ray] ports"
    )


def test_ports_are_those_of_the_range(nodes: Nodes, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('quiet = true\n[ray]\nports = "7910-7919"\n')
    job = libra_ps.ray.run(path, servers=2, switches=1, workers=1)
    try:
        members = job.status()["controller"]["members"]
        ports = {shown["member"]: int(shown["address"].rpartition(":")[2]) for shown in members if shown["kind"] != "worker"}
        assert ports and all(port in range(7910, 7920) for port in ports.values()), ports
    finally:
        job.cancel()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("epochs = 1\n\nbogus = 2\n", r"controller on node .*: .*job.toml, line 3: `controller` has no option `bogus`"),
        ("bogus = 1\n", r"line 1: `controller` has no option"),
        ("epochs = 1\n[worker]\n# bogus\nbogus = 2\n", r"worker-0 on node .*: .*job.toml, line 4: `worker` has no option `bogus`"),
        ('seed = 1\nepochs = "ten"\n', r"controller on node .*: invalid value 'ten' for '.*job.toml, line 2: epochs'"),
        ('data = "/nowhere"\n', r"controller on node .*: .*/nowhere"),
    ],
)
def test_options_that_no_member_has_are_named_with_their_line(nodes: Nodes, tmp_path: Path, text: str, complaint: str) -> None:
    assert re.search(complaint, refused(tmp_path, text))
    assert not nodes.processes()
