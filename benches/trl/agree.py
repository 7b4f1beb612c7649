"""Do native runs and runs in TRL agree? The same problems, model, policies and settings; curves of held-out accuracy.

    pip install dist/allot-*.whl 'trl==1.16.*' torch matplotlib
    python benches/trl/agree.py runs/agree

The order of prompts is the same in both, by the seed; rollouts are sampled by transformers in one and by the program in the
other, so curves agree within their intervals or not at all. The program scores both: TRL's weights are saved now and then, and
the program reads them. Goes on where it was stopped.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")

HERE = Path(__file__).resolve().parent
MODEL = HERE / "../../host/models/shipped/tiny-sums"
POLICIES = {"uniform": {}, "pilot-commit": {"pilot": 2, "commit": 2, "evict-at": 2.0}, "prospect": {"prompts": 32}}
SEEDS = range(1, 1 + int(os.environ.get("SEEDS", "10")))
BUDGET, EVERY = 4_000, 400
#: How old a held rollout may get, in updates. The trainers treat those differently: TRL clips their ratios to the weights that
#: sampled them, the program weights them by these ratios and clips within an update.
MAX_AGE = int(os.environ.get("MAX_AGE", "5"))
#: Where TRL trains: "cpu" or "cuda".
DEVICE = os.environ.get("DEVICE", "cpu")
#: Student's t for 95 %, by the number of seeds.
T = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}[len(SEEDS)]


def problems(folder: Path) -> None:
    """Sums of two numbers of two or three digits, and products, which the model never solves."""
    rng, seen = random.Random(0), set()

    def one() -> dict[str, str]:
        while True:
            digits, product = rng.choice((2, 2, 3)), rng.random() < 0.3
            a, b = (rng.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
            question = f"{a}*{b}=" if product and digits == 2 else f"{a}+{b}="
            if question not in seen:
                seen.add(question)
                return {"question": question, "answer": str(a * b if "*" in question else a + b)}

    for name, count in (("train", 4_000), ("held-out", 1_000)):
        lines = [json.dumps(one()) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def allot(folder: Path, *words: str) -> str:
    """The program's output."""
    done = subprocess.run(["allot", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"allot {' '.join(words)}: {done.stderr}")
    return done.stdout


def native(folder: Path, policy: str, seed: int) -> dict[int, float]:
    """Accuracy by rollouts, of a run of the program."""
    out = folder / f"native-{policy}-{seed}"
    if not (out / "metrics.jsonl").exists():
        settings = [f"--set={name}={value}" for name, value in POLICIES[policy].items()]
        words = ["train", str(HERE / "agree.toml"), "--seed", str(seed), "--policy", policy, "--out", out.name]
        allot(folder, *words, "-o", f"run.max_age={MAX_AGE}", *settings)
    curve, spent = {}, 0
    for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()):
        # What is scored behind the last step has a line of its own.
        spent = int(line.get("budget/rollouts", spent))
        if "accuracy" in line:
            curve[spent] = line["accuracy"]
    return curve


def in_trl(folder: Path, policy: str, seed: int) -> dict[int, float]:
    """Accuracy by rollouts, of a run in TRL: its weights are scored by the program."""
    out = folder / f"trl-{policy}-{seed}"
    done = out / "curve.json"
    if not done.exists():
        trained(folder, out, policy, seed)
        curve = {}
        for weights in sorted(out.glob("at-*"), key=lambda path: int(path.name[3:])):
            words = ["train", str(HERE / "agree.toml"), "-o", f"model.use={weights}", "-o", "budget.rollouts=32"]
            told = allot(folder, *words, "--out", f"{out.name}/scored-{weights.name}", "--json")
            curve[int(weights.name[3:])] = json.loads(told)["accuracy_start"]
        done.write_text(json.dumps(curve))
    return {int(spent): accuracy for spent, accuracy in json.loads(done.read_text()).items()}


