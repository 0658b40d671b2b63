"""Reads what `libra export` writes: rows of tables for serving, with numpy alone.

    from libra_ps.serve import Export
    export = Export("/models/run1")            # or file:///.., http://host/run1, https://..
    rows = export.look_up("user", ids)         # float32 [len(ids), width]; rows that are not there are 0
    export.refresh()                           # follows current.json; True if there is a newer version

The file needs nothing of the package, and may be copied. An export in a bucket is read where it is mounted or kept in sync
(`rclone mount`, `aws s3 sync`), or by HTTP. Every byte is compared with its CRC32C.

Threads may look up while one refreshes: each look-up is of one version, whole.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.float32]

#: Format of the export that this reader knows.
FORMAT = 1
CURRENT = "current.json"
#: Attempts to read a version: an exporter may remove what is older while it is read.
ATTEMPTS = 5
#: Seconds for a request.
TIMEOUT = 30.0


class ServeError(RuntimeError):
    """An export that cannot be read. What was loaded before stays."""


class Missing(ServeError):
    """A file that is not there."""


class Damaged(ServeError):
    """A file that is not as it was written."""


# CRC32C, in numpy: words are folded upon each other, by tables of what a shift by so many bits does to a remainder.

_POLYNOMIAL = 0x82F63B78


def _multiplied(a: int, b: int) -> int:
    """The product of two polynomials, modulo that of CRC32C, with bits reflected."""
    product = 0
    for _ in range(32):
        if a & 0x80000000:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _power(bits: int) -> int:
    """x to this power."""
    result, square = 0x80000000, 0x40000000
    while bits:
        if bits & 1:
            result = _multiplied(result, square)
        square = _multiplied(square, square)
        bits >>= 1
    return result


@functools.cache
def _tables(words: int) -> npt.NDArray[np.uint32]:
    """Products of a shift by so many words, a power of two, with all lower, and with all upper halves of a word."""
    products = [_power(32 * words)]
    for _ in range(31):
        products.append((products[-1] >> 1) ^ (_POLYNOMIAL if products[-1] & 1 else 0))
    # Bit 31 is x^0.
    of_bit = products[::-1]
    tables = np.zeros((2, 1 << 16), np.uint32)
    for half in range(2):
        for bit in range(16):
            tables[half, 1 << bit : 2 << bit] = tables[half, : 1 << bit] ^ np.uint32(of_bit[16 * half + bit])
    return tables


def crc32c(data: bytes | memoryview) -> int:
    """The CRC32C of bytes."""
    size = len(data)
    if size == 0:
        return 0
    # Zeros in front change no remainder; the first four bytes are inverted, as the CRC begins.
    pad = max(-size % 4, 4 - size if size < 4 else 0)
    buffer = np.empty(size + pad, np.uint8)
    buffer[:pad] = 0
    buffer[pad:] = np.frombuffer(data, np.uint8)
    buffer[pad : pad + 4] ^= np.uint8(0xFF)
    tail = 4 - min(size, 4)
    words = buffer.view("<u4").astype(np.uint32, copy=False)
    while len(words) > 1:
        keep = 1 << ((len(words) - 1).bit_length() - 1)
        first, rest = words[: len(words) - keep], words[len(words) - keep :]
        tables = _tables(keep)
        step = 1 << 16
        at = keep - len(first)
        for start in range(0, len(first), step):
            halves = first[start : start + step].view(np.uint16).reshape(-1, 2)
            folded = tables[0].take(halves[:, 0])
            folded ^= tables[1].take(halves[:, 1])
            rest[at + start : at + start + len(folded)] ^= folded
        words = rest
    remainder = _multiplied(int(words[0]), _power(32))
    # Of fewer than four bytes, the rest of the inverted start is beyond them.
    return (remainder ^ 0xFFFFFFFF ^ (0xFFFFFFFF >> (8 * (4 - tail)) if tail else 0)) & 0xFFFFFFFF


@dataclass(frozen=True)
class Table:
    """A table of an export."""

    name: str
    first_key: int
    end_key: int
    width: int
    values: str

    @property
    def is_layer(self) -> bool:
        """True if it is a layer of the model: one row."""
        return self.end_key - self.first_key == 1


@dataclass(frozen=True)
class _Rows:
    """Rows by rising key. Values are as they were exported, and decoded when they are looked up."""

    keys: Keys
    values: npt.NDArray[Any]
    scales: Values | None

    def take(self, at: npt.NDArray[np.intp]) -> _Rows:
        scales = None if self.scales is None else self.scales[at]
        return _Rows(self.keys[at], self.values[at], scales)


@dataclass(frozen=True)
class _Snapshot:
    """Rows of one version: those of a base, and those that have changed since."""

    version: int
    #: Its directory: another export may have the same numbers.
    directory: str
    tables: Mapping[str, Table]
    base: Mapping[str, _Rows]
    #: Rows that have changed since the base, by rising key, and whether each of them is still there.
    later: Mapping[str, tuple[_Rows, npt.NDArray[np.bool_]]]


class Export:
    """The newest version of an export, in memory."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.place = os.fspath(place).rstrip("/")
        self._read = _reader(self.place)
        self._lock = threading.Lock()
        self._snapshot = self._load(None)

    @property
    def version(self) -> int:
        """The version that look-ups read: the number of its checkpoint."""
        return self._snapshot.version

    @property
    def tables(self) -> Mapping[str, Table]:
        """Tables by name."""
        return self._snapshot.tables

    def refresh(self) -> bool:
        """Loads the newest version, and returns whether there was one. If it cannot be loaded, the version before stays."""
        with self._lock:
            snapshot = self._load(self._snapshot)
            is_new = snapshot is not self._snapshot
            self._snapshot = snapshot
            return is_new

    def look_up(self, table: str, ids: npt.ArrayLike, *, hashed: bool = False) -> Values:
        """Returns the rows of ids, counted from 0 in each table; one that is not there is 0.

        With `hashed`, ids are those of a table of PyTorch with `hash=True`.
        """
        snapshot = self._snapshot
        return _look_up(snapshot, _table(snapshot, table), _keys(_table(snapshot, table), ids, hashed))[0]

    def find(self, table: str, ids: npt.ArrayLike, *, hashed: bool = False) -> tuple[Values, npt.NDArray[np.bool_]]:
        """As `look_up`, and whether each row is there."""
        snapshot = self._snapshot
        return _look_up(snapshot, _table(snapshot, table), _keys(_table(snapshot, table), ids, hashed))

    def rows(self, table: str) -> tuple[Keys, Values]:
        """All rows of a table: keys, which rise, and values. The key of id 0 is `tables[name].first_key`."""
        snapshot = self._snapshot
        _table(snapshot, table)
        rows = _merged(snapshot.base[table], snapshot.later.get(table))
        return rows.keys, _decoded(rows)

    def layer(self, name: str) -> Values:
        """The values of a layer; 0 if it was never trained."""
        snapshot = self._snapshot
        table = _table(snapshot, name)
        if not table.is_layer:
            raise ValueError(f"{name} is a table of rows, and no layer: use look_up")
        values: Values = _look_up(snapshot, table, np.array([table.first_key], np.uint64))[0][0]
        return values

    def _load(self, before: _Snapshot | None) -> _Snapshot:
        """Returns the newest version, or `before` if that is."""
        for attempt in range(ATTEMPTS):
            current = _sealed(self._read(CURRENT), CURRENT, self.place)
            if before is not None and current["versions"][-1]["directory"] == before.directory:
                return before
            if before is not None and current["version"] <= before.version:
                raise ServeError(
                    f"{self.place} is at version {current['version']}, and {before.version} is loaded: "
                    "it is another export now, or an old copy; open it again"
                )
            try:
                return self._apply(current, before)
            except Missing:
                # An exporter may have removed it since: then there is a newer version.
                newer = _sealed(self._read(CURRENT), CURRENT, self.place)
                if attempt == ATTEMPTS - 1 or newer == current:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _apply(self, current: dict[str, Any], before: _Snapshot | None) -> _Snapshot:
        tables = {table["name"]: _described(table) for table in current["tables"]}
        names = list(tables)
        versions = current["versions"]
        if before is not None and before.directory in [listed["directory"] for listed in versions]:
            base = dict(before.base)
            later = dict(before.later)
            rest = [listed for listed in versions if listed["version"] > before.version]
        else:
            rest = [listed for listed in versions if listed["version"] >= current["base"]]
            base = self._base(rest[0], tables, names)
            later = {}
            rest = rest[1:]
        parts: dict[str, list[tuple[_Rows, npt.NDArray[np.bool_]]]] = {name: [] for name in names}
        for listed in rest:
            for file, manifest in self._files(listed, "delta"):
                name = names[file["table"]]
                rows, removed = self._file(listed, file, tables[name])
                parts[name].append(_difference(rows, removed, tables[name]))
        for name, of_table in parts.items():
            if of_table:
                later[name] = _latest([later[name], *of_table] if name in later else of_table)
                if len(later[name][0].keys) > max(len(base[name].keys) // 4, 1024):
                    base[name] = _merged(base[name], later.pop(name))
        return _Snapshot(current["version"], versions[-1]["directory"], tables, base, later)

    def _base(self, listed: dict[str, Any], tables: dict[str, Table], names: list[str]) -> dict[str, _Rows]:
        parts: dict[str, list[_Rows]] = {name: [] for name in names}
        for file, _ in self._files(listed, "base"):
            name = names[file["table"]]
            parts[name].append(self._file(listed, file, tables[name])[0])
        return {name: _sorted(_joined(of_table, tables[name])) for name, of_table in parts.items()}

    def _files(self, listed: dict[str, Any], kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        name = f"{listed['directory']}/manifest.json"
        data = self._read(name)
        _check(data, listed, name, self.place)
        manifest = _sealed(data, name, self.place)
        if manifest["version"] != listed["version"] or manifest[kind] is None:
            raise Damaged(f"{self.place}/{name} is not the one of version {listed['version']}")
        return [(file, manifest) for file in manifest[kind]]

    def _file(self, listed: dict[str, Any], file: dict[str, Any], table: Table) -> tuple[_Rows, Keys]:
        name = f"{listed['directory']}/{file['name']}"
        data = self._read(name)
        _check(data, file, name, self.place)
        return _parsed(data, file, table, f"{self.place}/{name}")


def _reader(place: str) -> Callable[[str], bytes]:
    """Returns a function that reads a file of a place."""
    scheme = urlsplit(place).scheme if "://" in place else ""
    if scheme in ("http", "https"):

        def get(name: str) -> bytes:
            try:
                with urllib.request.urlopen(f"{place}/{name}", timeout=TIMEOUT) as answer:
                    data: bytes = answer.read()
                    return data
            except urllib.error.HTTPError as error:
                if error.code in (403, 404, 410):
                    raise Missing(_missing(place, name, f"the server answers {error.code}")) from None
                raise ServeError(f"{place}/{name}: the server answers {error.code} {error.reason}") from None
            except (OSError, ValueError) as error:
                raise ServeError(f"{place}/{name}: {error}") from None

        return get
    if scheme not in ("", "file"):
        raise ServeError(
            f"{place}: a reader takes directories, file://, http:// and https://; mount a bucket (rclone mount) or keep a copy "
            "in sync (aws s3 sync), and give the directory"
        )
    folder = unquote(urlsplit(place).path) if scheme else place

    def read(name: str) -> bytes:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise Missing(_missing(folder, name, "there is no such file")) from None
        except OSError as error:
            raise ServeError(f"{path}: {error.strerror}") from None

    return read


def _missing(place: str, name: str, reason: str) -> str:
    if name == CURRENT:
        return f"{place} has no export: {name}: {reason}; `libra export --to {place}` writes one"
    return f"{place}/{name}: {reason}, and {CURRENT} lists it: a copy that is not whole, or one that was pruned"


def _check(data: bytes, expected: dict[str, Any], name: str, place: str) -> None:
    if len(data) != expected["bytes"]:
        raise Damaged(f"{place}/{name} is damaged: it has {len(data)} bytes, not {expected['bytes']}")
    found = f"{crc32c(data):08x}"
    if found != expected["checksum"]:
        raise Damaged(f"{place}/{name} is damaged: its checksum is {found}, not {expected['checksum']}")


def _sealed(data: bytes, name: str, place: str) -> dict[str, Any]:
    """Reads JSON whose first line has the checksum of the rest."""
    before, after = b'{\n  "checksum": "', b'",'
    end = len(before) + 8
    if not data.startswith(before) or data[end : end + 2] != after or not data.endswith(b"\n"):
        raise Damaged(f"{place}/{name} is damaged: it is none of an export, or was cut off")
    expected = data[len(before) : end].decode(errors="replace")
    checksum = f"{crc32c(data[end + 2 : -1]):08x}"
    if checksum != expected:
        raise Damaged(f"{place}/{name} is damaged: its checksum is {checksum}, not {expected}")
    content: dict[str, Any] = json.loads(data)
    if content.get("format") != FORMAT:
        found = content.get("format")
        raise ServeError(f"{place}/{name} is in format {found}; this reader knows format {FORMAT}: take a newer one")
    return content


def _described(table: dict[str, Any]) -> Table:
    keys = table["keys"]
    return Table(table["name"], keys["start"], keys["end"], table["width"], table["values"])


_TYPES = {"F32": ("<f4", 4), "BF16": ("<u2", 2), "I8": ("i1", 1), "U64": ("<u8", 8)}


def _parsed(data: bytes, file: dict[str, Any], table: Table, shown: str) -> tuple[_Rows, Keys]:
    """Reads a file of safetensors whose checksum is right."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])

    def tensor(name: str) -> npt.NDArray[Any]:
        described = header[name]
        start, end = described["data_offsets"]
        kind, size = _TYPES[described["dtype"]]
        array = np.frombuffer(data, kind, (end - start) // size, 8 + length + start)
        return array.reshape(described["shape"])

    keys, values = tensor("keys"), tensor("values")
    if len(keys) != file["rows"] or values.shape != (file["rows"], table.width) or len(tensor("removed")) != file["removed"]:
        raise Damaged(f"{shown} has other rows than its manifest")
    scales = tensor("scales") if "scales" in header else None
    return _Rows(keys, values, scales), tensor("removed")


def _joined(parts: list[_Rows], table: Table) -> _Rows:
    if not parts:
        kind = {"f32": np.float32, "bf16": np.uint16, "i8": np.int8}[table.values]
        scales = np.empty(0, np.float32) if table.values == "i8" else None
        return _Rows(np.empty(0, np.uint64), np.empty((0, table.width), kind), scales)
    if len(parts) == 1:
        return parts[0]
    scales = None if parts[0].scales is None else np.concatenate([part.scales for part in parts if part.scales is not None])
    return _Rows(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]), scales)


def _sorted(rows: _Rows) -> _Rows:
    if len(rows.keys) < 2 or bool((rows.keys[1:] > rows.keys[:-1]).all()):
        return rows
    return rows.take(np.argsort(rows.keys, kind="stable"))


def _difference(rows: _Rows, removed: Keys, table: Table) -> tuple[_Rows, npt.NDArray[np.bool_]]:
    """Rows of a delta, with those that are no more among them."""
    there = np.ones(len(rows.keys) + len(removed), np.bool_)
    if len(removed):
        there[len(rows.keys) :] = False
        scales = None if rows.scales is None else np.zeros(len(removed), np.float32)
        gone = _Rows(removed, np.zeros((len(removed), table.width), rows.values.dtype), scales)
        rows = _joined([rows, gone], table)
    return rows, there


def _latest(parts: list[tuple[_Rows, npt.NDArray[np.bool_]]]) -> tuple[_Rows, npt.NDArray[np.bool_]]:
    """Joins differences, of which later ones count, by rising key."""
    keys = np.concatenate([rows.keys for rows, _ in parts])
    there = np.concatenate([is_there for _, is_there in parts])
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    order = order[is_last]
    values = np.concatenate([rows.values for rows, _ in parts])[order]
    scales = None
    if parts[0][0].scales is not None:
        scales = np.concatenate([rows.scales for rows, _ in parts if rows.scales is not None])[order]
    return _Rows(keys[order], values, scales), there[order]


def _merged(base: _Rows, later: tuple[_Rows, npt.NDArray[np.bool_]] | None) -> _Rows:
    """All rows of a version."""
    if later is None:
        return base
    rows, there = later
    keep = ~_found(rows.keys, base.keys)[1]
    old, new = base.take(np.flatnonzero(keep)), rows.take(np.flatnonzero(there))
    scales = None if old.scales is None or new.scales is None else np.concatenate([old.scales, new.scales])
    return _sorted(_Rows(np.concatenate([old.keys, new.keys]), np.concatenate([old.values, new.values]), scales))


def _found(keys: Keys, wanted: Keys) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Positions of keys among others, which rise, and whether they are there."""
    if len(keys) == 0:
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), np.bool_)
    at = np.searchsorted(keys, wanted)
    at = np.minimum(at, len(keys) - 1)
    return at, keys[at] == wanted


