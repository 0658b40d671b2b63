"""Reads exports that are written here by hand, and those of the binary (`LIBRA_BINARY`)."""

from __future__ import annotations

import functools
import http.server
import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libra_ps import serve
from libra_ps.serve import Damaged, Export, Missing, ServeError, crc32c

BINARY = os.environ.get("LIBRA_BINARY")
LAYER = 1 << 40


def slow_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_checksums_are_those_of_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    draw = random.Random(1)
    for size in [*range(70), 4095, 4096, 4097, 70001]:
        data = draw.randbytes(size)
        assert crc32c(data) == slow_crc32c(data), size


class Writer:
    """Writes an export as `libra export` does."""

    def __init__(self, folder: Path, values: str = "f32", width: int = 3) -> None:
        self.folder, self.values, self.width = folder, values, width
        self.rows: dict[int, list[float]] = {}
        self.versions: list[dict[str, Any]] = []
        self.tables = [
            {"name": "user", "keys": {"start": 100, "end": 1100}, "width": width, "values": values},
            {"name": "bias", "keys": {"start": LAYER, "end": LAYER + 1}, "width": 4, "values": "f32"},
        ]
        folder.mkdir(parents=True, exist_ok=True)

    def seal(self, content: dict[str, Any]) -> bytes:
        rest = json.dumps(content, indent=2)[1:].encode()
        return b'{\n  "checksum": "%08x",' % crc32c(rest) + rest + b"\n"

    def file(self, rows: dict[int, list[float]], removed: list[int], values: str, width: int) -> bytes:
        keys = np.array(list(rows), np.uint64)
        array = np.array(list(rows.values()), np.float32).reshape(len(rows), width)
        tensors = {"keys": ("U64", keys), "removed": ("U64", np.array(removed, np.uint64))}
        if values == "i8":
            scales = (np.abs(array).max(axis=1) / 127).astype(np.float32) if len(rows) else np.zeros(0, np.float32)
            divisor = np.where(scales > 0, scales, 1)[:, None]
            tensors["scales"] = ("F32", scales)
            tensors["values"] = ("I8", np.rint(array / divisor).astype(np.int8))
        elif values == "bf16":
            tensors["values"] = ("BF16", (array.view(np.uint32) >> 16).astype(np.uint16))
        else:
            tensors["values"] = ("F32", array)
        header: dict[str, Any] = {"__metadata__": {"format": "libra-export-1", "table": "user"}}
        data = b""
        for name, (dtype, tensor) in tensors.items():
            header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
            data += tensor.tobytes()
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data

    def write(self, changed: dict[int, list[float]], removed: list[int], base: bool, keep: int = 1000) -> int:
        version = len(self.versions) + 1 if not self.versions else self.versions[-1]["version"] + 1
        directory = f"version-{version}-{random.getrandbits(64):016x}"
        (self.folder / directory).mkdir()
        for key in removed:
            del self.rows[key]
        self.rows.update(changed)
        layer = {LAYER: [float(version), 1.0, 2.0, 3.0]}

        def files(kind: str, parts: list[tuple[int, dict[int, list[float]], list[int]]]) -> list[dict[str, Any]]:
            listed = []
            for number, (table, rows, gone) in enumerate(parts):
                described = self.tables[table]
                data = self.file(rows, gone, str(described["values"]), int(str(described["width"])))
                name = f"{kind}-{number:05}-t.safetensors"
                (self.folder / directory / name).write_bytes(data)
                listed.append(
                    {
                        "name": name,
                        "table": table,
                        "rows": len(rows),
                        "removed": len(gone),
                        "bytes": len(data),
                        "checksum": f"{crc32c(data):08x}",
                    }
                )
            return listed

        keys = sorted(self.rows, key=lambda key: key * 7919 % 1009)
        halves = [{key: self.rows[key] for key in half} for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :])]
        manifest = self.seal(
            {
                "format": 1,
                "version": version,
                "previous": self.versions[-1]["version"] if self.versions else None,
                "written": 0,
                "source": [],
                "base": files("base", [(0, halves[0], []), (0, halves[1], []), (1, layer, [])]) if base else None,
                "delta": files("delta", [(0, changed, removed), (1, layer, [])]) if self.versions else [],
            }
        )
        (self.folder / directory / "manifest.json").write_bytes(manifest)
        self.versions.append(
            {
                "version": version,
                "is_base": base,
                "previous": version - 1 or None,
                "directory": directory,
                "bytes": len(manifest),
                "checksum": f"{crc32c(manifest):08x}",
            }
        )
        bases = [listed["version"] for listed in self.versions if listed["is_base"]]
        oldest = bases[-keep:][0]
        self.versions = [listed for listed in self.versions if listed["version"] >= oldest]
        self.point(version, bases[-1])
        kept = {listed["directory"] for listed in self.versions}
        for path in self.folder.glob("version-*"):
            if path.name not in kept:
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
        return version

    def point(self, version: int, base: int) -> None:
        current = {
            "format": 1,
            "version": version,
            "base": base,
            "values": self.values,
            "seed": 1,
            "job": 1,
            "tables": self.tables,
            "versions": self.versions,
        }
        temporary = self.folder / "current.json#1"
        temporary.write_bytes(self.seal(current))
        temporary.replace(self.folder / "current.json")

    def step(self, draw: random.Random, base: bool, keep: int = 1000) -> int:
        def row() -> list[float]:
            return [draw.randrange(-800, 800) / 8 for _ in range(self.width)]

        changed = {draw.randrange(100, 1100): row() for _ in range(60)}
        removed = [key for key in self.rows if key not in changed and draw.randrange(12) == 0]
        return self.write(changed, removed, base, keep)


