"""How fast transformers samples on a GPU: `peer.py FOLDER BATCH PROMPT TOKENS`, one line of JSON.

Set up as its documentation has it for speed: bfloat16, a static cache, the forward pass compiled by torch
with CUDA graphs. Weights are random, in the shape that the folder's `config.json` tells. Two rounds are for
the compiler; the median of three more counts.
"""

import json
import sys
import time

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

folder, batch, prompt, tokens = sys.argv[1], *map(int, sys.argv[2:5])
transformers.logging.set_verbosity_error()
torch.manual_seed(1)
torch.set_float32_matmul_precision("high")
config = AutoConfig.from_pretrained(folder)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
ids = torch.randint(0, config.vocab_size, (1, prompt), device="cuda").repeat(batch, 1)
mask = torch.ones_like(ids)
asked = dict(
    do_sample=True, temperature=1.0, top_k=0, top_p=1.0, min_new_tokens=tokens, max_new_tokens=tokens,
    cache_implementation="static", pad_token_id=0, eos_token_id=None,
)
seconds = []
with torch.no_grad():
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        out = model.generate(ids, attention_mask=mask, **asked)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        assert out.shape == (batch, prompt + tokens), out.shape
counted = sorted(seconds[2:])
print(json.dumps({
    "seconds": seconds, "tokens_a_second": batch * tokens / counted[1],
    "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
}))
