"""Shuffled Parquet of raw logs, with Ray Data, on as many machines as the Ray cluster has.

    python prepare.py '/logs/day_*.gz' --to /data/ads                       # text of Criteo
    python prepare.py s3://logs/2026/ --to s3://data/ads --label clicked    # Parquet

The roles of columns come with them as `dataset.toml`: that of --dataset, or one that is made here: floats are numbers, whole numbers and
texts are categories. docs/reference/data.md has what may be in it.
"""

from __future__ import annotations

import argparse
import glob
import pathlib
import sys

import pyarrow
import pyarrow.csv
import pyarrow.fs
import pyarrow.types
import ray
import ray.data

#: Columns of Criteo's text, which has no header.
NUMBERS = [f"I{number}" for number in range(1, 14)]
CATEGORIES = [f"C{number}" for number in range(1, 27)]
#: Rows of a row group: a part of an epoch reads some of many.
GROUP_ROWS = 65_536
FILE_NAME = "dataset.toml"


def read(logs: list[str]) -> ray.data.Dataset:
    """Returns the rows of files: Parquet by their names, and else text of Criteo, packed or not."""
    if all(log.endswith((".parquet", "/")) for log in logs):
        return ray.data.read_parquet(logs)
    types = {"label": pyarrow.int8(), **dict.fromkeys(NUMBERS, pyarrow.int64()), **dict.fromkeys(CATEGORIES, pyarrow.string())}
    return ray.data.read_csv(
        logs,
        file_extensions=None,
        read_options=pyarrow.csv.ReadOptions(column_names=list(types)),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""]),
    )


def describe(schema: pyarrow.Schema, label: str, numbers: list[str]) -> str:
    """Returns the roles of columns, as the text of a `dataset.toml`."""
    if label not in schema.names:
        sys.exit(f"prepare.py: there is no column {label} (--label); there are {', '.join(schema.names)}")
    if absent := set(numbers) - set(schema.names):
        sys.exit(f"prepare.py: there is no column {', '.join(sorted(absent))} (--numbers); there are {', '.join(schema.names)}")
    is_criteo = schema.names == ["label", *NUMBERS, *CATEGORIES]
    found: dict[str, list[str]] = {"numbers": [], "categories": []}
    for column in schema:
        kind = column.type
        if column.name == label:
            continue
        if column.name in numbers or pyarrow.types.is_floating(kind) or (is_criteo and column.name in NUMBERS):
            found["numbers"].append(f'"{column.name}"')
            continue
        item = kind.value_type if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) else kind
        is_text = pyarrow.types.is_string(item) or pyarrow.types.is_large_string(item)
        if not is_text and not pyarrow.types.is_integer(item):
            sys.exit(f"prepare.py: column {column.name} of type {kind} is neither a number nor a category: write a {FILE_NAME}")
        found["categories"].append(f'{{ name = "{column.name}", text = "hex" }}' if is_criteo else f'"{column.name}"')
    lists = "".join(f"{role} = [{', '.join(columns)}]\n" for role, columns in found.items())
    return f'keys = "hashed"\nlabel = "{label}"\n{lists}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", help="files, directories (with / at the end) or patterns, which all nodes reach")
    parser.add_argument("--to", required=True, metavar="PLACE", help="new directory or URL, which all nodes reach")
    parser.add_argument("--label", default="label", metavar="COLUMN")
    parser.add_argument("--dataset", metavar="FILE", help="roles of the columns, as they are in the logs")
    parser.add_argument("--numbers", default=[], type=lambda text: text.split(","), metavar="COLUMN,..")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logs = [file for log in arguments.logs for file in (sorted(glob.glob(log)) if "*" in log else [log])]
    if not logs:
        sys.exit(f"prepare.py: {' '.join(arguments.logs)}: no files")
    target, path = pyarrow.fs.FileSystem.from_uri(arguments.to) if "://" in arguments.to else (pyarrow.fs.LocalFileSystem(), arguments.to)
    if target.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
        sys.exit(f"prepare.py: {arguments.to} is there already: name a new place with --to")
    rows = read(logs)
    schema = rows.schema().base_schema
    description = pathlib.Path(arguments.dataset).read_text() if arguments.dataset else describe(schema, arguments.label, arguments.numbers)
    rows.random_shuffle(seed=arguments.seed).write_parquet(
        arguments.to, min_rows_per_file=4 * GROUP_ROWS, row_group_size=GROUP_ROWS, compression="zstd"
    )
    with target.open_output_stream(f"{path.rstrip('/')}/{FILE_NAME}") as file:
        file.write(description.encode())
    print(f"{arguments.to}: {ray.data.read_parquet(arguments.to).count()} rows")


if __name__ == "__main__":
    main()
