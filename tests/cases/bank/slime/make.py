"""Makes the dumps beside this file with slime's own writer and real torch:

    PYTHONPATH=SLIME python make.py

SLIME is a checkout of THUDM/slime with slime/observability/rollout_data_utils.py; torch 2 writes the files.
"""

import copy
from pathlib import Path

import torch
from slime.observability.rollout_data_utils import save_debug_rollout_data
from slime.utils.types import Sample

folder = str(Path(__file__).parent / "rollout_{rollout_id}.pt")


def samples(step):
    for group in range(6):
        words = [{"role": "user", "content": f"What is {group} + {step}? Zahlen: ä"}]
        prompt = Sample(group_index=group, prompt=words if group % 2 else words[0]["content"], label=str(group + step))
        for i in range(4):
            sample = copy.deepcopy(prompt)
            sample.index = 4 * group + i
            length = 3 + i
            # More than 255 values, so that references are long; and token ids of one, two and four bytes.
            sample.tokens = [1, 300, 70_000] + [5 + group] * 7 + list(range(length))
            sample.response = "x" * length
            sample.response_length = length
            sample.reward = float((group + i + step) % 3 == 0)
            sample.rollout_log_probs = [-0.5] * length
            sample.loss_mask = [1] * length
            sample.weight_versions = [str(step)]
            sample.status = Sample.Status.TRUNCATED if i == 3 else Sample.Status.COMPLETED
            if i == 0:
                # As top-p replay keeps them: an object, which readers have to step over.
                sample.rollout_top_p_token_ids = torch.arange(length, dtype=torch.int32)
            if group == 5 and i == 2:
                sample.status, sample.reward = Sample.Status.ABORTED, None
            yield sample


for step in (0, 1):
    save_debug_rollout_data(folder, list(samples(step)), rollout_id=step, evaluation=False)
save_debug_rollout_data(folder, {"aime": {"samples": list(samples(0))}}, rollout_id=0, evaluation=True)
