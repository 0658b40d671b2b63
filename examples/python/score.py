"""Scores rows with the export of a `deeplight` model: with numpy and pyarrow, and without a cluster.

    libra train --model deeplight --data clicks --state-dir run
    libra export --from run --to model
    python examples/python/score.py --export model --data clicks

The area under the ROC curve is that of the rows that training left out for tests (--test-share). A program that serves the
model needs the same four steps: keys of a row's features, their vectors, the pairs of fields, the layers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs


def reader() -> Any:
    """The module `libra_ps.serve`: of the package, or the file of this checkout, which needs nothing of it."""
    try:
        from libra_ps import serve
    except ModuleNotFoundError:
        path = Path(__file__).resolve().parents[2] / "python" / "libra_ps" / "serve.py"
        spec = importlib.util.spec_from_file_location("libra_ps_serve", path)
        if spec is None or spec.loader is None or not path.exists():
            sys.exit("score.py: there is no module libra_ps, and no python/libra_ps/serve.py in this checkout: pip install libra-ps")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    return serve


serve = reader()
Floats = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint64]
#: Hashes of the features of a field, row by row, and how many each row has; None: one.
Features: TypeAlias = tuple[Hashes, npt.NDArray[np.int64] | None]
#: The value of a field that has none.
MISSING = np.uint64(2**64 - 1)


class Bad(Exception):
    """Data that cannot be scored."""


def splitmix64(bits: Hashes) -> Hashes:
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def text_id(text: bytes) -> int:
    """The id of a text: its words of eight bytes, chained (docs/reference/data.md)."""
    words = np.frombuffer(text + bytes(8 - len(text) % 8), np.uint64)
    value = np.array([len(text)], np.uint64)
    for word in [np.uint64(0), *words]:
        value = splitmix64(value ^ word)
    return int(value[0])


def bins(numbers: npt.NDArray[np.float64]) -> Hashes:
    """The bins of numbers: whole ones as in Criteo's log, others four for each power of two; what is missing has its own."""
    found = np.full(len(numbers), MISSING)
    is_whole = numbers == np.floor(numbers)
    is_large = is_whole & (numbers > 2)
    found[is_whole & ~is_large] = (np.maximum(numbers[is_whole & ~is_large], -(2.0**32)) + 2.0**32).astype(np.uint64)
    found[is_large] = np.uint64(2**33) + (np.log(numbers[is_large]) ** 2).astype(np.uint64)
    is_other = ~is_whole & ~np.isnan(numbers)
    found[is_other] = np.uint64(2**40) + (numbers[is_other].view(np.uint64) >> np.uint64(50))
    return found


class Model:
    """DeepFwFM, as `libra train --model deeplight` trains it."""

    def __init__(self, export: Any, fields: int) -> None:
        self._export = export
        if "feature" not in export.tables:
            raise Bad(f"the export has no table feature, as `libra train --model deeplight` has: it has {', '.join(export.tables)}")
        self.first_key = export.tables["feature"].first_key
        #: Values of the vector of a feature; behind them its row has a weight.
        self.lanes = export.tables["feature"].width - 1
        self.pairs = np.zeros((fields, fields), np.float32)
        above = np.triu_indices(fields, 1)
        pairs = export.layer("pairs")
        if len(pairs) != len(above[0]):
            raise Bad(f"the export is of a model with other fields: the data has {fields}, which have {len(above[0])} pairs, not {len(pairs)}")
        self.pairs[above] = pairs
        names = sorted((name for name in export.tables if name.startswith("hidden")), key=lambda name: int(name[6:]))
        self.layers, inputs = [], fields * self.lanes
        for name in [*names, "output"]:
            values = export.layer(name)
            outputs = len(values) // (inputs + 1)
            self.layers.append((values[: inputs * outputs].reshape(inputs, outputs), values[inputs * outputs :]))
            inputs = outputs

    def rows(self, hashes: Hashes) -> Floats:
        """The rows of features: each vector, and its weight."""
        keys = hashes >> np.uint64(1)
        keys[keys < self.first_key] |= np.uint64(2**62)
        distinct, where = np.unique(keys, return_inverse=True)
        found: Floats = self._export.look_up("feature", distinct - np.uint64(self.first_key))
        return found[where]

    def field(self, features: Features) -> Floats:
        """The rows of a field: of several features the mean, as the model takes it."""
        hashes, counts = features
        rows = self.rows(hashes)
        if counts is None:
            return rows
        sums = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=0)
        means: Floats = (sums / counts[:, None]).astype(np.float32)
        return means

    def logits(self, features: list[Features]) -> Floats:
        """Scores of rows, by the features of each field."""
        rows: Floats = np.stack([self.field(of_field) for of_field in features], axis=1)
        vectors: Floats = rows[:, :, : self.lanes]
        logits: Floats = rows[:, :, self.lanes].sum(axis=1)
        # Lane by lane, as the first layer has its inputs.
        inputs = np.ascontiguousarray(vectors.transpose(0, 2, 1))
        logits += ((inputs @ self.pairs) * inputs).sum(axis=(1, 2))
        outputs = inputs.reshape(len(inputs), -1)
        for weights, biases in self.layers[:-1]:
            outputs = np.maximum(outputs @ weights + biases, 0)
        weights, biases = self.layers[-1]
        logits += (outputs @ weights)[:, 0] + biases[0]
        return logits


