"""Scores rows with the export of a `deeplight` model: with numpy and pyarrow, and without a cluster.

    libra train --model deeplight --data clicks --state-dir run
    libra export --from run --to model
    python examples/python/score.py --export model --data clicks

The area under the ROC curve is that of the rows that training left out for tests (--test-share). A program that serves the
model needs the same four steps: keys of a row's features, their vectors, the pairs of fields, the layers.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from libra_ps.serve import Export

Floats = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint64]
#: The value of a field that has none.
MISSING = np.uint64(2**64 - 1)


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

    def __init__(self, export: Export, fields: int) -> None:
        self._export = export
        self.first_key = export.tables["feature"].first_key
        #: Values of the vector of a feature; behind them its row has a weight.
        self.lanes = export.tables["feature"].width - 1
        self.pairs = np.zeros((fields, fields), np.float32)
        above = np.triu_indices(fields, 1)
        self.pairs[above] = export.layer("pairs")
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
        return self._export.look_up("feature", distinct - np.uint64(self.first_key))[where]

    def logits(self, features: list[Hashes]) -> Floats:
        """Scores of rows, by the hashes of a feature in each field."""
        rows: Floats = np.stack([self.rows(hashes) for hashes in features], axis=1)
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


def natural(path: Path) -> list[tuple[int, str]]:
    """A key of the natural order of names: runs of digits are numbers."""
    return [(int(part or 0), "") if number % 2 else (0, part) for number, part in enumerate(re.split(r"(\d+)", path.name))]


class Data:
    """A directory of Parquet files with a `dataset.toml`."""

    def __init__(self, folder: Path) -> None:
        described = tomllib.loads((folder / "dataset.toml").read_text())
        self.label: str = described["label"]
        self.numbers: list[str] = described.get("numbers", [])
        categories = [{"name": it} if isinstance(it, str) else it for it in described.get("categories", [])]
        #: Texts are numbers in hexadecimal digits, or any.
        self.categories = {it["name"]: it.get("text") == "hex" for it in categories}
        self.files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"), key=natural)]
        self.rows = sum(file.metadata.num_rows for file in self.files)

    @property
    def fields(self) -> int:
        return len(self.numbers) + len(self.categories)

    def tail(self, count: int, batch: int = 65_536) -> Iterator[tuple[npt.NDArray[np.bool_], list[Hashes]]]:
        """Labels of the last rows, and the hashes of their features."""
        skipped = self.rows - count
        for file in self.files:
            if skipped >= file.metadata.num_rows:
                skipped -= file.metadata.num_rows
                continue
            for rows in file.iter_batches(batch, columns=[self.label, *self.numbers, *self.categories]):
                rows, skipped = rows.slice(skipped), max(skipped - len(rows), 0)
                if len(rows):
                    yield rows[self.label].to_numpy(zero_copy_only=False) > 0.5, self._features(rows)

    def _features(self, rows: pa.RecordBatch) -> list[Hashes]:
        numbers = {name: bins(rows[name].cast(pa.float64()).fill_null(np.nan).to_numpy()) for name in self.numbers}
        ids = {name: self._ids(rows[name], is_hex) for name, is_hex in self.categories.items()}
        return [splitmix64(np.uint64(text_id(name.encode())) ^ splitmix64(found)) for name, found in {**numbers, **ids}.items()]

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
    parser.add_argument("--data", required=True, type=Path, help="directory of Parquet files with a dataset.toml")
    parser.add_argument("--test-share", type=float, default=0.2, help="the last part of the rows, which is scored (0.2)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()

    data = Data(options.data)
    export = Export(options.export)
    model = Model(export, data.fields)
    tested = data.tail(round(data.rows * options.test_share))
    labels, scores = zip(*((clicked, model.logits(features)) for clicked, features in tested), strict=True)
    clicked = np.concatenate(labels)
    result = {"version": export.version, "rows": len(clicked), "auc": area(np.concatenate(scores), clicked)}
    print(json.dumps(result) if options.json else f"AUC {result['auc']:.4f} of {result['rows']:,} rows, version {result['version']}")


if __name__ == "__main__":
    main()
