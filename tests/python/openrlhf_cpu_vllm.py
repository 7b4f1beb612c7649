"""What samples for OpenRLHF without a GPU, under vLLM's names: transformers, in the process of OpenRLHF's own
vLLM actor.

OpenRLHF's actor, agent executors and its extension of vLLM's workers, which takes new weights, are its own.
In NCCL's place weights come through a store of torch's.
"""

from __future__ import annotations

import importlib
import json
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from openrlhf_cpu import module


@dataclass
class SamplingParams:
    """Those of vLLM that OpenRLHF sets."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = 16
    min_tokens: int = 0
    skip_special_tokens: bool = True
    logprobs: int | None = None
    seed: int | None = None


@dataclass
class AsyncEngineArgs:
    model: str
    worker_extension_cls: str
    max_model_len: int
    seed: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    def __init__(self, model: str, worker_extension_cls: str, max_model_len: int, seed: int, **more: Any):
        self.model, self.worker_extension_cls, self.max_model_len = model, worker_extension_cls, max_model_len
        self.seed, self.more = seed, more


class AsyncLLMEngine:
    """Samples one request after the other: what it says hangs on weights, prompt and seed alone."""

    def __init__(self, args: AsyncEngineArgs):
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        config = AutoConfig.from_pretrained(args.model)
        self.model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()
        # A model of random weights hardly ever says its end: ids that the tokenizer does not know are ends,
        # too.
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        self.end, self.known, self.decode = config.eos_token_id, len(tokenizer), tokenizer.decode
        self.most, self.chance = args.max_model_len, torch.Generator().manual_seed(args.seed)
        self.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 0)
        self.weights = 0
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        path, name = args.worker_extension_cls.rsplit(".", 1)
        self.worker = getattr(importlib.import_module(path), name)()
        self.worker.device = torch.device("cpu")
        self.worker.model_config = SimpleNamespace(dtype=torch.bfloat16)
        self.worker.model_runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs) -> AsyncLLMEngine:
        return cls(args)

    def _load(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, weight in weights:
                parameters[name].copy_(weight)
                self.weights += 1

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        return [getattr(self.worker, method)(*args)]

    async def is_sleeping(self) -> bool:
        return False

    async def sleep(self, level: int = 1) -> None:
        _log("sleep", level=level)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        _log("wake_up", tags=tags)

    @torch.no_grad()
    async def generate(
        self, prompt: dict[str, Any], params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        chance = self.chance if params.seed is None else torch.Generator().manual_seed(params.seed)
        ids = list(prompt["prompt_token_ids"])
        start, past, new, logprobs = len(ids), None, torch.tensor([ids]), []
        while len(ids) - start < min(params.max_tokens or self.most, self.most - start):
            out = self.model(new, past_key_values=past, use_cache=True)
            logits, past = out.logits[0, -1].float() / (params.temperature or 1.0), out.past_key_values
            # Half of a rollout is an end: with so few tokens, lengths should differ.
            chosen = int(torch.multinomial(logits.softmax(-1), 1, generator=chance))
            chosen = chosen if chosen < self.known else self.end
            logprobs.append({chosen: SimpleNamespace(logprob=float(logits.log_softmax(-1)[chosen]))})
            ids.append(chosen)
            new = torch.tensor([[chosen]])
            if chosen == self.end:
                break
        said = ids[start:]
        _log("generate", seed=params.seed, tokens=len(said), weights=self.weights)
        reason = "stop" if said and said[-1] == self.end else "length"
        text = self.decode(said)
        output = SimpleNamespace(token_ids=said, text=text, finish_reason=reason, logprobs=logprobs)
        yield SimpleNamespace(outputs=[output])


class StatelessProcessGroup:
    """vLLM's group beside torch's: here a store that all of its members reach."""

    def __init__(self, store: Any, rank: int):
        self.store, self.rank = store, rank

    @classmethod
    def create(cls, host: str, port: int, rank: int, world_size: int) -> StatelessProcessGroup:
        store = torch.distributed.TCPStore(host, port, is_master=rank == 0, wait_for_workers=False)
        return cls(store, rank)


class PyNcclCommunicator:
    def __init__(self, group: StatelessProcessGroup, device: Any):
        self.group, self.sent = group, 0

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        key, self.sent = f"tensor-{self.sent}", self.sent + 1
        raw = tensor.view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
        if self.group.rank == src:
            self.group.store.set(key, raw.contiguous().numpy().tobytes())
        else:
            told = torch.frombuffer(bytearray(self.group.store.get(key)), dtype=torch.uint8)
            raw.copy_(told.view(raw.shape))


def _log(what: str, **told: Any) -> None:
    if path := os.environ.get("ALLOT_TEST_REQUESTS"):
        with open(path, "a") as lines:
            lines.write(json.dumps({"what": what, **told}) + "\n")


def install() -> None:
    """Puts the names that OpenRLHF takes from vLLM in their places."""
    module(
        "vllm",
        __version__="0.29.0",
        SamplingParams=SamplingParams,
        AsyncEngineArgs=AsyncEngineArgs,
        AsyncLLMEngine=AsyncLLMEngine,
    )
    module("vllm.inputs", TokensPrompt=dict)
    module("vllm.utils", random_uuid=lambda: uuid.uuid4().hex)
    module("vllm.distributed")
    module("vllm.distributed.utils", StatelessProcessGroup=StatelessProcessGroup)
    module("vllm.distributed.device_communicators")
    module("vllm.distributed.device_communicators.pynccl", PyNcclCommunicator=PyNcclCommunicator)
