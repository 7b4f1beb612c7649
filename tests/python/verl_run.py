"""A run of verl on a CPU, small enough for a test: data, model, reward, arguments, and its processes.

verl is told of CPUs by verl_cpu.py, and samples by verl_cpu_rollout.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas
import torch
import yaml
from recorded import ROOT, ran
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
MODEL = ROOT / "tests/cases/models/tiny-qwen2-tied"
LONGEST = 16
PROMPTS = 24
REWARD = """
import os
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    with open(os.environ["ALLOT_TEST_REWARDS"], "a") as lines:
        lines.write("1\\n")
    return float(sum(map(ord, solution_str)) % 5 < int(ground_truth))
"""


def prompts(count: int) -> list[dict]:
    """verl's rows of prompts that are always, sometimes and never answered, by the rewards here and in verl_on_gpu.py."""
    return [
        {
            "data_source": "numbers",
            "prompt": [{"role": "user", "content": f"{i} and {i} make"}],
            "reward_model": {"style": "rule", "ground_truth": str(i % 6)},
            "extra_info": {"index": i},
        }
        for i in range(count)
    ]


def prepare(folder: Path) -> None:
    """A data set of prompts that are always, sometimes and never answered; a model of random weights; a reward."""
    rows = prompts(PROMPTS)
    pandas.DataFrame(rows).to_parquet(folder / "prompts.parquet")
    for i, row in enumerate(rows):
        row["agent_name"] = ("turns", "pieces")[i % 2]
    pandas.DataFrame(rows).to_parquet(folder / "episodes.parquet")
    pandas.DataFrame(rows[::-1]).to_parquet(folder / "others.parquet")
    (folder / "reward.py").write_text(REWARD)
    loops = [{"name": c.lower(), "_target_": f"verl_cpu_loops.{c}"} for c in ("Turns", "Pieces")]
    (folder / "loops.yaml").write_text(yaml.safe_dump(loops))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MODEL)).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(folder / "model")


def overrides(folder: Path, name: str, kwargs: dict, *more: str, data: str = "prompts") -> list[str]:
    """The arguments of `verl.trainer.main_ppo` for a run: verl's own for GRPO, sized for a test, and then ours."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    kwargs = {"seed": 1, "record": str(folder / name / "record"), **kwargs}
    return [
        "algorithm.adv_estimator=grpo",
        f"data.train_files={folder}/{data}.parquet",
        f"data.val_files={folder}/prompts.parquet",
        "data.train_batch_size=4",
        "data.max_prompt_length=64",
        f"data.max_response_length={LONGEST}",
        "data.dataloader_num_workers=0",
        f"actor_rollout_ref.model.path={folder}/model",
        "actor_rollout_ref.model.use_remove_padding=false",
        f"{actor}.ppo_mini_batch_size=2",
        f"{actor}.ppo_micro_batch_size_per_gpu=4",
        f"{actor}.optim.lr=1e-3",
        f"{actor}.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        f"{rollout}.name=vllm",
        f"{rollout}.n=4",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.calculate_log_probs=true",
        f"reward.custom_reward_function.path={folder}/reward.py",
        "reward.num_workers=1",
        "trainer.n_gpus_per_node=2",
        "trainer.nnodes=1",
        "trainer.logger=[console]",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=1",
        "trainer.total_epochs=5",
        f"trainer.default_local_dir={folder}/{name}/verl",
        # Without a GPU.
        "trainer.device=cpu",
        "actor_rollout_ref.model.external_lib=verl_cpu_rollout",
        "+actor_rollout_ref.model.override_config.attn_implementation=eager",
        f"{actor}.strategy=fsdp2",
        f"{actor}.use_torch_compile=false",
        f"{actor}.fsdp_config.use_torch_compile=false",
        f"{actor}.fsdp_config.model_dtype=fp32",
        f"+{actor}.fsdp_config.mixed_precision.param_dtype=fp32",
        # Ray counts CPUs, and waits for ever where it has too few for all of verl's processes.
        "ray_kwargs.ray_init.num_cpus=32",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "+ray_kwargs.ray_init.num_gpus=2",
        "+ray_kwargs.ray_init.include_dashboard=false",
        # allot's.
        "trainer.v1.trainer_mode=allot",
        f"+trainer.v1.sampler.sampler_kwargs={json.dumps(kwargs).replace(chr(34), '')}",
        *more,
    ]


def train(folder: Path, name: str, kwargs: dict, *more: str, data: str = "prompts") -> str:
    """What a run of verl says. It ends with status 0, or that is the failure."""
    environment = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "verl_cpu"}
    arguments = overrides(folder, name, kwargs, *more, data=data)
    command = [sys.executable, "-W", "ignore", "-m", "verl.trainer.main_ppo", *arguments]
    ended, log = ran(command, folder / name, environment)
    if ended != 0:
        told = [
            line for line in log.splitlines() if "target_num_threads" not in line and " INFO " not in line
        ]
        raise AssertionError(f"verl ended with {ended}:\n" + "\n".join(told[-60:]))
    return log