def same(export: Export, writer: Writer) -> bool:
    keys, values = export.rows("user")
    assert keys.tolist() == sorted(writer.rows)
    wanted = np.array([writer.rows[key] for key in sorted(writer.rows)], np.float32)
    ids = np.arange(1000)
    there = np.isin(ids + 100, keys)
    found, is_there = export.find("user", ids)
    assert (is_there == there).all()
    assert (found[~there] == 0).all()
    assert (found[there] == values).all()
    assert export.layer("bias").tolist() == [float(export.version), 1.0, 2.0, 3.0]
    if writer.values == "i8":
        return bool((np.abs(values - wanted) <= np.abs(wanted).max(axis=1, keepdims=True) / 250).all())
    # Eighths below 100 have few bits.
    return bool((values == wanted).all()) if writer.values == "f32" else bool(np.allclose(values, wanted, rtol=1 / 128, atol=0))


@pytest.mark.parametrize("values", ["f32", "bf16", "i8"])
def test_every_version_is_read_whole(tmp_path: Path, values: str) -> None:
    draw = random.Random(3)
    writer = Writer(tmp_path / "e", values)
    writer.step(draw, True)
    followers = {1: Export(tmp_path / "e"), 3: Export(tmp_path / "e"), 17: Export(tmp_path / "e")}
    for turn in range(2, 60):
        version = writer.step(draw, turn % 10 == 0)
        for every, export in followers.items():
            if turn % every == 0:
                assert export.refresh()
                assert not export.refresh()
                assert export.version == version
                assert same(export, writer), (turn, every)
    assert same(Export(tmp_path / "e"), writer)


@pytest.mark.parametrize("keep", [1, 2, 1000])
def test_a_reader_fifty_versions_behind_catches_up(tmp_path: Path, keep: int) -> None:
    draw = random.Random(4)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    export = Export(tmp_path / "e")
    for turn in range(50):
        writer.step(draw, turn % 8 == 7, keep)
    assert export.refresh() and export.version == 51
    assert same(export, writer)


def test_a_version_that_is_pruned_while_it_is_read_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    export = Export(tmp_path / "e")
    writer.step(draw, True, keep=1)
    read, left = export._read, [2]

    def slow(name: str) -> bytes:
        if name.endswith("manifest.json") and left[0]:
            left[0] -= 1
            writer.step(draw, True, keep=1)
        return read(name)

    monkeypatch.setattr(export, "_read", slow)
    assert export.refresh()
    assert export.version == 4 and same(export, writer)


