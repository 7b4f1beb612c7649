"""Makes a small Llama from random weights that writes expressions for problems.py's questions, now and then the right one.

    pip install jax==0.10.2 && python3 benches/programs/pretrain.py runs/programs/model

`allot pretrain` demonstrates tasks of its own only, which is why this is here. There are three stages: right programs of all
kinds; right programs of fewer kinds; and the same by somebody who mostly forgets brackets, often writes a for b and b for a,
and divides by `/`. So the model can write right programs, and does so only sometimes. Functions that problems.py keeps back
are never demonstrated. The loss is that of the answer's tokens. The weights depend on the machine, by rounding.
"""

import argparse
import json
import random
import struct
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import problems

ALPHABET = "0123456789+-*/%()ab,="
IDS = {c: i for i, c in enumerate(ALPHABET, 1)}  # 0 ends an answer
LENGTH = problems.LONGEST
EPSILON, THETA = 1e-5, 10_000.0


def fresh(args, rng):
    d, f = args.hidden, args.intermediate
    normal = lambda *shape: (0.02 * rng.standard_normal(shape)).astype(np.float32)
    weights = {"model.embed_tokens.weight": normal(len(ALPHABET) + 1, d)}
    for i in range(args.layers):
        at = f"model.layers.{i}."
        for name in "qkvo":
            weights[f"{at}self_attn.{name}_proj.weight"] = normal(d, d)
        weights[at + "mlp.gate_proj.weight"] = normal(f, d)
        weights[at + "mlp.up_proj.weight"] = normal(f, d)
        weights[at + "mlp.down_proj.weight"] = normal(d, f)
        weights[at + "input_layernorm.weight"] = np.ones(d, np.float32)
        weights[at + "post_attention_layernorm.weight"] = np.ones(d, np.float32)
    weights["model.norm.weight"] = np.ones(d, np.float32)
    return weights