def natural(name: str) -> list[tuple[int, str]]:
    """A key of the natural order of names: runs of digits are numbers."""
    return [(int(part or 0), "") if number % 2 else (0, part) for number, part in enumerate(re.split(r"(\d+)", name))]


def matches(pattern: str, name: str) -> bool:
    """True if a pattern matches a path: `*` and `?` stop at a slash, `**` does not."""
    words = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.fullmatch("".join(words.get(part, re.escape(part)) for part in parts), name) is not None


class Place:
    """A Parquet file, those below a directory, or those that a pattern matches: a path, or a URL that pyarrow knows."""

    def __init__(self, place: str) -> None:
        pattern = re.search(r"[*?]", place)
        # Of a pattern, the directory in front of it.
        begin = place if pattern is None else place[: place.rfind("/", 0, pattern.start()) + 1] or "."
        if "://" in place:
            self.system, root = fs.FileSystem.from_uri(begin)
        else:
            self.system, root = fs.LocalFileSystem(), begin
        root = root.rstrip("/") or "/"
        found = self.system.get_file_info(root)
        if found.type == fs.FileType.NotFound:
            raise Bad(f"{place}: there is no such file or directory")
        if found.is_file:
            self.folder, self.files = root.rpartition("/")[0] or ".", [root]
        else:
            below = self.system.get_file_info(fs.FileSelector(root, recursive=True))
            names = {it.path: it.path.removeprefix(root).lstrip("/") for it in below if it.is_file}
            # Names that begin so are no data, as for libra.
            data = {path: name for path, name in names.items() if not re.search(r"(^|/)[._]", name)}
            if pattern is not None:
                data = {path: name for path, name in data.items() if matches(place[len(begin) if begin != "." else 0 :], name)}
            texts = [path for path in data if re.search(r"(\.(txt|tsv|gz|zst)|/day_\d+)$", path)]
            self.folder, self.files = root, sorted((path for path in data if path.endswith(".parquet")), key=natural)
            if not self.files and texts:
                self.files = texts[:1]
            if not self.files:
                raise Bad(f"{place}: there is no Parquet file")
        if not self.files[0].endswith(".parquet"):
            raise Bad(f"{self.files[0]} is no Parquet file, which is all that score.py reads: libra data convert {place} --to DIR makes some")

    def read_beside(self, name: str) -> bytes | None:
        """A file beside the data; None if it is not there."""
        path = f"{self.folder}/{name}"
        if self.system.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self.system.open_input_file(path) as file:
            return bytes(file.read())


