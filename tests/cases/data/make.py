"""Makes the small files of this folder, from the published ones: python make.py FOLDER (needs pyarrow).

A few rows of each, so chosen that the traps stay in: golds as text, doubles, lists and structs; an
`extra_info` with a field of type null; `__index_level_0__`; several row groups; rows without answers. GSM8K, rLLM's MATH and AMC files, SVAMP and Minerva (by way of
Qwen2.5-Math) are MIT; One-Shot-RLVR's, Polaris' and reasoning-gym's are Apache-2.0.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

source, here = Path(sys.argv[1]), Path(__file__).parent


def lines(name, rows):
    (here / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def jsonl(path, rows):
    all_lines = (source / path).read_text().splitlines()
    return [json.loads(all_lines[row]) for row in rows]


def parquet(name, path, rows, change=None, **options):
    table = pq.read_table(source / path).take(pa.array(rows, pa.int64()))
    table = change(table) if change else table
    pq.write_table(table, here / name, **options)


def with_null_field(table):
    info = [dict(row, note=None) for row in table.column("extra_info").to_pylist()]
    at = table.schema.get_field_index("extra_info")
    fields = list(table.schema.field("extra_info").type) + [pa.field("note", pa.null())]
    return table.set_column(at, "extra_info", pa.array(info, pa.struct(fields)))


lines("gsm8k.jsonl", jsonl("gsm8k/test.jsonl", [0, 1, 2]))
lines("svamp.jsonl", jsonl("qwen_eval/svamp_test.jsonl", [0, 1]))
lines("minerva_math.jsonl", jsonl("qwen_eval/minerva_math_test.jsonl", [0, 4]))
gym = jsonl("reasoning_gym/samples.jsonl", range(560))
kinds = ["chain_sum", "products", "basic_arithmetic", "countdown", "number_sorting"]
lines("reasoning_gym.jsonl", [row for kind in kinds for row in [r for r in gym if r["dataset"] == kind][:8]])
math = json.loads((source / "rllm_math/train_math.json").read_text())
amc = json.loads((source / "rllm_math/test_amc.json").read_text())
(here / "math.json").write_text(json.dumps([math[885], math[886], math[887]], indent=1))  # 886 has no answer
(here / "amc.json").write_text(json.dumps(amc[:2]))

parquet("verl_text.parquet", "one_shot_rlvr/test_math500.parquet", [0, 1, 2, 3, 4], with_null_field, row_group_size=2)
parquet("verl_double.parquet", "polaris_eval/amc23.parquet", [0, 1], compression="zstd")
parquet("verl_list.parquet", "polaris_eval/minerva.parquet", [0, 10, 11], compression="none")
parquet("verl_copies.parquet", "one_shot_rlvr/train_pi1_r128.parquet", [0, 1, 2])
parquet("gzip.parquet", "polaris_eval/aime25.parquet", [0], compression="gzip")
parquet("none.parquet", "polaris_eval/aime25.parquet", [])

# As TinyZero's examples/data_preprocess/countdown.py writes it.
countdown = {
    "data_source": "countdown",
    "prompt": [{"role": "user", "content": "Using the numbers [44, 19, 35], create an equation that equals 98."}],
    "reward_model": {"style": "rule", "ground_truth": {"target": 98, "numbers": [44, 19, 35]}},
    "extra_info": {"split": "train", "index": 0},
}
pq.write_table(pa.Table.from_pylist([countdown]), here / "verl_struct.parquet")

# Text that is not UTF-8, in a column that says it is: pyarrow writes binary as it comes.
broken = pa.array([b"fine", b"caf\xe9"], pa.binary()).view(pa.string())
pq.write_table(pa.table({"question": broken, "answer": ["1", "2"]}), here / "latin1.parquet")
# A time of day as the answer, and one that nothing asks for.
times = pa.array([1, 2], pa.time64("us"))
pq.write_table(pa.table({"question": ["a", "b"], "answer": times}), here / "times.parquet")
