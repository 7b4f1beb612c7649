"""The same work in PyTorch and transformers, one line of JSON asked, one answered.

Set up as their documentation has it for a CPU: all threads, no gradients while sampling, the attention that
PyTorch has built in, its fused AdamW.
"""

import json
import sys
import time

import torch
import transformers
from transformers import AutoModelForCausalLM

transformers.logging.set_verbosity_error()
ask = json.loads(sys.stdin.readline())
torch.set_num_threads(ask["threads"])
torch.manual_seed(1)
model = AutoModelForCausalLM.from_pretrained(ask["model"], dtype=torch.float32)
model.eval()
optimizer = None


def decode(prompt, batch, tokens):
    """Seconds for `batch` answers of `tokens` tokens each to one prompt."""
    ids = torch.tensor([prompt] * batch)
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
    seconds = time.perf_counter() - start
    assert out.shape[1] == len(prompt) + tokens, out.shape
    return seconds


def train(sequences):
    """Seconds for one update on sequences of one length: forward, backward, a step of AdamW."""
    global optimizer
    if optimizer is None:
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    ids = torch.tensor(sequences)
    start = time.perf_counter()
    logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - start


print(json.dumps({"versions": f"torch {torch.__version__}, transformers {transformers.__version__}"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    seconds = {"decode": decode, "train": train}[asked.pop("work")](**asked)
    print(json.dumps({"seconds": seconds}), flush=True)
