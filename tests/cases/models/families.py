#!/usr/bin/env python3
"""Makes the tiny checkpoints of more families, and rope.json, with what transformers computes with them.

Needs torch and transformers (made with torch 2.15.0, transformers 5.10.4), on a CPU; a second run gives the same files.
Run: python families.py [NAME…], in this folder. Tokenizers and chat templates are those of tiny-llama-tied.
With --check FOLDER…: loads checkpoints that allot wrote, each named as the model that it came from, and compares.

To add a family, add a line to SPECS. What is in a folder, and what is checked with it: see tests/parity.rs.
"""
import json, math, os, shutil, sys
import torch, transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
V, EOS, PAD = 400, 393, 394
BASE = dict(vocab_size=V, hidden_size=32, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=EOS, pad_token_id=PAD)
DEFAULT = dict(rope_type='default')
YARN = dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=64)
# model_type, what its config has beyond BASE, rope_parameters, and what transformers 4 called the rest.
SPECS = {
    'tiny-mistral': ('mistral', dict(head_dim=16, sliding_window=7, tie_word_embeddings=False), dict(DEFAULT, rope_theta=1e6)),
    'tiny-smollm3-yarn': ('smollm3', dict(tie_word_embeddings=True, no_rope_layers=[1, 0], no_rope_layer_interval=2),
                          dict(YARN, rope_theta=5e6)),
    'tiny-granite-linear': ('granite', dict(tie_word_embeddings=True, embedding_multiplier=12.0, logits_scaling=1.7,
                            residual_multiplier=0.22, attention_multiplier=0.2), dict(rope_type='linear', factor=2.5, rope_theta=1e4)),
    'tiny-olmo2-dynamic': ('olmo2', dict(tie_word_embeddings=False), dict(rope_type='dynamic', factor=2.0, rope_theta=5e5)),
    'tiny-phi3': ('phi3', dict(tie_word_embeddings=False, sliding_window=11), dict(DEFAULT, rope_theta=250000.0)),
    'tiny-gemma2': ('gemma2', dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=9, attn_logit_softcapping=4.0,
                    final_logit_softcapping=6.0), dict(DEFAULT, rope_theta=1e4)),
    'tiny-gemma3': ('gemma3_text', dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=8,
                    layer_types=['sliding_attention', 'full_attention']),
                    dict(full_attention=dict(rope_type='linear', factor=8.0, rope_theta=1e6),
                         sliding_attention=dict(DEFAULT, rope_theta=1e4))),
    'tiny-qwen3-moe': ('qwen3_moe', dict(head_dim=16, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
                       tie_word_embeddings=True), dict(DEFAULT, rope_theta=1e6)),
}


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    # Gemma's norms multiply by one more than their weights.
    base = 0.0 if 'gemma' in model.config.model_type else 1.0
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if 'norm' in name: p.copy_(base + torch.randn(p.shape, generator=g) * 0.2)
            elif 'embed' in name or 'lm_head' in name: p.copy_(torch.randn(p.shape, generator=g) * 0.5)
            else: p.copy_(torch.randn(p.shape, generator=g) * (1.2 / math.sqrt(p.shape[-1])))


def old(config, rope):
    """The same config with the field names of transformers 4, as published repositories have them."""
    c = {k: v for k, v in config.items() if k not in ('rope_parameters', 'dtype', 'layer_types')}
    c.update(torch_dtype='float32', transformers_version='4.51.0')
    if 'full_attention' in rope:
        own = {k: v for k, v in rope['full_attention'].items() if k != 'rope_theta'}
        c.update(rope_theta=rope['full_attention']['rope_theta'], rope_local_base_freq=rope['sliding_attention']['rope_theta'])
        c.update(sliding_window_pattern=c.pop('_sliding_window_pattern', 2) and 2)
    else:
        own = {k: v for k, v in rope.items() if k != 'rope_theta'}
        c.update(rope_theta=rope['rope_theta'])
    c['rope_scaling'] = None if own['rope_type'] == 'default' else own
    if 'num_local_experts' in c: c['num_experts'] = c.pop('num_local_experts')
    return c


def stored(name, tensor):
    """A parameter as its checkpoint has it: of experts, which are one tensor while transformers computes, an expert at a time."""
    stem, _, kind = name.rpartition('.')
    if not stem.endswith('.experts'): return [(name, tensor)]
    parts = dict(gate_up_proj=('gate_proj', 'up_proj'), down_proj=('down_proj',))[kind]
    return [(f'{stem}.{expert}.{part}.weight', piece) for expert, whole in enumerate(tensor)
            for part, piece in zip(parts, whole.chunk(len(parts)))]


