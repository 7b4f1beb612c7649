"""How fast transformers learns on a GPU: `train.py FOLDER BATCH TOKENS [--recompute]`, JSON lines; the last counts.

A round is an update: minus the mean log-probability of all tokens, from full logits, backward, gradients cut to a
norm of 1, a step of fused AdamW on float32 weights. Attention is torch's (sdpa). Weights are random, in the shape
that the folder's `config.json` tells. Three ways, and the fastest is what counts:

- `masters`: the model in bfloat16, its optimizer on float32 copies, which are rounded back into it
- `autocast`: float32 weights, bfloat16 by autocast
- `compiled`: the faster of the two, with blocks and head compiled by torch, where that takes less than a minute

Each way has two rounds for warming up; the median of five more counts. It reads TOKENS and foretells as many, so that
all shapes are multiples of 8. Where a batch does not fit into memory it is learned from in 2, 4 or 8 parts.
"""

import argparse
import gc
import json
import os
import signal
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

WARM, COUNTED = 2, 5
MOST_PARTS = 8
COMPILING = 60


def loss_of(hidden, head, targets):
    return F.cross_entropy(F.linear(hidden, head).float().flatten(0, 1), targets.flatten())


class Learner:
    def __init__(self, config, options, way, compiled=False):
        self.autocast, self.device = way == "autocast", options.device
        kind = torch.float32 if self.autocast else torch.bfloat16
        torch.manual_seed(1)
        with torch.device(options.device):
            self.model = AutoModelForCausalLM.from_config(config, dtype=kind, attn_implementation="sdpa").train()
        self.loss = loss_of
        if options.recompute:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if compiled:
            for block in self.model.model.layers:
                block.compile()
            self.loss = torch.compile(loss_of)
        self.weights = list(self.model.parameters())
        self.trained = self.weights
        if not self.autocast:
            self.trained = [w.detach().float() for w in self.weights]
            for w in self.trained:
                w.grad = torch.zeros_like(w)
        fused = options.device == "cuda"
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-6, weight_decay=0.0, fused=fused)

    def round(self, ids, targets, parts):
        each = len(ids) // parts
        for i in range(0, len(ids), each):
            with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
                hidden = self.model.model(input_ids=ids[i : i + each], use_cache=False).last_hidden_state
                loss = self.loss(hidden, self.model.lm_head.weight, targets[i : i + each]) / parts
            loss.backward()
            if not self.autocast:
                take = torch._foreach_add_ if i else torch._foreach_copy_
                take([w.grad for w in self.trained], [w.grad for w in self.weights])
                for w in self.weights:
                    w.grad = None
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0, foreach=True)
        self.optimizer.step()
        if self.autocast:
            self.optimizer.zero_grad()
        else:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.trained)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def measured(config, options, way, compiled=False, parts=1):
    """Seconds of all rounds; in more parts where memory does not last."""
    try:
        ids, targets = (
            torch.randint(0, config.vocab_size, (options.batch, options.tokens), device=options.device)
            for _ in range(2)
        )
        learner, seconds = Learner(config, options, way, compiled), []
        for _ in range(WARM + COUNTED):
            wait(options.device)
            begin = time.perf_counter()
            learner.round(ids, targets, parts)
            wait(options.device)
            seconds.append(time.perf_counter() - begin)
        return {"parts": parts, "seconds": seconds, "second": sorted(seconds[WARM:])[COUNTED // 2]}
    except torch.OutOfMemoryError as error:
        if 2 * parts > min(MOST_PARTS, options.batch):
            return {"parts": parts, "error": str(error).splitlines()[0]}
    finally:
        learner = None
        gc.collect()
        torch._dynamo.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return measured(config, options, way, compiled, 2 * parts)


def late(*_):
    raise TimeoutError(f"not compiled in {COMPILING} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("batch", type=int)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--recompute", action="store_true", help="gradient checkpointing")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_float32_matmul_precision("high")
    config = AutoConfig.from_pretrained(options.folder)
    ways = {}

    def tell():
        good = {way: said for way, said in ways.items() if "second" in said}
        best = min(good, key=lambda way: good[way]["second"], default=None)
        said = {"way": best, "ways": ways, "recompute": options.recompute}
        if best:
            said["tokens_a_second"] = options.batch * options.tokens / good[best]["second"]
            said["parts"] = good[best]["parts"]
        said["versions"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
        print(json.dumps(said), flush=True)
        return best

    for way in ("masters", "autocast"):
        ways[way] = measured(config, options, way)
        best = tell()
    if best:
        signal.signal(signal.SIGALRM, late)
        signal.alarm(COMPILING)
        try:
            ways["compiled"] = measured(config, options, best, True, ways[best]["parts"])
        except Exception as error:
            ways["compiled"] = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.alarm(0)
        tell()


if __name__ == "__main__":
    main()
