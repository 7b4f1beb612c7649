"""verl's replay buffer under policies, over a real TransferQueue, on a CPU. In most tests what samples is a stand-in
that writes what verl's agent loop writes; one has verl's agent loops and rewards, with a stand-in for the language
model. Whole runs are in test_verl_whole.py and, with vLLM on a GPU, in verl_on_gpu.py.

Needs verl 0.9; skipped without it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import allot
from recorded import ROOT, lines
from recorded import allot as program

if find_spec("verl") is None:
    raise unittest.SkipTest("no verl here")

import numpy as np
import ray
import torch
import transfer_queue as tq
from allot.verl import AllocatedTrainer, RunIsOver
from allot.verl_seeds import AllocatedAgentLoopManager, SeededClient, turn_seed
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker, migrate_legacy_reward_impl
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

LONGEST = 6
PROMPTS = 18


class AgentLoop:
    """Writes trajectories as verl's `AgentLoopWorkerTQ` does: `__rollout_n__` sessions for each prompt."""

    def __init__(self):
        self.rollouts, self.tokens, self.fails = 0, 0, ()

    def generate_sequences(self, batch: TensorDict) -> None:
        for i in range(len(batch)):
            uid, count, prompt = (batch[name][i] for name in ("uid", "__rollout_n__", "index"))
            uid, count, prompt = (getattr(x, "data", x) for x in (uid, count, prompt))
            keys, fields, tags = [], [], []
            for session in range(count):
                chance = random.Random(f"{prompt}/{session}/{self.rollouts}")
                self.rollouts += 1
                n = chance.randint(1, LONGEST)
                if self.rollouts in self.fails:
                    continue
                self.tokens += n
                scores = torch.zeros(n)
                scores[-1] = float(chance.random() < prompt % 5 / 4)
                keys.append(f"{uid}_{session}_0")
                fields.append(
                    {
                        "uid": uid,
                        "prompts": torch.ones(3, dtype=torch.int64),
                        "responses": torch.ones(n, dtype=torch.int64),
                        "response_mask": torch.ones(n, dtype=torch.int64),
                        "rm_scores": scores,
                    }
                )
                tags.append({"status": "success", "prompt_len": 3, "response_len": n, "seq_len": 3 + n})
            if keys:
                tq.kv_batch_put(
                    keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train"
                )
            failed = len(keys) < count
            tq.kv_put(key=uid, partition_id="train", tag={"status": "failure" if failed else "finished"})


class Model:
    """In the place of verl's client of vLLM: what it says follows from the seed of the request."""

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        return TokenOutput(token_ids=said(sampling_params["seed"]), extra_fields={"params": sampling_params})


def said(seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randint(5, 200) for _ in range(chance.randint(1, LONGEST))]


# Ray's workers know nothing of this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return float(len(solution_str) % 5 < int(ground_truth))
"""


def agent_loops(folder: str) -> AllocatedAgentLoopManager:
    """verl's agent loops and rewards, as its own configuration has them."""
    (Path(folder) / "reward.py").write_text(REWARD)
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={ROOT}/tests/cases/models/tiny-qwen2-tied",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.agent.num_workers=2",
                f"data.max_response_length={LONGEST}",
                "data.max_prompt_length=64",
                f"reward.custom_reward_function.path={folder}/reward.py",
            ],
        )
    config = migrate_legacy_reward_impl(config)
    config.reward.custom_reward_function.path = f"{folder}/reward.py"
    rewards = ray.remote(RewardLoopWorker).remote(config, None)
    return AllocatedAgentLoopManager.create(
        config=config, llm_client=Model(), teacher_client=None, reward_loop_worker_handles=[rewards]
    )


