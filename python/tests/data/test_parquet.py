"""Parquet of pyarrow is read as pyarrow reads it: types, nulls, lists, encodings and row groups, by `libra data convert`."""

from __future__ import annotations

import base64
import datetime
import random
from pathlib import Path
from typing import Any

import pytest
from binary import libra, run

pa = pytest.importorskip("pyarrow", reason="no pyarrow: `pip install pyarrow`")
pq = pytest.importorskip("pyarrow.parquet")

CODECS = ["none", "snappy", "zstd", "gzip", "lz4"]
DESCRIPTION = """
label = "label"
weight = "weight"
time = "time"
numbers = ["price", "age", "flag"]
categories = ["user", "ad", "name", "tags", { name = "hex", text = "hex" }]
"""


def splitmix64(bits: int) -> int:
    mask = 2**64 - 1
    bits = (bits + 0x9E3779B97F4A7C15) & mask
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
    return bits ^ (bits >> 31)


def text_id(text: str) -> int:
    """The id of a text, as docs/reference/data.md promises that it never changes."""
    data = text.encode()
    value = splitmix64(len(data))
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        value = splitmix64(value ^ int.from_bytes(data[start : start + 8], "little"))
    return splitmix64(value ^ int.from_bytes(data[whole:], "little"))


def rows(draw: random.Random, count: int) -> dict[str, Any]:
    def some(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    def text() -> str:
        # Short ones repeat, as for a dictionary; some are large.
        return draw.choice(["", "a", "Zürich", str(draw.random()), "x" * draw.choice([10, 70_000])])

    return {
        "label": [draw.randrange(2) for _ in range(count)],
        "weight": [draw.random() for _ in range(count)],
        "time": [draw.randrange(-(2**40), 2**40) for _ in range(count)],
        "price": [some(draw.gauss(0, 1e6)) for _ in range(count)],
        "age": [some(draw.randrange(-(2**31), 2**31)) for _ in range(count)],
        "flag": [some(draw.random() < 0.5) for _ in range(count)],
        "user": [some(draw.randrange(2**63)) for _ in range(count)],
        "ad": [some(draw.randrange(2**64)) for _ in range(count)],
        "name": [some(text()) for _ in range(count)],
        "tags": [
            some([some(draw.randrange(2**31)) for _ in range(draw.randrange(4))]) for _ in range(count)
        ],
        "hex": [some(f"{draw.randrange(2**64):x}") for _ in range(count)],
        "unused": [{"a": [1, 2]} for _ in range(count)],
    }


def table(draw: random.Random, count: int) -> Any:
    text = draw.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    tags = draw.choice([pa.list_(pa.int32()), pa.large_list(pa.int64())])
    types = {
        "label": draw.choice([pa.int8(), pa.uint8(), pa.int64(), pa.float32(), pa.bool_()]),
        "weight": draw.choice([pa.float32(), pa.float64()]),
        "time": draw.choice([pa.int64(), pa.timestamp("us")]),
        "price": draw.choice([pa.float32(), pa.float64()]),
        "age": draw.choice([pa.int32(), pa.int64()]),
        "flag": pa.bool_(),
        "user": pa.int64(),
        "ad": pa.uint64(),
        "name": text,
        "tags": tags,
        "hex": pa.string(),
        "unused": pa.struct({"a": pa.list_(pa.int32())}),
    }
    columns = rows(draw, count)
    if pa.types.is_boolean(types["label"]):
        columns["label"] = [label == 1 for label in columns["label"]]
    elif pa.types.is_floating(types["label"]):
        columns["label"] = [float(label) for label in columns["label"]]
    names = list(columns)
    draw.shuffle(names)
    return pa.table({name: pa.array(columns[name], types[name]) for name in names})


def expected(written: Any) -> dict[str, list[Any]]:
    """The content of a file by pyarrow, as ids, numbers and labels."""
    found = written.to_pydict()
    found.pop("unused")
    if pa.types.is_timestamp(written.schema.field("time").type):
        found["time"] = written["time"].cast(pa.int64()).to_pylist()
    found["label"] = [int(label) for label in found["label"]]
    # Weights have 32 bits.
    found["weight"] = pa.array(found["weight"], pa.float32()).to_pylist()
    found["flag"] = [None if flag is None else int(flag) for flag in found["flag"]]
    found["name"] = [None if name is None else text_id(name) for name in found["name"]]
    found["hex"] = [None if text is None else int(text, 16) for text in found["hex"]]
    found["tags"] = [[tag for tag in tags or [] if tag is not None] for tags in found["tags"]]
    return found


@pytest.mark.parametrize("seed", range(24))
def test_files_are_read_as_pyarrow_reads_them(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    source = tmp_path / "source"
    source.mkdir()
    (source / "dataset.toml").write_text(DESCRIPTION)
    parts = []
    for part in range(draw.randrange(1, 4)):
        content = table(draw, draw.choice([1, 7, 300]))
        path = source / f"part-{part}.parquet"
        pq.write_table(
            content,
            path,
            compression=draw.choice(CODECS),
            use_dictionary=draw.choice([True, False, ["name"]]),
            data_page_version=draw.choice(["1.0", "2.0"]),
            data_page_size=draw.choice([64, 4096, 2**20]),
            row_group_size=draw.choice([1, 13, 1000]),
            write_statistics=draw.choice([True, False]),
            store_schema=draw.choice([True, False]),
            write_page_checksum=draw.choice([True, False]),
            use_byte_stream_split=False,
        )
        parts.append(expected(pq.read_table(path)))
    target = tmp_path / "target"
    libra("data", "convert", str(source), "--to", str(target), "--group-rows", str(draw.choice([1, 50, 65536])))
    found = pq.read_table(target / "part-00000.parquet").to_pydict()
    for name, values in found.items():
        assert values == [value for part in parts for value in part[name]], name


def test_encodings_of_version_2_are_read(tmp_path: Path) -> None:
    """Encodings that writers choose only if they are asked."""
    draw = random.Random(1)
    content = table(draw, 500).select(["label", "weight", "price", "user", "hex"])
    (tmp_path / "source").mkdir()
    description = 'label = "label"\nweight = "weight"\nnumbers = ["price"]\ncategories = ["user", { name = "hex", text = "hex" }]'
    (tmp_path / "source" / "dataset.toml").write_text(description)
    content = content.set_column(0, "label", content["label"].cast(pa.int32()))
    encodings = {
        "label": "DELTA_BINARY_PACKED",
        "weight": "BYTE_STREAM_SPLIT",
        "price": "BYTE_STREAM_SPLIT",
        "user": "DELTA_BINARY_PACKED",
        "hex": "DELTA_BYTE_ARRAY",
    }
    path = tmp_path / "source" / "a.parquet"
    pq.write_table(content, path, use_dictionary=False, column_encoding=encodings, data_page_version="2.0")
    libra("data", "convert", str(tmp_path / "source"), "--to", str(tmp_path / "target"))
    found = pq.read_table(tmp_path / "target" / "part-00000.parquet")
    assert found["user"].to_pylist() == content["user"].to_pylist()
    assert found["label"].to_pylist() == content["label"].to_pylist()
    assert found["price"].to_pylist() == content["price"].cast(pa.float64()).to_pylist()
    assert found["hex"].to_pylist() == [None if text is None else int(text, 16) for text in content["hex"].to_pylist()]


def test_rows_of_one_file_are_those_of_its_groups(tmp_path: Path) -> None:
    """A group of a million rows, and a million rows in small groups, are equal."""
    (tmp_path / "dataset.toml").write_text('label = "label"\ncategories = ["user"]')
    content = pa.table(
        {"label": pa.array([row % 2 for row in range(1_000_000)], pa.int32()), "user": pa.array(range(1_000_000))}
    )
    for name, size in [("large", 1_000_000), ("small", 1000)]:
        pq.write_table(content, tmp_path / f"{name}.parquet", row_group_size=size)
        libra("data", "convert", str(tmp_path / f"{name}.parquet"), "--to", str(tmp_path / name))
    large, small = (pq.read_table(tmp_path / name / "part-00000.parquet") for name in ["large", "small"])
    assert large.equals(small) and large["user"].to_pylist() == list(range(1_000_000))


def test_files_of_spark_are_read(tmp_path: Path) -> None:
    """Times of 96 bits, lists whose elements have an older name, and pages without statistics."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "dataset.toml").write_text('label = "label"\ntime = "time"\ncategories = ["tags", "user"]')
    start = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=datetime.timezone.utc)
    times = [start + datetime.timedelta(microseconds=row * 1_234_567) for row in range(200)]
    tags = [None if row % 5 == 0 else list(range(row % 4)) for row in range(200)]
    content = pa.table(
        {
            "label": pa.array([row % 2 for row in range(200)], pa.int32()),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "tags": pa.array(tags, pa.list_(pa.int64())),
            "user": pa.array([None if row % 7 == 0 else row for row in range(200)], pa.int64()),
        }
    )
    pq.write_table(
        content,
        tmp_path / "source" / "part-00000-c000.snappy.parquet",
        use_deprecated_int96_timestamps=True,
        use_compliant_nested_type=False,
        write_statistics=False,
        store_schema=False,
        row_group_size=64,
        version="1.0",
    )
    libra("data", "convert", str(tmp_path / "source"), "--to", str(tmp_path / "target"))
    found = pq.read_table(tmp_path / "target" / "part-00000.parquet")
    nanoseconds = [time.value for time in content["time"].cast(pa.timestamp("ns", "UTC"))]
    assert found["time"].to_pylist() == nanoseconds
    assert found["tags"].to_pylist() == [row or [] for row in tags]
    assert found["user"].to_pylist() == content["user"].to_pylist()


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_files_are_named(plaintext_footer: bool, tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[name-defined, misc]
        """Keys that are not wrapped."""

        def wrap_key(self, key: bytes, master: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
            return base64.b64decode(wrapped)

    configuration = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["user"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(lambda _: Keys())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    content = pa.table({"label": pa.array([0, 1], pa.int32()), "user": [7, 8]})
    path = tmp_path / "a.parquet"
    pq.write_table(content, path, encryption_properties=properties)
    (tmp_path / "dataset.toml").write_text('label = "label"\ncategories = ["user"]')
    done = run("data", "check", str(path))
    place = f"{path}, row group 0, column user" if plaintext_footer else str(path)
    assert done.returncode == 1
    assert f"{place}: the file is encrypted, which Libra does not read: decrypt it first" in done.stderr
