"""The same work in PyTorch and transformers, one line of JSON asked, one answered.

Set up as their documentation has it for a CPU: all threads, no gradients while sampling, the attention that
PyTorch has built in, its fused AdamW. In bf16 it samples with weights in bf16, and trains float32 weights under
autocast, as its documentation advises. Answers are sampled in two ways, and the faster one counts: by
transformers' `generate`, and by the same network written out here in PyTorch's operations, with a cache that is
written in place and a prompt that is read once.
"""

import json
import sys
import time

import torch
import transformers
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
ask = json.loads(sys.stdin.readline())
torch.set_num_threads(ask["threads"])
torch.manual_seed(1)
bf16 = ask.get("dtype") == "bf16"
model = AutoModelForCausalLM.from_pretrained(ask["model"], dtype=torch.float32)
model.eval()
optimizer = None
faster = {}


class Eager:
    """A Llama or a Qwen2, a token of all rows at a time."""

    def __init__(self):
        inner, config = model.model, model.config
        self.heads = config.num_attention_heads
        self.kv = config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.epsilon = config.rms_norm_eps
        self.embedding, self.final, self.head = inner.embed_tokens.weight, inner.norm.weight, model.lm_head.weight
        self.blocks = []
        for layer in inner.layers:
            a, m = layer.self_attn, layer.mlp
            assert not hasattr(a, "q_norm")
            parts = [a.q_proj, a.k_proj, a.v_proj]
            bias = torch.cat([p.bias for p in parts]) if parts[0].bias is not None else None
            self.blocks.append((
                layer.input_layernorm.weight,
                torch.cat([p.weight for p in parts]),
                bias,
                a.o_proj.weight,
                layer.post_attention_layernorm.weight,
                torch.cat([m.gate_proj.weight, m.up_proj.weight]),
                m.down_proj.weight,
            ))
        positions = torch.arange(config.max_position_embeddings)[None]
        self.cos, self.sin = (t[0].to(self.embedding.dtype) for t in inner.rotary_emb(self.embedding, positions))

    def read(self, tokens, keys, values, at):
        """Logits after the last of some tokens of each row, `[rows, tokens]`."""
        rows, n = tokens.shape
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[at : at + n], self.sin[at : at + n]
        half = self.width // 2
        turn = lambda t: t * cos + torch.cat((-t[..., half:], t[..., :half]), -1) * sin
        for i, (norm1, qkv, bias, out, norm2, gate_up, down) in enumerate(self.blocks):
            y = F.linear(F.rms_norm(x, norm1.shape, norm1, self.epsilon), qkv, bias)
            y = y.view(rows, n, -1, self.width).transpose(1, 2)
            q, k, v = y.split([self.heads, self.kv, self.kv], 1)
            keys[i][:, :, at : at + n] = turn(k)
            values[i][:, :, at : at + n] = v
            past = keys[i][:, :, : at + n], values[i][:, :, : at + n]
            y = F.scaled_dot_product_attention(turn(q), *past, is_causal=n > 1, enable_gqa=self.heads != self.kv)
            x = x + F.linear(y.transpose(1, 2).reshape(rows, n, -1), out)
            gate, up = F.linear(F.rms_norm(x, norm2.shape, norm2, self.epsilon), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1], self.final.shape, self.final, self.epsilon), self.head)

    @torch.inference_mode()
    def sample(self, prompt, batch, tokens):
        """So many answers to one prompt, and the log-probability of each token."""
        room = lambda rows: torch.empty(
            len(self.blocks), rows, self.kv, len(prompt) + tokens, self.width, dtype=self.embedding.dtype
        )
        keys, values, own = room(batch), room(batch), (room(1), room(1))
        logits = self.read(torch.tensor([prompt]), *own, 0).expand(batch, -1)
        for whole, one in zip((keys, values), own):
            whole[:, :, :, : len(prompt)] = one[:, :, :, : len(prompt)]
        answers, log_probs = [], []
        for i in range(tokens):
            logits = logits.float().log_softmax(-1)
            drawn = torch.multinomial(logits.exp(), 1)
            answers.append(drawn)
            log_probs.append(logits.gather(1, drawn))
            if i + 1 < tokens:
                logits = self.read(drawn, keys, values, len(prompt) + i)
        return torch.cat(answers, 1), torch.cat(log_probs, 1)


@torch.inference_mode()
def generate(prompt, batch, tokens):
    ids = torch.tensor([prompt] * batch)
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
    assert out.shape[1] == len(prompt) + tokens, out.shape


def decode(prompt, batch, tokens):
    """The faster way to `batch` answers of `tokens` tokens each to one prompt."""
    if bf16:
        model.to(torch.bfloat16)
    eager = Eager()
    ways = {"generate": lambda: generate(prompt, batch, tokens), "eager": lambda: eager.sample(prompt, batch, tokens)}
    key = (batch, tokens)
    if key not in faster:
        # Once each to warm up, then as it counts.
        took = {name: [timed(way) for _ in range(2)][1] for name, way in ways.items()}
        faster[key] = min(took, key=took.get)
        print(f"{batch} x {tokens}: {took}, so {faster[key]}", file=sys.stderr)
    return ways[faster[key]]


def timed(way):
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def score(sequences):
    """Log-probabilities of sequences of one length: a forward pass."""
    if bf16:
        model.to(torch.bfloat16)
    ids = torch.tensor(sequences)

    @torch.inference_mode()
    def forward():
        logits = model(ids[:, :-1]).logits.float()
        return logits.log_softmax(-1).gather(2, ids[:, 1:, None])

    return forward


def train(sequences):
    """One update on sequences of one length: forward, backward, a step of AdamW."""
    global optimizer
    if optimizer is None:
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    ids = torch.tensor(sequences)

    def update():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(ids[:, :-1]).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def turn(way, least):
    """Seconds that it takes: the mean of a turn of at least so long, as `allot bench` takes them."""
    took = []
    while sum(took) < least:
        took.append(timed(way))
    return sum(took) / len(took)


print(json.dumps({"versions": f"torch {torch.__version__}, transformers {transformers.__version__}"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    work = asked["of"]
    way = {"decode": decode, "score": score, "train": train}[work.pop("work")](**work)
    print(json.dumps({"seconds": turn(way, asked["least"])}), flush=True)