def make(name, kind, extra, rope):
    d = os.path.join(HERE, name)
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    config = AutoConfig.for_model(kind, **{**BASE, **extra, 'rope_parameters': json.loads(json.dumps(rope))})
    config._attn_implementation = 'eager'
    torch.manual_seed(0)
    m = AutoModelForCausalLM.from_config(config).float().eval()
    randomise(m, sum(map(ord, name)))
    if config.tie_word_embeddings: m.tie_weights()
    m.config.dtype = 'float32'
    m.generation_config.eos_token_id, m.generation_config.pad_token_id = EOS, PAD
    m.save_pretrained(d)
    for file in ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'):
        shutil.copy(os.path.join(HERE, 'tiny-llama-tied', file), os.path.join(d, file))
    told = json.load(open(f'{d}/config.json'))
    json.dump(old(told, rope), open(f'{d}/config_v4.json', 'w'), indent=2, sort_keys=True)
    m = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation='eager').eval()

    g = torch.Generator().manual_seed(7)
    ids = torch.randint(0, EOS, (1, 24), generator=g)
    with torch.no_grad():
        o = m(input_ids=ids, output_hidden_states=True)
        # Gemma starts at a guess of its own; a plain cache is the same arithmetic for all.
        gen = m.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, min_new_tokens=12, do_sample=False)
    R = {'input_ids': ids, 'logits': o.logits.float(), 'greedy_output_ids': gen}
    for i, h in enumerate(o.hidden_states): R[f'hidden_{i}'] = h.float().contiguous()
    # The clipped policy-gradient loss (token mean), its gradients, one AdamW step.
    m.train()
    logp = torch.log_softmax(m(input_ids=ids).logits.float(), -1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    before = (logp + 0.1 * torch.randn(logp.shape, generator=g)).detach()
    adv = torch.randn(logp.shape, generator=g)
    mask = torch.ones_like(logp)
    mask[:, :8] = 0
    ratio = torch.exp(logp - before)
    loss = (-torch.minimum(ratio * adv, ratio.clamp(0.8, 1.28) * adv) * mask).sum() / mask.sum()
    m.zero_grad()
    loss.backward()
    R.update(token_logp=logp.detach(), old_logp=before, advantages=adv, response_mask=mask)
    gradients = dict(one for n, p in m.named_parameters() for one in stored(n, p.grad))
    norms = {n: g.norm().item() for n, g in gradients.items()}
    for n, g in gradients.items():
        R['grad.' + n] = g.clone()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    total = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0).item()
    opt.step()
    with torch.no_grad():
        m.eval()
        R['logits_after_step'] = m(input_ids=ids).logits.float()
    save_file({a: b.contiguous() for a, b in R.items()}, f'{d}/reference.safetensors')
    json.dump(dict(torch=torch.__version__, transformers=transformers.__version__, weights_dtype='float32', reference_dtype='float32',
                   attn='eager', loss=loss.item(), grad_norm_total=total, grad_norms=norms, clip=dict(low=0.2, high=0.28),
                   adamw=dict(lr=1e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, max_grad_norm=1.0)),
              open(f'{d}/reference.json', 'w'), indent=1)
    size = sum(os.path.getsize(f'{d}/{f}') for f in os.listdir(d)) // 1024
    print(name, sum(p.numel() for p in m.parameters()), size, 'KiB', 'loss', loss.item(), 'norm', total,
          'top logit', o.logits.abs().max().item())


def ropes():
    """Frequencies and the factor on cosines and sines of every kind of scaling, as transformers has them."""
    cases = []
    llama3 = dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    for head, rope in [
        (16, dict(rope_type='linear', factor=2.5)), (64, dict(rope_type='linear', factor=8.0)),
        (64, dict(rope_type='dynamic', factor=2.0)), (64, llama3), (64, dict(YARN)), (128, dict(YARN, factor=1.5)),
        (64, dict(YARN, beta_fast=16.0, beta_slow=2.0)), (64, dict(YARN, attention_factor=0.8)),
        (64, dict(YARN, mscale=1.0, mscale_all_dim=0.7)), (64, dict(YARN, factor=40.0, mscale=0.707, mscale_all_dim=0.707)),
        (64, dict(YARN, truncate=False)), (128, dict(YARN, factor=4.0, original_max_position_embeddings=32768)),
    ]:
        for theta in (1e4, 1e6):
            c = AutoConfig.for_model('llama', hidden_size=4 * head, num_attention_heads=4, max_position_embeddings=256,
                                     rope_parameters=dict(rope, rope_theta=theta))
            inv, factor = ROPE_INIT_FUNCTIONS[rope['rope_type']](c)
            cases.append(dict(head=head, rope=dict(rope, rope_theta=theta), frequencies=inv.tolist(), factor=factor))
    json.dump(cases, open(os.path.join(HERE, 'rope.json'), 'w'), indent=None)


def check(folders):
    """Loads what allot exported, and compares its logits with those recorded; a warning of transformers is an error."""
    worst = 0.0
    for folder in folders:
        name = os.path.basename(os.path.normpath(folder))
        r = load_file(os.path.join(HERE, name, 'reference.safetensors'))
        m, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager', output_loading_info=True)
        wrong = {k: sorted(v) for k, v in info.items() if k in ('missing_keys', 'unexpected_keys', 'mismatched_keys') and v}
        assert not wrong, (name, wrong)
        with torch.no_grad():
            off = (m.eval()(input_ids=r['input_ids']).logits - r['logits']).abs().max().item()
        print(f'{name:<28} {off:.1e}')
        worst = max(worst, off)
    assert worst < 1e-5, worst


if __name__ == '__main__':
    if sys.argv[1:2] == ['--check']:
        check(sys.argv[2:])
    else:
        if not sys.argv[1:]: ropes()
        for name, spec in SPECS.items():
            if not sys.argv[1:] or name in sys.argv[1:]: make(name, *spec)
