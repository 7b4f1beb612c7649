"""What samples for verl without a GPU, in vLLM's place: transformers, in a process of its own for each replica.

verl imports this module where a model's configuration is read (actor_rollout_ref.model.external_lib=verl_cpu_rollout).
It takes vLLM's name in verl's two lists of samplers, so that all else is as with vLLM: agent loops, the router of
requests, seeds, and weights that are sent after each update.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any

import ray
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

NAME = "allot-test-server-{}"


class Server:
    """Samples with its own copy of the model, one request after the other: what it says hangs on nothing else."""

    def __init__(self, path: str, longest: int, most: int):
        torch.set_num_threads(1)
        config = AutoConfig.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        # A model of random weights hardly ever says its end: ids that the tokenizer does not know are ends, too.
        self.end, self.known = config.eos_token_id, len(AutoTokenizer.from_pretrained(path))
        self.longest, self.most = longest, most
        self.version: int | None = None

    def load(self, weights: dict[str, Any], version: int | None) -> int:
        """Takes new weights, and says how many tensors there are."""
        given = {name: torch.from_numpy(weight.copy()) for name, weight in weights.items()}
        missing, unexpected = self.model.load_state_dict(given, strict=False)
        tied = set(self.model._tied_weights_keys or ())
        if unexpected or set(missing) - tied:
            raise ValueError(f"weights do not fit: {missing} are missing, {unexpected} are not known")
        self.model.tie_weights()
        self.version = version
        return len(given)

    @torch.no_grad()
    def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        if self.version is None:
            raise ValueError("asked for tokens before there were weights")
        chance = torch.Generator().manual_seed(
            int(sampling_params["seed"]) if "seed" in sampling_params else 0
        )
        most = min(self.longest, self.most - len(prompt_ids), sampling_params.get("max_tokens", self.longest))
        ids, logps, past = list(prompt_ids), [], None
        new = torch.tensor([ids])
        while len(logps) < max(1, most):
            out = self.model(new, past_key_values=past, use_cache=True)
            logits, past = out.logits[0, -1].float(), out.past_key_values
            temperature = sampling_params.get("temperature", 1.0)
            if temperature == 0:
                chosen = int(logits.argmax())
            else:
                chosen = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=chance))
            logps.append(float(logits.log_softmax(-1)[chosen]))
            ids.append(chosen)
            new = torch.tensor([[chosen]])
            if chosen == self.end or chosen >= self.known:
                ids[-1] = self.end
                break
        if log := os.environ.get("ALLOT_TEST_REQUESTS"):
            with open(log, "a") as lines:
                lines.write(json.dumps({"version": self.version, "tokens": len(logps)}) + "\n")
        return TokenOutput(
            token_ids=ids[len(prompt_ids) :],
            log_probs=logps if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    def sleep(self) -> None:
        pass

    def wake_up(self, tags: list[str] | None = None) -> None:
        pass


class Replica(RolloutReplica):
    """A server beside the workers that train."""

    async def launch_servers(self) -> None:
        server = ray.remote(Server).options(name=NAME.format(self.replica_rank), num_cpus=1)
        config = self.config
        self._server_handle = server.remote(
            self.model_config.path, config.response_length, config.prompt_length + config.response_length
        )
        self._server_address = f"replica-{self.replica_rank}"
        self.servers = [self._server_handle]


class Adapter(BaseRollout):
    """In a worker that trains: sends its weights to the server of its rank."""

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        # All ranks take part in gathering each tensor.
        whole = {name: weight.detach().float().cpu().numpy() for name, weight in weights}
        server = ray.get_actor(NAME.format(torch.distributed.get_rank()))
        await server.load.remote(whole, global_steps)


# Where there is no accelerator, verl would name CPUs twice in the backend's name, "cpu:gloo,cpu:gloo", which torch
# refuses.
if "RANK" in os.environ and not torch.distributed.is_initialized():
    torch.distributed.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )

_ROLLOUT_REGISTRY[("vllm", "async")] = f"{__name__}.Adapter"
RolloutReplicaRegistry.register("vllm", lambda: Replica)
