"""Makes files of this folder that other writers would write, from rows of our own: python formats.py

Needs pyarrow, pandas, datasets and zstandard; made with pyarrow 26.0, pandas 3.1, datasets 5.2 and zstandard 0.25.
"""

import gzip
import json
import shutil
import tempfile
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

here = Path(__file__).parent

rows = [
    {"question": 'A sign says "2 + 3".\nWhat is it?', "answer": "005", "level": 1.0},
    {"question": "How many, is 7 − 4?", "answer": "3", "level": 2.5},
    {"question": "Blank", "answer": None, "level": None},
]
frame = pd.DataFrame(rows)
lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()

# Two members, as `cat a.gz b.gz` makes of two files; an old time, so that the bytes stay the same.
first, second = lines.split(b"\n", 1)
with open(here / "members.jsonl.gz", "wb") as file:
    file.write(gzip.compress(first + b"\n", mtime=0) + gzip.compress(second, mtime=0))
with open(here / "zstandard.jsonl.zst", "wb") as file:
    file.write(zstandard.ZstdCompressor(write_checksum=True).compress(lines))

# With the index, whose column has no name.
frame.to_csv(here / "pandas.csv")
frame.to_csv(here / "pandas.tsv.gz", sep="\t", index=False, compression={"method": "gzip", "mtime": 0})
frame.to_feather(here / "pandas.feather")

# What Python's json writes and JSON does not have.
odd = [
    {"question": "1 + 1", "answer": 2, "score": float("nan"), "info": {"range": [float("-inf"), float("inf")]}, "note": "cut \ud83d"},
    {"question": "1 + 2", "answer": 3, "score": 0.5, "info": {"range": [0.0, 1.0]}, "note": "whole \U0001f600"},
]
(here / "python.jsonl").write_text("".join(json.dumps(row) + "\n" for row in odd))

# What `save_to_disk` leaves, with messages as TRL has them.
prompts = [
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 × 4?"}],
    [{"role": "user", "content": "What is 9 ÷ 3?"}],
]
trl = datasets.Dataset.from_dict({"prompt": prompts, "solution": ["8", "3"]})
with tempfile.TemporaryDirectory() as folder:
    trl.save_to_disk(folder)
    shutil.copy(Path(folder) / "data-00000-of-00001.arrow", here / "save_to_disk.arrow")

# Messages in parts, as data sets have them that are shared with models of images.
parts = [[{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "5 + 5?"}]}]]
pq.write_table(pa.table({"prompt": parts, "ground_truth": ["10"], "images": pa.nulls(1)}), here / "parts.parquet")

# Types that are written in other ways, in two batches, as a compressed stream and as a compressed file.
table = pa.table(
    {
        "question": pa.array(["one", "two", None], pa.large_string()),
        "answer": pa.array(["yes", "no", "yes"]).dictionary_encode(),
        "view": pa.array(["a view of more than twelve bytes", "", None], pa.string_view()),
        "levels": pa.array([[1, 2], [], None], pa.list_(pa.int8())),
        "info": pa.array([{"rate": 0.1, "at": 1}, {"rate": None, "at": 2}, None], pa.struct({"rate": pa.float32(), "at": pa.timestamp("s")})),
        "nothing": pa.nulls(3),
        "flag": pa.array([True, None, False]),
        "bytes": pa.array([b"text", b"\xff", None]),
        "time": pa.array([1, 2, 3], pa.time64("us")),
    }
)
for name, writer, codec in [("types.arrow", pa.ipc.new_stream, "zstd"), ("types.feather", pa.ipc.new_file, "lz4")]:
    with writer(here / name, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as sink:
        sink.write_table(table, max_chunksize=2)