def test_damage_is_named_and_leaves_the_version_before(tmp_path: Path) -> None:
    draw = random.Random(6)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    export = Export(tmp_path / "e")
    rows = dict(writer.rows)
    writer.step(draw, False)
    folder = tmp_path / "e" / writer.versions[-1]["directory"]
    for path in [*folder.iterdir(), tmp_path / "e" / "current.json"]:
        data = path.read_bytes()
        for bad in [data[: len(data) // 2], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], b""]:
            path.write_bytes(bad)
            with pytest.raises(Damaged, match=path.name):
                export.refresh()
            assert export.version == 1 and export.rows("user")[0].tolist() == sorted(rows)
        path.unlink()
        with pytest.raises(Missing, match=path.name):
            export.refresh()
        path.write_bytes(data)
    assert export.refresh() and same(export, writer)


def test_bad_input_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="has no export: current.json"):
        Export(tmp_path / "none")
    with pytest.raises(ServeError, match="mount a bucket"):
        Export("s3://models/run")
    draw = random.Random(7)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    export = Export(f"file://{tmp_path}/e")
    with pytest.raises(KeyError, match="the export has no table 'usr'; it has user, bias"):
        export.look_up("usr", [1])
    with pytest.raises(IndexError, match="table user: id 1000 is not in 0..1000"):
        export.look_up("user", [3, 1000])
    with pytest.raises(IndexError, match="id -1 is not"):
        export.look_up("user", [-1])
    with pytest.raises(TypeError, match="whole numbers, not float64"):
        export.look_up("user", [0.5])
    with pytest.raises(ValueError, match="user is a table of rows"):
        export.layer("user")
    assert export.look_up("user", []).shape == (0, 3)
    # Another export in its place, and a format of later.
    other = Writer(tmp_path / "e")
    other.step(draw, True)
    with pytest.raises(ServeError, match="another export now"):
        export.refresh()
    content = json.loads((tmp_path / "e" / "current.json").read_text())
    del content["checksum"]
    (tmp_path / "e" / "current.json").write_bytes(writer.seal({**content, "format": 2}))
    with pytest.raises(ServeError, match="is in format 2; this reader knows format 1"):
        Export(tmp_path / "e")


def test_look_ups_beside_a_refresh_are_of_one_version(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "e")
    writer.write({key: [1.0] * 3 for key in range(100, 1100)}, [], True)
    export = Export(tmp_path / "e")
    stop, torn = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            rows = export.look_up("user", np.arange(1000))
            if rows.min() != rows.max():
                torn.append(rows)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(2, 30):
        writer.write({key: [float(turn)] * 3 for key in range(100, 1100)}, [], turn % 5 == 0)
        export.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert not torn and export.version == 29


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_export_is_read_by_http(tmp_path: Path, site: str) -> None:
    draw = random.Random(8)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    export = Export(f"{site}/e/")
    writer.step(draw, False)
    assert export.refresh() and same(export, writer)
    with pytest.raises(Missing, match="the server answers 404"):
        Export(f"{site}/none")


def test_the_file_needs_nothing_of_the_package(tmp_path: Path) -> None:
    draw = random.Random(9)
    writer = Writer(tmp_path / "e")
    writer.step(draw, True)
    copy = tmp_path / "serve.py"
    copy.write_bytes(Path(serve.__file__).read_bytes())
    program = "import sys, serve; print(len(serve.Export(sys.argv[1]).rows('user')[0]), 'torch' in sys.modules)"
    command = [sys.executable, "-c", program, str(tmp_path / "e")]
    output = subprocess.run(command, cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert output.stdout.split() == [str(len(writer.rows)), "False"]


def read_safetensors(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    kinds = {"U64": np.uint64, "F32": np.float32}
    header = json.loads(data[8 : 8 + length])
    arrays = {}
    for name, of in header.items():
        if name != "__metadata__":
            start, end = of["data_offsets"]
            array = np.frombuffer(data[8 + length + start : 8 + length + end], kinds[of["dtype"]])
            arrays[name] = array.reshape(of["shape"])
    return arrays


@pytest.mark.skipif(BINARY is None, reason="LIBRA_BINARY names no binary")
@pytest.mark.parametrize("values", ["f32", "bf16", "i8"])
def test_exports_of_a_job_are_its_checkpoints(tmp_path: Path, values: str) -> None:
    assert BINARY is not None

    def run(*arguments: str) -> None:
        subprocess.run([BINARY or "", *arguments], check=True, capture_output=True)

    state, to = str(tmp_path / "state"), str(tmp_path / "export")
    follow = [BINARY, "export", "--follow", "--every", "0.1", "--from", state, "--to", to, "--format", values, "--quiet"]
    with subprocess.Popen(follow) as exporter:
        try:
            train = ["train", "--state-dir", state, "--checkpoint-every", "0.3", "--incremental-checkpoints", "3"]
            run(*train, "--keep-checkpoints", "100", "--servers", "2", "--epochs", "1", "--quiet")
            newest = json.loads(_listed(run, state, tmp_path))["checkpoints"][0]["number"]
            export, deadline = None, time.monotonic() + 60
            while export is None or export.version < newest:
                assert time.monotonic() < deadline
                time.sleep(0.1)
                try:
                    export = export or Export(to)
                except Missing:
                    continue
                if export.refresh():
                    _compare(run, export, state, tmp_path, values)
            _compare(run, export, state, tmp_path, values)
        finally:
            exporter.terminate()
    assert exporter.returncode == 0
    assert not (tmp_path / "export" / "exporter.json").exists()


def _listed(run: Any, state: str, folder: Path) -> str:
    run("checkpoint", "list", state, "--quiet", "--json", str(folder / "list.json"))
    return (folder / "list.json").read_text()


def _compare(run: Any, export: Export, state: str, folder: Path, values: str) -> None:
    whole = folder / f"whole-{export.version}"
    if not whole.exists():
        run("checkpoint", "export", state, str(export.version), "--to", str(whole), "--quiet")
    tables = json.loads((whole / "export.json").read_text())["tables"]
    assert {table["name"] for table in tables} == set(export.tables)
    for table in tables:
        wanted = read_safetensors(whole / table["files"][0]["name"])
        keys, rows = export.rows(table["name"])
        assert (keys == wanted["keys"]).all()
        if values == "f32" or export.tables[table["name"]].is_layer:
            assert rows.tobytes() == wanted["values"].tobytes()
        elif values == "bf16":
            assert np.allclose(rows, wanted["values"], rtol=1 / 256, atol=1e-38)
        else:
            assert (np.abs(rows - wanted["values"]) <= np.abs(wanted["values"]).max(axis=1, keepdims=True) / 253).all()