class Data:
    """Parquet files, and the roles of their columns in a `dataset.toml` beside them; without it they are those of Criteo."""

    def __init__(self, place: str) -> None:
        found = Place(place)
        text = found.read_beside("dataset.toml")
        described: dict[str, Any] = {
            "label": "label",
            "numbers": [f"I{number}" for number in range(1, 14)],
            "categories": [{"name": f"C{number}", "text": "hex"} for number in range(1, 27)],
        }
        if text is not None:
            described = tomllib.loads(text.decode())
        self.label: str = described["label"]
        self.numbers: list[str] = described.get("numbers", [])
        categories = [{"name": it} if isinstance(it, str) else it for it in described.get("categories", [])]
        #: Texts are numbers in hexadecimal digits, or any.
        self.categories = {it["name"]: it.get("text") == "hex" for it in categories}
        self.files = [pq.ParquetFile(path, filesystem=found.system) for path in found.files]
        for path, file in zip(found.files, self.files, strict=True):
            for name in (self.label, *self.numbers, *self.categories):
                if name not in file.schema_arrow.names:
                    hint = "" if text is not None else "; a dataset.toml beside it names the columns (libra data inspect proposes one)"
                    raise Bad(f"{path} has no column {name}{hint}")
        self.rows = sum(file.metadata.num_rows for file in self.files)

    @property
    def fields(self) -> int:
        return len(self.numbers) + len(self.categories)

    def tail(self, count: int, batch: int = 65_536) -> Iterator[tuple[npt.NDArray[np.bool_], list[Features]]]:
        """Labels of the last rows, and their features."""
        skipped = self.rows - count
        for file in self.files:
            if skipped >= file.metadata.num_rows:
                skipped -= file.metadata.num_rows
                continue
            for rows in file.iter_batches(batch, columns=[self.label, *self.numbers, *self.categories]):
                rows, skipped = rows.slice(skipped), max(skipped - len(rows), 0)
                if len(rows):
                    yield rows[self.label].to_numpy(zero_copy_only=False) > 0.5, self._features(rows)

    def _features(self, rows: pa.RecordBatch) -> list[Features]:
        fields: dict[str, Features] = {
            name: (bins(rows[name].cast(pa.float64()).fill_null(np.nan).to_numpy()), None) for name in self.numbers
        }
        fields |= {name: self._lists(rows[name], is_hex) for name, is_hex in self.categories.items()}
        keys = {name: np.uint64(text_id(name.encode())) for name in fields}
        return [(splitmix64(keys[name] ^ splitmix64(ids)), counts) for name, (ids, counts) in fields.items()]

    def _lists(self, column: pa.Array, is_hex: bool) -> Features:
        """The ids of a category, of which a row of a list has any number."""
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return self._ids(column, is_hex), None
        lengths = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        values, owners = column.flatten(), np.repeat(np.arange(len(column)), lengths)
        is_there = values.is_valid().to_numpy(zero_copy_only=False)
        ids, owners = self._ids(values, is_hex)[is_there], owners[is_there]
        counts = np.bincount(owners, minlength=len(column))
        empty = np.flatnonzero(counts == 0)
        order = np.argsort(np.concatenate([owners, empty]), kind="stable")
        return np.concatenate([ids, np.full(len(empty), MISSING)])[order], np.maximum(counts, 1)

    def _ids(self, column: pa.Array, is_hex: bool) -> Hashes:
        if pa.types.is_integer(column.type):
            ids = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.uint64)
        else:
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            texts = column.dictionary.to_pylist()
            of_text = [int(text or "0", 16) if is_hex else text_id(text.encode()) for text in texts]
            ids = np.array(of_text or [0], np.uint64)[column.indices.fill_null(0).to_numpy()]
        return np.where(column.is_null().to_numpy(zero_copy_only=False), MISSING, ids)


def area(scores: Floats, clicked: npt.NDArray[np.bool_]) -> float:
    """The area under the ROC curve, by ranks; equal scores share theirs."""
    _, where, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[where]
    clicks = int(clicked.sum())
    return float((ranks[clicked].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(clicked) - clicks)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", required=True, help="what `libra export` wrote: a directory, or http(s)://")
    parser.add_argument("--data", required=True, help="a Parquet file, a directory of them or a pattern; dataset.toml is beside them")
    parser.add_argument("--test-share", type=float, default=0.2, help="the last part of the rows, which is scored (0.2)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if not 0 < options.test_share <= 1:
        parser.error(f"--test-share {options.test_share} must be above 0 and at most 1")
    try:
        print(score(options))
    except (Bad, serve.ServeError, pa.ArrowException, OSError, KeyError, ValueError, NotImplementedError) as error:
        # A KeyError shows its text in quotes.
        text = error.args[0] if isinstance(error, KeyError) else str(error)
        sys.exit(f"score.py: {' '.join(str(text).split()) or type(error).__name__}")


def score(options: argparse.Namespace) -> str:
    """The result, as it is printed."""
    data = Data(options.data)
    export = serve.Export(options.export)
    model = Model(export, data.fields)
    tested = data.tail(round(data.rows * options.test_share))
    batches = [(clicked, model.logits(features)) for clicked, features in tested]
    if not batches:
        raise Bad(f"{options.data}: the last {options.test_share:g} of its {data.rows} rows are none")
    clicked = np.concatenate([labels for labels, _ in batches])
    if clicked.all() or not clicked.any():
        raise Bad(f"{options.data}: the labels of all {len(clicked)} rows are equal, which have no ROC curve")
    scores = np.concatenate([of_batch for _, of_batch in batches])
    result = {"version": export.version, "rows": len(clicked), "auc": area(scores, clicked)}
    return json.dumps(result) if options.json else f"AUC {result['auc']:.4f} of {result['rows']:,} rows, version {result['version']}"


if __name__ == "__main__":
    main()