def _decoded(rows: _Rows) -> Values:
    values = rows.values
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if rows.scales is not None:
        return values.astype(np.float32) * rows.scales[:, None]
    return np.asarray(values, np.float32)


def _table(snapshot: _Snapshot, name: str) -> Table:
    table = snapshot.tables.get(name)
    if table is None:
        names = ", ".join(snapshot.tables)
        raise KeyError(f"the export has no table {name!r}; it has {names}")
    return table


def _keys(table: Table, ids: npt.ArrayLike, hashed: bool) -> Keys:
    array = np.asarray(ids).reshape(-1)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids must be whole numbers, not {array.dtype}")
    if hashed:
        mixed = array.astype(np.int64, copy=False).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(8)) + np.uint64(table.first_key)
    rows = table.end_key - table.first_key
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= rows:
        bad = low if low < 0 else high
        raise IndexError(f"table {table.name}: id {bad} is not in 0..{rows}")
    return array.astype(np.uint64) + np.uint64(table.first_key)


def _look_up(snapshot: _Snapshot, table: Table, keys: Keys) -> tuple[Values, npt.NDArray[np.bool_]]:
    values = np.zeros((len(keys), table.width), np.float32)
    base = snapshot.base[table.name]
    at, found = _found(base.keys, keys)
    if found.all() and len(keys):
        values = _decoded(base.take(at))
    elif found.any():
        values[found] = _decoded(base.take(at[found]))
    later = snapshot.later.get(table.name)
    if later is not None:
        rows, there = later
        at, changed = _found(rows.keys, keys)
        if changed.any():
            is_there = there[at] & changed
            gone = changed & ~is_there
            values[gone] = 0.0
            values[is_there] = _decoded(rows.take(at[is_there]))
            found = (found & ~gone) | is_there
    return values, found