def trained(folder: Path, out: Path, policy: str, seed: int) -> None:
    """Trains in TRL. Weights are saved every so many rollouts."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig

    from allot import Allocator
    from allot.trl import AllocatedGRPOTrainer, lengths

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    dataset = Dataset.from_list([{"prompt": row["question"], "gold": row["answer"]} for row in rows])
    allocator = Allocator(
        policy, lengths(dataset, tokenizer), steps=100_000, groups=8, rollouts=4, pool=32, max_age=MAX_AGE, longest=8,
        seed=seed, settings=POLICIES[policy], parameters=152_128, budget={"rollouts": BUDGET, "rounds": 10},
        record=str(out / "record"), engine="trl",
    )

    def exact(completions, gold, **_):
        return [float(said.strip() == right) for said, right in zip(completions, gold, strict=True)]

    class Saves(TrainerCallback):
        due = 0

        def save(self, model) -> None:
            spent = allocator.spent["run_rollouts"] if allocator.spent else 0
            if spent >= self.due:
                self.due = (spent // EVERY + 1) * EVERY
                model.save_pretrained(out / f"at-{spent}")
                tokenizer.save_pretrained(out / f"at-{spent}")

        def on_train_begin(self, args, state, control, model=None, **_):
            self.save(model)

        def on_step_end(self, args, state, control, model=None, **_):
            self.save(model)

    AllocatedGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
        reward_funcs=exact,
        train_dataset=dataset,
        processing_class=tokenizer,
        allocator=allocator,
        callbacks=[Saves()],
        args=GRPOConfig(
            output_dir=str(out / "trl"), max_steps=100_000, max_completion_length=8, num_generations=4,
            per_device_train_batch_size=32, gradient_accumulation_steps=1, loss_type="dapo", beta=0.0,
            learning_rate=2e-4, lr_scheduler_type="constant", weight_decay=0.0, adam_beta1=0.9, adam_beta2=0.999,
            adam_epsilon=1e-8, max_grad_norm=1.0, temperature=1.0, top_p=1.0, use_cpu=DEVICE == "cpu", bf16=False,
            save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=50, seed=seed,
        ),
    ).train()


def at(curve: dict[int, float], spent: int) -> float:
    """A curve's last score up to so many rollouts."""
    return curve[max(n for n in curve if n <= spent)]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "train.jsonl").exists():
        problems(folder)
    curves = {(policy, trainer): [] for policy in POLICIES for trainer in ("native", "TRL")}
    for seed in SEEDS:
        for policy in POLICIES:
            curves[policy, "native"].append(native(folder, policy, seed))
            curves[policy, "TRL"].append(in_trl(folder, policy, seed))
            print(f"seed {seed}, {policy}", flush=True)

    # A grid that no curve is between two scores at: each was taken at the first step after a multiple.
    grid = [0, *range(EVERY + 100, BUDGET + 1, EVERY), BUDGET]
    print("| policy | rollouts | native, % | TRL, % | difference, points |\n|---|---|---|---|---|")
    for policy in POLICIES:
        for spent in grid:
            ours = [100 * at(curve, spent) for curve in curves[policy, "native"]]
            theirs = [100 * at(curve, spent) for curve in curves[policy, "TRL"]]
            apart = [a - b for a, b in zip(theirs, ours, strict=True)]
            half = T * statistics.stdev(apart) / len(apart) ** 0.5
            mean = statistics.mean
            print(f"| `{policy}` | {spent} | {mean(ours):.1f} | {mean(theirs):.1f} | "
                  f"{mean(apart):+.1f} ({mean(apart) - half:.1f} to {mean(apart) + half:.1f}) |")
    draw(curves, grid, folder / "agree.svg")


def draw(curves, grid, path: Path) -> None:
    """A panel for each policy: means and 95 % intervals over seeds."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "allot"
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(POLICIES), figsize=(10, 3.2), sharey=True, layout="constrained")
    for panel, policy in zip(panels, POLICIES, strict=True):
        for trainer, color in (("native", "#0072b2"), ("TRL", "#d55e00")):
            columns = [[100 * at(curve, n) for curve in curves[policy, trainer]] for n in grid]
            means = [statistics.mean(c) for c in columns]
            half = [T * statistics.stdev(c) / len(c) ** 0.5 for c in columns]
            panel.plot(grid, means, color=color, label=trainer)
            low, high = ([m + s * h for m, h in zip(means, half, strict=True)] for s in (-1, 1))
            panel.fill_between(grid, low, high, color=color, alpha=0.2, linewidth=0)
        panel.set(title=policy, xlabel="rollouts")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("held-out accuracy, %")
    panels[0].legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
