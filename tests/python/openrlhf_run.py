"""A run of OpenRLHF on a CPU, small enough for a test: data, model, reward, arguments, and its processes.

As a program it is a run: `python openrlhf_run.py --allot … --actor.…`, with what `python -m
allot.openrlhf_train` takes. It only starts Ray first, with openrlhf_cpu.py in each of its processes, as
OpenRLHF lets a script that has Ray already.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from recorded import ran

HERE = Path(__file__).resolve().parent
LONGEST = 16
PROMPTS = 24
REWARD = """
import os
import torch
def reward_func(queries, prompts, labels, **kwargs):
    with open(os.environ["ALLOT_TEST_REWARDS"], "a") as lines:
        lines.write("1\\n")
    said = queries[0][len(prompts[0]):]
    right = torch.tensor([float(sum(map(ord, said)) % 5 < int(labels[0]))])
    return {"rewards": right, "scores": right, "extra_logs": {"said": torch.tensor([float(len(said))])}}
"""
AGENT = """
import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
class Instance(AgentInstanceBase):
    def __init__(self, *args, **kwargs):
        self.turns, self.said = 0, ""
    async def step(self, states, **kwargs):
        self.turns += 1
        self.said += states["action_text"]
        done = self.turns == 2
        right = float(sum(map(ord, self.said)) % 5 < int(states["label"])) if done else 0.0
        rewards = torch.tensor(right)
        return {"rewards": rewards, "scores": rewards, "done": done, "environment_feedback": " and"}
class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Instance)
"""


def prompts(count: int) -> list[dict[str, Any]]:
    """Prompts that are always, sometimes and never answered, by the reward here."""
    return [{"input": f"{i} and {i} make", "label": str(i % 6), "level": i % 3} for i in range(count)]


def prepare(folder: Path) -> None:
    """Data sets, a model of random weights, a reward function and an agent."""
    import torch
    from recorded import ROOT
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    model = ROOT / "tests/cases/models/tiny-qwen2-tied"
    for name, rows in (("prompts", prompts(PROMPTS)), ("others", prompts(PROMPTS)[::-1])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    (folder / "agent.py").write_text(AGENT)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(model).save_pretrained(folder / "model")


def options(folder: Path, name: str, allot: dict[str, Any], *more: str, data: str = "prompts") -> list[str]:
    """OpenRLHF's options for GRPO, sized for a test, after the keys of `--allot`."""
    told = {"seed": 1, "record": str(folder / name / "record"), **allot}
    one = {
        "actor.model_name_or_path": folder / "model",
        "reward.remote_url": folder / "reward.py",
        "data.prompt_dataset": folder / f"{data}.jsonl",
        "data.label_key": "label",
        "data.max_len": 64,
        "rollout.max_new_tokens": LONGEST,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.init_coef": 0,
        "actor.num_nodes": 1,
        "actor.num_gpus_per_node": 2,
        "vllm.num_engines": 1,
        "rollout.batch_size": 4,
        "rollout.n_samples_per_prompt": 4,
        "rollout.micro_batch_size": 2,
        "train.batch_size": 8,
        "train.micro_batch_size": 2,
        "train.num_episodes": 5,
        "actor.adam.lr": 1e-2,
        "actor.lr_warmup_ratio": 0,
        "ckpt.path": folder / name / "ckpt",
        "ckpt.output_dir": folder / name / "model",
        "ckpt.max_num": 100,
        "ckpt.save_steps": 1,
        # Without a GPU.
        "ds.attn_implementation": "eager",
    }
    own = [word for key, value in one.items() for word in (f"--{key}", str(value))]
    return ["--allot", json.dumps(told), *own, *more]


def train(
    folder: Path, name: str, allot: dict[str, Any], *more: str, status: int = 0, data: str = "prompts"
) -> str:
    """What a run says. It ends with this status, or that is the failure."""
    environment = {
        # DeepSpeed compiles its optimizer for CPUs with the ninja that is installed with it.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONUNBUFFERED": "1",
        "DS_ACCELERATOR": "cpu",
    }
    program = [sys.executable, "-W", "ignore", str(HERE / "openrlhf_run.py")]
    command = [*program, *options(folder, name, allot, *more, data=data)]
    ended, log = ran(command, folder / name, environment)
    if ended != status:
        raise AssertionError(f"OpenRLHF ended with {ended}:\n" + "\n".join(log.splitlines()[-60:]))
    return log


if __name__ == "__main__":
    import openrlhf_cpu
    import ray

    openrlhf_cpu.prepare()
    # Ray counts CPUs and GPUs, and waits for ever where it has too few for all of OpenRLHF's processes.
    ray.init(
        num_cpus=32,
        num_gpus=8,
        include_dashboard=False,
        log_to_driver=True,
        runtime_env={"worker_process_setup_hook": "openrlhf_cpu.prepare"},
    )
    from allot import openrlhf_train

    openrlhf_train.main()
