"""TRL with vLLM in server mode, on a CPU: TRL's own client, over HTTP, to a server that answers as `vllm serve` does.

The server samples with a copy of the model. TRL sends weights over NCCL, which needs a GPU: here they are copied.
If `ALLOT_VLLM` names a program `vllm`, the same once more with a real server, which reads the weights from a file.

Needs TRL 1.16; skipped without it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

from recorded import ROOT
from recorded import allot as program

if find_spec("trl") is None:
    raise unittest.SkipTest("no TRL here")

import torch
from safetensors.torch import save_file
from test_trl import MODEL, trainer
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.generation.vllm_client import VLLMClient


class Server(ThreadingHTTPServer):
    """The part of `vllm serve` that TRL asks for completions."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
        self.chance = torch.Generator().manual_seed(1)
        self.requests, self.updates = 0, 0

    def sample(self, prompt: list[int], most: int) -> tuple[list[int], list[float]]:
        ids, logps = list(prompt), []
        for _ in range(most):
            with torch.no_grad():
                logits = self.model(torch.tensor([ids])).logits[0, -1]
            chosen = int(torch.multinomial(logits.softmax(-1), 1, generator=self.chance))
            logps.append(float(logits.log_softmax(-1)[chosen]))
            ids.append(chosen)
        return ids[len(prompt) :], logps


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body: dict) -> None:
        told = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_GET(self):  # noqa: N802
        server = {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}}
        self.answer({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else server)

    def do_POST(self):  # noqa: N802
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        if self.path != "/v1/completions":
            return self.answer({"success": True})
        self.server.requests += 1
        choices = []
        for prompt in asked["prompt"]:
            for _ in range(asked["n"]):
                ids, logps = self.server.sample(prompt, asked["max_tokens"])
                tokens = [f"token_id:{i}" for i in ids]
                told = {"tokens": tokens, "token_logprobs": logps, "top_logprobs": [None] * len(ids)}
                choices.append({"prompt_token_ids": prompt, "token_ids": ids, "logprobs": told})
        return self.answer({"choices": choices})


class Vllm(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.server = server = Server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

        class Client(VLLMClient):
            def init_communicator(self, device=0):
                pass

            def update_named_params(self, metadata, named_params):
                server.updates += 1
                with torch.no_grad():
                    for name, weights in named_params:
                        server.model.get_parameter(name).copy_(weights)

        for module in ("generation.vllm_client", "generation.vllm_generation"):
            patched = patch(f"trl.{module}.is_vllm_available", return_value=True)
            patched.start()
            self.addCleanup(patched.stop)
        patched = patch("trl.generation.vllm_generation.VLLMClient", Client)
        patched.start()
        self.addCleanup(patched.stop)
        host, port = server.server_address
        self.vllm = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": f"http://{host}:{port}"}

    def test_rollouts_of_a_server_are_paid_for_once_and_measured_from_the_weights_that_sampled_them(self):
        self.assertEqual(self.run_of(self.vllm), self.server.updates)

    def run_of(self, vllm: dict) -> int:
        """A run whose rollouts the server samples; its number of updates."""
        settings = {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}
        more = {"per_device_train_batch_size": 16, "learning_rate": 1e-3, **vllm}
        spy, judge = trainer(
            self.folder, "pilot-commit", {"steps": 8, "settings": settings}, max_steps=8, **more
        )
        ratios, original = [], type(spy)._generate_and_score_completions

        def watched(inputs):
            output = original(spy, inputs)
            if spy.batches[-1]:
                for row, ratio in zip(
                    spy.batches[-1].rollouts, output["importance_sampling_ratio"], strict=False
                ):
                    ratios.append((row.age > 0, (ratio - 1).abs().max().item()))
            return output

        spy._generate_and_score_completions = watched
        spy.train()
        spent = spy.allocator.spent
        self.assertEqual((judge.rollouts, judge.tokens), (spent["run_rollouts"], spent["run_tokens"]))
        self.assertEqual(judge.wrong_prompts, 0)
        program("replay", Path(self.folder) / "record", "pilot-commit")
        # It samples as the trainer computes: what TRL corrects for is nothing, for held rollouts too.
        self.assertTrue(any(late for late, _ in ratios), "none was ever held")
        self.assertLess(max(gap for _, gap in ratios), 1e-3)
        # The server had the new weights once for each batch.
        return spy.state.global_step

    def test_the_end_of_the_budget_is_the_end_of_the_training(self):
        spy, judge = trainer(self.folder, "uniform", {"budget": {"rollouts": 30}}, **self.vllm)
        spy.train()
        self.assertEqual((judge.rollouts, spy.allocator.over), (30, "the budget is spent"))


@unittest.skipUnless(os.environ.get("ALLOT_VLLM"), "no real vLLM here: ALLOT_VLLM names a program")
class Real(unittest.TestCase):
    def test_a_real_vllm(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.updates = scratch.name, 0
        # Untied: on a CPU vLLM does not put a tied head's new weights in.
        source, model = ROOT / "tests/cases/models/tiny-qwen3-untied-sharded", Path(self.folder) / "model"
        AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).save_pretrained(model)
        AutoTokenizer.from_pretrained(source).save_pretrained(model)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        options = "--dtype float32 --enforce-eager --max-model-len 256 --max-num-seqs 16 --host 127.0.0.1"
        options += f" --logprobs-mode processed_logprobs --max-logprobs -1 --port {port}"
        env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
        server = subprocess.Popen(
            [os.environ["ALLOT_VLLM"], "serve", model, *options.split()],
            env={**os.environ, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        test = self

        class Client(VLLMClient):
            def init_communicator(self, device=0):
                pass

            def update_named_params(self, metadata, named_params):
                test.updates += 1
                weights = {name: weight.detach().clone() for name, weight in named_params}
                save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
                self._post(f"{url}/collective_rpc", json={"method": "reload_weights"})

        for module in ("generation.vllm_client", "generation.vllm_generation"):
            patched = patch(f"trl.{module}.is_vllm_available", return_value=True)
            patched.start()
            self.addCleanup(patched.stop)
        more = {
            "use_vllm": True,
            "vllm_mode": "server",
            "vllm_server_base_url": url,
            "vllm_server_timeout": 300,
        }
        with patch("trl.generation.vllm_generation.VLLMClient", Client), patch("test_trl.MODEL", model):
            self.assertEqual(Vllm.run_of(self, more), self.updates)


if __name__ == "__main__":
    unittest.main()
