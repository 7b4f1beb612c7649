"""All of allot.verl in one call, on a machine with a GPU: real sampling with vLLM, real updates, real checkpoints.

    python tests/python/verl_on_gpu.py [FOLDER]

Needs verl 0.9 with vLLM, the wheel, and the program `allot` for its replay (`ALLOT` names it). It trains a small model
of random weights a few steps, some minutes in all, and prints a line for each thing that passed. The exit status is the
number of those that failed. Without a GPU it checks verl's configuration, and says what it has not run.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from recorded import ROOT, lines
from recorded import allot as program

STEPS, BUDGET, LONGEST = 4, 400, 16
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return float(sum(map(ord, solution_str)) % 5 < int(ground_truth))
"""


def prepare(folder: Path) -> None:
    """A data set of prompts that are always, sometimes and never answered, a model of random weights, a reward."""
    import pandas
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
    from verl_run import prompts

    pandas.DataFrame(prompts(64)).to_parquet(folder / "prompts.parquet")
    (folder / "reward.py").write_text(REWARD)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tests/cases/models/tiny-qwen2-tied")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")


def overrides(folder: Path, name: str, policy: str) -> list[str]:
    """The arguments of `verl.trainer.main_ppo` for a run."""
    settings = "{pilot: 2, commit: 2}" if policy == "pilot-commit" else "{}"
    allocation = (
        f"{{policy: {policy}, settings: {settings}, groups: 4, rollouts: 4, seed: 1, max_age: 2,"
        f" budget: {{rollouts: {BUDGET}}}, record: {folder}/{name}/record}}"
    )
    return [
        "trainer.v1.trainer_mode=allot",
        f"+trainer.v1.sampler.sampler_kwargs={allocation}",
        "algorithm.adv_estimator=grpo",
        f"data.train_files={folder}/prompts.parquet",
        f"data.val_files={folder}/prompts.parquet",
        "data.train_batch_size=4",
        "data.max_prompt_length=64",
        f"data.max_response_length={LONGEST}",
        f"actor_rollout_ref.model.path={folder}/model",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
        "actor_rollout_ref.rollout.enforce_eager=true",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        f"reward.custom_reward_function.path={folder}/reward.py",
        "trainer.use_v1=true",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.logger=[console]",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        "trainer.save_freq=2",
        "trainer.total_epochs=1000",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.default_local_dir={folder}/{name}/verl",
    ]


def train(folder: Path, name: str, policy: str, stop: Callable[[], bool] | None = None) -> None:
    """A run of verl; until `stop` is true, if it is given: it is then killed, as by a machine that goes down."""
    (folder / name).mkdir(exist_ok=True)
    with (folder / name / "log").open("a") as log:
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(folder, name, policy)]
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        while running.poll() is None:
            time.sleep(1)
            if stop is not None and stop():
                os.killpg(running.pid, signal.SIGKILL)
                # Ray's own processes have a session each.
                subprocess.run(
                    [Path(sys.executable).with_name("ray"), "stop", "--force"], capture_output=True
                )
                running.wait()
                return
    if running.returncode != 0:
        raise AssertionError(f"verl ended with {running.returncode}: see {folder}/{name}/log")


def recorded(folder: Path, name: str, kind: str) -> list[dict]:
    path = folder / name / "record"
    return lines(path, kind) if (path / "record.jsonl").exists() else []


def configuration(folder: Path) -> None:
    from hydra import compose, initialize_config_module
    from verl.trainer.main_ppo import validate_config
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.trainer.ppo.v1 import get_trainer_cls

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides(folder, "whole", "pilot-commit"))
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert get_trainer_cls(config.trainer.v1.trainer_mode).__module__ == "allot.verl"


def whole(folder: Path) -> None:
    train(folder, "whole", "pilot-commit")
    steps = recorded(folder, "whole", "step")
    assert len(steps) == STEPS and any(step["updated"] for step in steps), steps


def ledger(folder: Path) -> None:
    (end,) = recorded(folder, "whole", "end")
    counted = [
        n for line in recorded(folder, "whole", "rollouts") for s in line["sampled"] for n in s["tokens"]
    ]
    assert end["spent"]["run_rollouts"] == len(counted) <= BUDGET, end
    assert end["spent"]["run_tokens"] == sum(counted), end


def replays(folder: Path) -> None:
    program("replay", folder / "whole" / "record", "pilot-commit")


def seeds(folder: Path) -> None:
    """Two policies and one seed: what both sampled of a prompt in the first step is the same."""
    train(folder, "uniform", "uniform")
    firsts = []
    for name in ("whole", "uniform"):
        line = recorded(folder, name, "rollouts")[0]
        firsts.append({sampled["prompt"]: sampled for sampled in line["sampled"]})
    pairs = [
        (a, b)
        for prompt in firsts[0].keys() & firsts[1].keys()
        for field in ("tokens", "rewards")
        for a, b in zip(firsts[0][prompt][field], firsts[1][prompt][field], strict=False)
    ]
    same = sum(a == b for a, b in pairs)
    print(f"        {same} of {len(pairs)} lengths and rewards are the same")
    # vLLM's numbers depend a little on what else is in a batch.
    assert pairs and same >= 0.9 * len(pairs)


def killed(folder: Path) -> None:
    """Killed after its first checkpoint, within a step; then it goes on to the end."""
    train(folder, "killed", "pilot-commit", stop=lambda: len(recorded(folder, "killed", "step")) > 2)
    before = recorded(folder, "killed", "step")[:2]
    train(folder, "killed", "pilot-commit")
    steps = recorded(folder, "killed", "step")
    assert steps[:2] == before and len(steps) == STEPS, steps
    program("replay", folder / "killed" / "record", "pilot-commit")
    both = [(folder / name / "record" / "record.jsonl").read_bytes() for name in ("whole", "killed")]
    print(
        f"        its record {'is' if both[0] == both[1] else 'is not'} that of the run that was not killed"
    )


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="allot-verl-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    import torch

    checks = [prepare, configuration]
    on_gpu = [whole, ledger, replays, seeds, killed]
    missing = [name for name in ("verl", "vllm") if importlib.util.find_spec(name) is None]
    if torch.cuda.is_available() and not missing:
        checks += on_gpu
    else:
        why = f"no {' and no '.join(missing)}" if missing else "no GPU"
        print(f"SKIPPED {', '.join(check.__name__ for check in on_gpu)}: {why} here")
    failed = 0
    for check in checks:
        try:
            check(folder)
            print(f"passed  {check.__name__}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {check.__name__}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed; everything is in {folder}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