def trainer(folder: str, policy: str = "pilot-commit", record: str = "record", **more) -> AllocatedTrainer:
    """verl's trainer without what needs a GPU: everything of ours, and verl's advantages and queue."""
    made = object.__new__(AllocatedTrainer)
    made.config = OmegaConf.create(
        {
            "algorithm": {
                "adv_estimator": "grpo",
                "gamma": 1.0,
                "lam": 1.0,
                "use_kl_in_reward": False,
                "norm_adv_by_std_in_grpo": True,
            },
            "actor_rollout_ref": {"rollout": {"n": 4}},
            "trainer": {
                "default_local_dir": folder,
                "v1": {
                    "sampler": {
                        "max_off_policy_threshold": 8,
                        "max_off_policy_strategy": "drop",
                        "sampler_kwargs": {},
                    }
                },
            },
        }
    )
    made.trainer_mode, made.global_steps = "sync", 1
    made.train_dataset = [
        {
            "index": i,
            "raw_prompt": [{"role": "user", "content": str(i)}],
            "data_source": "numbers",
            "reward_model": {"ground_truth": str(i % 6)},
        }
        for i in range(PROMPTS)
    ]
    made.seeded = True
    made.agent_loop_manager = AgentLoop()
    made.replay_buffer = buffer = made._build_replay_buffer()
    buffer.poll_interval = 0.01
    buffer.submit = made._submit
    settings = {"pilot": 2, "commit": 2} if policy == "pilot-commit" else {}
    setup = {
        "steps": 8,
        "groups": 3,
        "rollouts": 4,
        "longest": LONGEST,
        "seed": 1,
        "max_age": 2,
        "engine": "verl",
    }
    buffer.allocator = allot.Allocator(
        policy, [3] * PROMPTS, settings=settings, record=f"{folder}/{record}", **{**setup, **more}
    )
    return made


def turn(trainer: AllocatedTrainer) -> tuple[KVBatchMeta, dict]:
    """A step of verl's, as far as it goes without a model."""
    batch, _ = trainer.replay_buffer.sample(
        global_steps=trainer.global_steps, partition_id="train", batch_size=3
    )
    trainer._compute_advantage(batch, {})
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id="train", select_fields=["advantages", "response_mask"]
    )
    trainer.replay_buffer.settle()
    tq.kv_clear(keys=batch.keys, partition_id="train")
    trainer.global_steps += 1
    return batch, data


def queued() -> set[str]:
    return set((tq.kv_list() or {}).get("train", {}))


