"""Compares what `libra_ps/serve.py` reads of an export with whole tables: PROGRAM SERVE EXPORT TABLES. Prints version and rows."""

import importlib.util
import json
import pathlib
import sys

import numpy as np

serve_file, place, tables = sys.argv[1:]
spec = importlib.util.spec_from_file_location("serve", serve_file)
serve = importlib.util.module_from_spec(spec)
sys.modules["serve"] = serve
spec.loader.exec_module(serve)
export = serve.Export(place)
files = sorted(pathlib.Path(tables).glob("*.safetensors"))
if len(files) != len(export.tables):
    sys.exit(f"the export has tables {list(export.tables)}, the checkpoint {len(files)} files")
total = 0
for path in files:
    data, name = path.read_bytes(), path.stem.split("-", 1)[1]
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    expected = {}
    for tensor, kind in (("keys", "<u8"), ("values", "<f4")):
        begin, end = header[tensor]["data_offsets"]
        expected[tensor] = np.frombuffer(data[start + begin : start + end], kind)
    keys, values = export.rows(name)
    if keys.tobytes() != expected["keys"].tobytes() or values.tobytes() != expected["values"].tobytes():
        sys.exit(f"table {name} is not that of the checkpoint")
    total += len(keys)
if total == 0:
    sys.exit("the export has no rows")
print(f"version {export.version}, {total} rows", end="")