def logits(weights, tokens, layers, heads):
    rows, length = tokens.shape
    embedding = weights["model.embed_tokens.weight"]
    width = embedding.shape[1] // heads
    angle = jnp.arange(length)[:, None] * THETA ** (-jnp.arange(0, width, 2) / width)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]

    def norm(x, name):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON) * weights[name]

    def rotated(x):
        x1, x2 = jnp.split(x, 2, -1)
        return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)

    x = embedding[tokens]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for i in range(layers):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm.weight")
        q, k, v = ((y @ weights[f"{at}self_attn.{n}_proj.weight"].T).reshape(rows, length, heads, width) for n in "qkv")
        scores = jnp.einsum("rqhd,rkhd->rhqk", rotated(q), rotated(k)) / width**0.5
        shares = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1)
        y = jnp.einsum("rhqk,rkhd->rqhd", shares, v).reshape(rows, length, -1)
        x = x + y @ weights[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm.weight")
        gate, up = (y @ weights[f"{at}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (jax.nn.silu(gate) * up) @ weights[at + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ embedding.T


def loss(weights, tokens, mask, layers, heads):
    found = jax.nn.log_softmax(logits(weights, tokens[:, :-1], layers, heads))
    taken = jnp.take_along_axis(found, tokens[:, 1:, None], -1)[..., 0]
    return -(taken * mask[:, 1:]).sum() / mask.sum()


# Steps, learning rate, the shares of examples from each of `kinds`, and how likely each slip is.
STAGES = [
    (2500, 3e-3, (0.2, 0.55, 0.25, 0, 0), 0.0),
    (700, 1.5e-3, (0.15, 0, 0.1, 0.6, 0.15), 0.0),
    (300, 5e-4, (0.15, 0, 0.1, 0.6, 0.15), 0.7),
]


def kinds():
    """What is demonstrated: the three levels, and of the second what divides nothing, and what divides."""
    one, two, three = (
        [text for text, found in level if problems.part(found) == "demonstrated"] for level in problems.functions()
    )
    return one, two, three, [t for t in two if not problems.divides(t)], [t for t in two if problems.divides(t)]


def slipped(text, slips, rng):
    """A program as somebody writes it who is not careful."""
    if rng.random() < slips:
        text = text.replace("(", "").replace(")", "")
    if rng.random() < slips:
        text = text.replace("//", "/")
    if rng.random() < slips / 2:
        text = text.translate(str.maketrans("ab", "ba"))
    return text


def batch(kinds, asked, shares, slips, size, rng):
    tokens = np.zeros((size, LENGTH), np.int32)
    mask = np.zeros((size, LENGTH), np.float32)
    for row in range(size):
        text = rng.choice(rng.choices(kinds, shares)[0])
        question = asked[text]
        text = slipped(problems.variant(text, rng), slips, rng)
        ids = [IDS[c] for c in question + text][: LENGTH - 1]
        tokens[row, : len(ids)] = ids
        mask[row, len(question) : len(ids) + 1] = 1
    return tokens, mask


def read(folder):
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    part = lambda of: data[begin:][slice(*of["data_offsets"])]
    return {name: np.frombuffer(part(of), np.float32).reshape(of["shape"]) for name, of in header.items()}


def write(weights, folder, args):
    """The folder, as transformers and allot read it."""
    folder.mkdir(parents=True, exist_ok=True)
    json_file = lambda name, value: (folder / name).write_text(json.dumps(value, indent=1) + "\n")
    header, data, at = {}, [], 0
    for name in sorted(weights):
        value = np.asarray(weights[name], np.float32)
        header[name] = {"dtype": "F32", "shape": value.shape, "data_offsets": [at, at + value.nbytes]}
        data.append(value.tobytes())
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    json_file("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": len(ALPHABET) + 1,
        "hidden_size": args.hidden, "intermediate_size": args.intermediate, "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads, "num_key_value_heads": args.heads, "head_dim": args.hidden // args.heads,
        "max_position_embeddings": 64, "rms_norm_eps": EPSILON, "rope_theta": THETA, "attention_bias": False,
        "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0, "torch_dtype": "float32",
    })  # fmt: skip
    end = "<end>"
    json_file("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 0, "content": end, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": {end: 0, **IDS}, "unk_token": "<unknown>"},
    })  # fmt: skip
    json_file("tokenizer_config.json", {"clean_up_tokenization_spaces": False, "eos_token": end, "pad_token": end,
                                        "tokenizer_class": "PreTrainedTokenizerFast"})  # fmt: skip
    json_file("generation_config.json", {"eos_token_id": 0, "pad_token_id": 0})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    for name, value in dict(hidden=64, intermediate=176, layers=4, heads=2, batch=64, seed=1).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--first", type=int, default=0, help="stage to begin with, from the model in --start")
    parser.add_argument("--start", type=Path)
    args = parser.parse_args()
    demonstrated = kinds()
    asked = {text: problems.asked(text) for kind in demonstrated for text in kind}
    weights = read(args.start) if args.start else fresh(args, np.random.default_rng(args.seed))
    print(sum(w.size for w in weights.values()), "parameters", flush=True)

    @jax.jit
    def step(weights, first, second, tokens, mask, rate, at):
        value, slopes = jax.value_and_grad(loss)(weights, tokens, mask, args.layers, args.heads)
        scale = jnp.minimum(1.0, 1.0 / jnp.sqrt(sum((s * s).sum() for s in slopes.values())))
        first = {k: 0.9 * first[k] + 0.1 * scale * s for k, s in slopes.items()}
        second = {k: 0.98 * second[k] + 0.02 * (scale * s) ** 2 for k, s in slopes.items()}
        move = lambda k: (first[k] / (1 - 0.9**at)) / (jnp.sqrt(second[k] / (1 - 0.98**at)) + 1e-8)
        return {k: w - rate * (move(k) + 0.02 * w) for k, w in weights.items()}, first, second, value

    began = time.time()
    for stage, (steps, highest, shares, slips) in list(enumerate(STAGES))[args.first :]:
        rng, total = random.Random(args.seed + stage), 0.0
        first, second = ({k: np.zeros_like(w) for k, w in weights.items()} for _ in range(2))
        for at in range(1, steps + 1):
            tokens, mask = batch(demonstrated, asked, shares, slips, args.batch, rng)
            rate = highest * min(1, at / 200) * 0.5 * (1 + np.cos(np.pi * at / steps))
            weights, first, second, value = step(weights, first, second, tokens, mask, rate, float(at))
            total += float(value)
            if at % 100 == 0:
                print(f"stage {stage}, step {at}: loss {total / 100:.4f}, {time.time() - began:.0f} s", flush=True)
                total = 0.0
        write(weights, args.out / f"stage-{stage}" if stage + 1 < len(STAGES) else args.out, args)


if __name__ == "__main__":
    main()