class Verl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(
            address="local",
            num_cpus=16,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        tq.init()

    @classmethod
    def tearDownClass(cls):
        tq.close()
        ray.shutdown()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.clear()

    def clear(self):
        if left := queued():
            tq.kv_clear(keys=sorted(left), partition_id="train")

    def test_verl_finds_the_trainer_by_its_name(self):
        self.assertIs(get_trainer_cls("allot"), AllocatedTrainer)

    def test_verl_loads_the_trainer_by_itself_and_only_with_its_own(self):
        code = (
            "import sys, verl; assert 'allot.verl_plugin' in sys.modules; assert 'allot.verl' not in sys.modules;"
            "from verl.trainer.ppo.v1 import get_trainer_cls; print(get_trainer_cls('allot').__module__)"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1:], ["allot.verl"], done.stderr)

    def test_each_turn_has_a_seed_of_its_own(self):
        client, seed = SeededClient(Model(), "seed", 2**64 - 1), 2**64 - 1
        params = {"temperature": 1.0}
        outputs = [
            asyncio.run(client.generate("r", prompt_ids=[1], sampling_params=params)).extra_fields["params"]
            for _ in range(3)
        ]
        self.assertEqual(outputs, [{**params, "seed": turn_seed(seed, turn)} for turn in range(3)])
        self.assertEqual(params, {"temperature": 1.0})
        seeds = [output["seed"] for output in outputs]
        self.assertEqual(len(set(seeds)), 3)
        self.assertTrue(all(0 <= seed < 2**63 for seed in seeds))

    def test_verl_s_own_agent_loops_sample_each_rollout_with_its_seed(self):
        made = trainer(self.folder, steps=3)
        made.agent_loop_manager = agent_loops(self.folder)
        submit, drawn = made.replay_buffer.submit, {}

        def noted(draws, names):
            drawn.update(zip(names, draws, strict=True))
            submit(draws, names)

        made.replay_buffer.submit = noted
        sampled = made.replay_buffer._sampled
        answers: list[tuple[str, list[int]]] = []

        def kept(partition_id, draws, names):
            for rollout in sampled(partition_id, draws, names):
                keys = rollout.answer.keys
                data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["responses"])
                answers.append((keys[0], data["responses"].unbind()[0].tolist()))
                yield rollout

        made.replay_buffer._sampled = kept
        for _ in range(3):
            turn(made)
        for key, response in answers:
            name, session, _ = key.split("_")
            self.assertEqual(response, said(turn_seed(drawn[name].seeds[int(session)], 0)))
        spent = made.replay_buffer.allocator.spent
        self.assertEqual(
            (len(answers), sum(len(ids) for _, ids in answers)), (spent["run_rollouts"], spent["run_tokens"])
        )
        program("replay", f"{self.folder}/record", "pilot-commit")

    def test_ragged_plans_are_the_host_s_and_the_queue_holds_what_the_shelf_holds(self):
        for policy in ("pilot-commit", "knapsack"):
            with self.subTest(policy):
                self.clear()
                made = trainer(self.folder, policy, record=policy)
                sizes: set[int] = set()
                loop, allocator = made.agent_loop_manager, made.replay_buffer.allocator
                while True:
                    try:
                        batch, data = turn(made)
                    except RunIsOver as over:
                        self.assertEqual(str(over), "all steps are done")
                        break
                    sizes |= set(Counter(key.split("_")[0] for key in batch.keys).values())
                    given = made.replay_buffer.advantages
                    for key, row, mask in zip(
                        batch.keys, data["advantages"].unbind(), data["response_mask"].unbind(), strict=True
                    ):
                        self.assertEqual(row.tolist(), [np.float32(given[key])] * len(mask))
                    self.assertEqual(queued(), set(made.replay_buffer._keys_on_hand()))
                self.assertEqual(allocator.spent["run_rollouts"], loop.rollouts)
                self.assertEqual(allocator.spent["run_tokens"], loop.tokens)
                program("replay", f"{self.folder}/{policy}", policy)
                held = [step["held"] for step in lines(Path(self.folder) / policy, "step")]
                if policy == "pilot-commit":
                    self.assertTrue(any(held), "nothing was ever held")
                else:
                    self.assertGreater(len(sizes), 1, "groups of several sizes")

    def test_a_session_that_failed_is_paid_for_and_never_shown(self):
        made = trainer(self.folder, "uniform")
        made.agent_loop_manager.fails = (2, 7)
        batch, _ = turn(made)
        self.assertEqual(len(batch.keys), 10)
        self.assertEqual(made.replay_buffer.allocator.spent["run_rollouts"], 12)

    def test_a_run_whose_sessions_all_fail_stops_before_its_budget_is_gone(self):
        made = trainer(self.folder, "uniform")
        made.replay_buffer.most_lost = 12
        made.agent_loop_manager.fails = range(1000)
        with self.assertRaises(allot.Error) as error:
            turn(made)
        self.assertIn("the last 12 rollouts failed", error.exception.what)

    def test_a_run_that_was_cut_off_goes_on_with_what_it_held(self):
        def run(made, steps):
            return [[turn(made), list(made.replay_buffer.advantages.values())][1] for _ in range(steps)]

        whole = trainer(self.folder, record="whole")
        advantages = run(whole, 8)
        self.clear()
        cut = trainer(self.folder, record="cut")
        first = run(cut, 3)
        path = Path(self.folder) / "state.pt"
        torch.save(cut.replay_buffer.state_dict(), path)
        sampled = cut.agent_loop_manager.rollouts
        self.assertTrue(queued(), "nothing was held")
        self.clear()
        again = trainer(self.folder, record="cut")
        again.agent_loop_manager.rollouts = sampled
        again.replay_buffer.load_state_dict(torch.load(path, weights_only=False))
        self.assertEqual(queued(), set(again.replay_buffer._keys_on_hand()))
        self.assertEqual(first + run(again, 5), advantages)
        records = [(Path(self.folder) / name / "record.jsonl").read_bytes() for name in ("whole", "cut")]
        self.assertEqual(*records)

    def test_the_end_of_the_budget_is_told_as_such(self):
        made = trainer(self.folder, "uniform", budget={"rollouts": 20})
        turn(made)
        turn(made)
        with self.assertRaises(RunIsOver) as over:
            turn(made)
        self.assertEqual(str(over.exception), "the budget is spent")
        self.assertEqual(made.agent_loop_manager.rollouts, 20)


if __name__ == "__main__":
    unittest.main()
