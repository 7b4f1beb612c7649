"""Whole programs side by side, by turns, each in a process of its own.

    beside.py step [--rounds 3] [--steps 20]     a GRPO step, and the way to the first one, beside TRL
    beside.py llama MODEL.gguf [--rounds 5]      one answer at a time, beside llama.cpp

`ALLOT` names the program; run it with the Python that `install` made.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ALLOT = os.environ.get("ALLOT", "allot")

# A random model is never right, and rollouts without an advantage would not be computed: the penalty has all of them
# computed, and a pass of the reference more than TRL makes.
CONFIG = """
[run]
seed = 1
steps = {steps}
groups = 4
rollouts = 8
pool = 4
[budget]
rollouts = 1_000_000
[policy]
use = "uniform"
[model]
use = "{model}"
[sampling]
max_tokens = 4
[reward]
grader = "exact"
[update]
loss = {{ kind = "grpo", kl = 0.001 }}
[evaluation]
every = 1_000_000
problems = 1
[[tasks]]
kind = "sums"
style = "terse"
count = 100
levels = [{{ digits = 1 }}]
"""

TRL = """
import sys, time
began = float(sys.argv[1])
import torch
from datasets import Dataset
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
steps = int(sys.argv[2])
torch.set_num_threads(int(sys.argv[4]))
tokenizer = AutoTokenizer.from_pretrained(sys.argv[3])
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
config = Qwen2Config(hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=512, max_position_embeddings=64, tie_word_embeddings=True,
    eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
model = Qwen2ForCausalLM(config)
class Watch(TrainerCallback):
    def on_step_end(self, *_, **__):
        print("step", time.time() - began, flush=True)
GRPOTrainer(
    model=model,
    reward_funcs=lambda completions, **_: [float(len(c) % 2) for c in completions],
    args=GRPOConfig(output_dir=sys.argv[5], use_cpu=True, per_device_train_batch_size=32, num_generations=8,
        max_completion_length=4, max_steps=steps, learning_rate=1e-4, beta=0.0, report_to=[], save_strategy="no",
        logging_steps=steps, bf16=False, dataloader_pin_memory=False, disable_tqdm=True, gradient_checkpointing=False),
    train_dataset=Dataset.from_list([{"prompt": f"{i} + {j} ="} for i in range(20) for j in range(20)]),
    processing_class=tokenizer,
    callbacks=[Watch()],
).train()
"""


def lines(command, prefix, began, **env):
    """The numbers of a program's lines that begin so."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith(prefix)]


def steps_here(model, steps, folder):
    config = folder / "run.toml"
    config.write_text(CONFIG.format(model=model, steps=steps))
    out = folder / f"run-{time.time_ns()}"
    began = time.time()
    process = subprocess.Popen([ALLOT, "train", config, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    first, record = None, out / "record.jsonl"
    while process.poll() is None and first is None:
        if record.exists() and '"step-end"' in record.read_text():
            first = time.time() - began
        time.sleep(0.005)
    error = process.stderr.read()
    if process.wait():
        sys.exit(error.decode())
    whole = time.time() - began
    times = [json.loads(line).get("seconds") for line in (out / "times.jsonl").read_text().splitlines()]
    # Sums since the start of the run, evaluation left out.
    sums = [sum(v for k, v in t.items() if k in PHASES) for t in times if t]
    return first or whole, [b - a for a, b in zip(sums, sums[1:])]


def step(arguments):
    model = arguments.model
    here, there = {"first": [], "step": []}, {"first": [], "step": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for _ in range(arguments.rounds):
            first, times = steps_here(model, arguments.steps, folder)
            here["first"].append(first)
            here["step"].append(statistics.median(times))
            began = time.time()
            ends = lines(
                [sys.executable, "-c", TRL, str(began), str(arguments.steps), model, str(os.cpu_count()), str(folder / "trl")],
                "step", began, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
            )
            there["first"].append(ends[0])
            there["step"].append(statistics.median(b - a for a, b in zip(ends, ends[1:])))
    show("seconds", here, there)


PHASES = ("deciding", "sampling", "judging", "updating")


def show(unit, here, there):
    for name in here:
        ratios = sorted(t / h for h, t in zip(here[name], there[name]))
        print(f"{name:<8} here {statistics.median(here[name]):.4f}, there {statistics.median(there[name]):.4f} {unit}; "
              f"{statistics.median(ratios):.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f})")
    print(json.dumps({"here": here, "there": there}))


# What llama.cpp calls the kinds of weights that it is measured with.
FTYPES = {"f32": 0, "q8_0": 7, "bf16": 32}


def llama(arguments):
    import llama_cpp

    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for kind in arguments.there:
            weights = os.path.join(folder, kind + ".gguf")
            params = llama_cpp.llama_model_quantize_default_params()
            params.ftype, params.allow_requantize = FTYPES[kind], True
            assert llama_cpp.llama_model_quantize(arguments.model.encode(), weights.encode(), params) == 0
            models[kind] = llama_cpp.Llama(weights, n_ctx=256, n_threads=os.cpu_count(), verbose=False, logits_all=False)
            print(f"llama-cpp-python {llama_cpp.__version__}, {kind}, {os.path.getsize(weights) >> 20} MiB of weights")
        here, there = [], {kind: [] for kind in models}
        prompt, tokens = 32, 64
        for i in range(arguments.rounds + 1):
            done = subprocess.run(
                [ALLOT, "bench", "decode", "--model", arguments.model, "--dtype", arguments.here, "--batch", "1",
                 "--prompt", str(prompt), "--tokens", str(tokens), "--rounds", "1", "--json"],
                capture_output=True, text=True, check=True)
            ours = json.loads(done.stdout)["measured"][0]["here"][0]
            if i:
                here.append(tokens / ours)
            for kind, model in models.items():
                model.reset()
                ids = [(i * 31 + j * 7) % 40000 + 20 for j in range(prompt)]
                began = time.perf_counter()
                drawn = 0
                for _ in model.generate(ids, temp=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0):
                    drawn += 1
                    if drawn == tokens:
                        break
                if i:
                    there[kind].append(tokens / (time.perf_counter() - began))
        for kind, speeds in there.items():
            ratios = sorted(h / t for h, t in zip(here, speeds))
            print(f"tokens/s here, {arguments.here}, {statistics.median(here):.1f}, there, {kind}, {statistics.median(speeds):.1f}; "
                  f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
which = parser.add_subparsers(required=True)
one = which.add_parser("step")
one.add_argument("--rounds", type=int, default=3)
one.add_argument("--steps", type=int, default=20)
one.add_argument("--model", required=True, help="a 2-layer, 64-wide Qwen2 with its tokenizer")
one.set_defaults(run=step)
two = which.add_parser("llama")
two.add_argument("model")
two.add_argument("--rounds", type=int, default=5)
two.add_argument("--here", default="f32", choices=["f32", "bf16"], help="what is computed in here")
two.add_argument("--there", nargs="+", default=["f32"], choices=sorted(FTYPES), help="llama.cpp's weights")
two.set_defaults(run=llama)
arguments = parser.parse_args()
arguments.run(arguments)
