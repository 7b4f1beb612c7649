"""Task sets of verifiers as environments: its environment server, and a client of it for the trainer.

Called with a description in JSON, it speaks lines of JSON with an id. `probe` tells with which tokens the first requests of
some tasks begin. `begin` plays an episode, whose model is at an address, and is answered by the episode's rewards. The server
and the client are verifiers' own, in one process, and speak by a socket in a folder that only this user can read."""

import asyncio
import importlib.machinery
import importlib.metadata as packages
import json
import math
import os
import platform
import re
import sys
import tempfile
import types

SAID, CALLED = "\u2063said\u2063", "called-by-the-model"
OVER = "maximum context length"
POLICY = "policy"


def refuse(task, why):
    raise ValueError(f"{task} {why}")


def plugin(base, harness_config, extras):
    """A harness within this process: what the model says, its calls of tools, and their results, until it calls none."""
    import httpx
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
    from verifiers.v1.runtimes import ProgramResult

    client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    class AllotConfig(harness_config):
        id: str = "allot_loop"

    class AllotHarness(base[AllotConfig]):
        APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
            system, prompt = self.resolve_prompt(data)
            messages = [{"role": "system", "content": system}] if system else []
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += [message_to_wire(message) for message in prompt or []]
            async with extras.AsyncExitStack() as stack:
                servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
                tools, dispatch, connected = await connect_mcp({"mcpServers": servers}, stack)
                while True:
                    body = {"model": ctx.model, "messages": messages} | ({"tools": tools} if tools else {})
                    headers = {"Authorization": f"Bearer {secret}"}
                    reply = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
                    if reply.status_code == 400 and OVER in reply.text:
                        trace.stop("limit")
                    if reply.status_code != 200:
                        return ProgramResult(1, "", reply.text)
                    choice = reply.json()["choices"][0]
                    messages.append(choice["message"])
                    if choice["finish_reason"] == "length":
                        trace.stop("limit")
                        return ProgramResult(0, "", "")
                    calls = choice["message"].get("tool_calls") or []
                    for call in calls:
                        said = await result(call["function"], connected, dispatch)
                        messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
                    if not calls:
                        return ProgramResult(0, "", "")

    async def result(call, connected, dispatch):
        try:
            arguments = json.loads(call["arguments"] or "{}")
        except json.JSONDecodeError as e:
            return f"error: invalid JSON in tool arguments ({e}); resend the call with valid JSON"
        if not isinstance(arguments, dict):
            return f"error: tool arguments must be a JSON object, got {type(arguments).__name__}"
        if call["name"] not in dispatch:
            return f"error: unknown tool {call['name']!r}"
        return await call_mcp(connected, dispatch, call["name"], arguments)

    return AllotHarness


def called(text, form):
    """What a turn says beside its calls of tools, and the calls: none if one is malformed, as in TRL."""
    try:
        if form == "bare":
            call = json.loads(text)
            return "", [(call["name"], call.get("parameters", call.get("arguments", {})), text)]
        blocks = re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL)
        beside = re.sub(r"<tool_call>.*?</tool_call>", "", text, flags=re.DOTALL).strip()
        if form == "json":
            read = [json.loads(block) for block in blocks]
            return beside, [(call["name"], call["arguments"], block) for call, block in zip(read, blocks)]
        calls = []
        for block in blocks:
            name, inside = re.fullmatch(r"<function=([^>]+)>(.*)</function>", block, re.DOTALL).groups()
            given = re.findall(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", inside, re.DOTALL)
            calls.append((name, {key: value_of(value) for key, value in given}, block))
        return beside, calls
    except (ValueError, KeyError, TypeError, AttributeError):
        return text, []


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def renderer(form):
    """A renderer for any chat template, and for calls of tools in one of three forms. Unlike the default one of `renderers` it
    goes on after a turn of the model without reading that turn's tokens again: the template is rendered with a turn that
    stands for it."""
    from renderers.base import ParsedResponse, ParsedToolCall, RenderedTokens
    from renderers.configs import DefaultRendererConfig
    from renderers.default import DefaultRenderer

    class Renderer(DefaultRenderer):
        config_class = DefaultRendererConfig
        supports_tools = form is not None

        def parse_response(self, token_ids, *, tools=None, prompt_ids=None):
            # The default one encodes words of other templates, which not every tokenizer can.
            ends = self.get_stop_token_ids()
            text = self._tokenizer.decode([token for token in token_ids if token not in ends])
            thought, thinks, after = text.partition("</think>")
            text = after if thinks else text
            beside, calls = called(text, form) if form and tools else (text, [])
            return ParsedResponse(
                content=beside, reasoning_content=thought.replace("<think>", "", 1) if thinks else None,
                tool_calls=[ParsedToolCall(raw=raw, name=name, arguments=given) for name, given, raw in calls])

        def bridge_to_next_turn(self, prompt, said, new, *, tools=None):
            if not said or not new or any(message["role"] == "assistant" for message in new):
                return None
            ends = [self._tokenizer.convert_ids_to_tokens(end) for end in self.get_stop_token_ids()]
            results = any(message["role"] == "tool" for message in new)
            call = {"id": "call_0", "type": "function", "function": {"name": CALLED, "arguments": {}}}
            turn = {"content": "", "tool_calls": [call]} if results else {"content": SAID}
            before = [{"role": "user", "content": "?"}, {"role": "assistant", **turn}]
            rendered = self._tokenizer.apply_chat_template(
                [*before, *new], tools=tools, tokenize=False, add_generation_prompt=True)
            _, mark, after = rendered.partition(CALLED if results else SAID)
            found = min(((after.find(end), end) for end in ends if end in after), default=None)
            if not mark or results and found is None:
                return None
            ids = [*prompt, *said]
            if found is not None and (results or found[0] == 0):
                after = after[found[0] + len(found[1]):]
                if said[-1] not in self.get_stop_token_ids():
                    ids.append(self._tokenizer.convert_tokens_to_ids(found[1]))
            more = self._tokenizer.encode(after, add_special_tokens=False)
            return RenderedTokens(
                token_ids=[*ids, *more], message_indices=[-1] * len(ids) + [len(new) - 1] * len(more),
                message_roles=[message["role"] for message in new])

    return Renderer


class Server:
    """The environment server of a task set, and a client of it."""

    def __init__(self, asked, about, folder):
        from verifiers.v1.configs.agent import agent_config_fields
        from verifiers.v1.serve import EnvClient, EnvServer
        from verifiers.v1.utils.loaders import env_config_type, resolve_env_config

        self.task = asked["task"]
        taskset = {"id": self.task, **asked["settings"]}
        seats = agent_config_fields(env_config_type(self.task)())
        config = dict(about["env"])
        for seat, declared in seats.items():
            given = dict(config.get(seat, {}))
            given.setdefault("runtime", {"type": "subprocess"})
            if declared.harness is None:
                given.setdefault("harness", about["harness"])
            config[seat] = {"max_turns": about["max_turns"], **given}
        try:
            self.config = resolve_env_config({**config, "taskset": taskset})
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            refuse(self.task, f"can't be loaded: {e}")
        ours = [seat for seat, agent in agent_config_fields(self.config).items() if agent.client is None]
        if len(ours) > 1:
            refuse(self.task, f"has several agents without a client of their own: {', '.join(ours)}; one can be trained")
        self.server = EnvServer(self.config, f"ipc://{folder}/socket")
        self.client = EnvClient(self.server.address)
        self.serving = asyncio.ensure_future(self.server.run())

    def check(self, data):
        kind = self.server.task_cls
        harnesses = self.server.env._harnesses.values()
        if kind.NEEDS_CONTAINER or data.get("image"):
            refuse(self.task, "needs a container")
        for harness in harnesses:
            if harness.NEEDS_CONTAINER:
                refuse(self.task, f"is played by the harness {harness.config.id}, which needs a container")

    async def run(self, data, client, model, sampling):
        from verifiers.v1.configs.client import TrainClientConfig
        from verifiers.v1.types import SamplingConfig

        return await self.served(self.client.run(
            task_data=data, client=TrainClientConfig(**client), model=model, sampling=SamplingConfig(**sampling)))

    async def served(self, asked):
        """What the server replies, unless it ends first."""
        reply = asyncio.ensure_future(asked)
        try:
            await asyncio.wait([reply, self.serving], return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                await self.serving
                raise RuntimeError("its environment server has ended")
            return await reply
        finally:
            # If this episode is cancelled, the server is told.
            reply.cancel()


def verdict(episode):
    """The rewards of the agent that was trained; its trace says how it stopped."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        raise RuntimeError("; ".join(f"{e.type}: {e.message}" for e in errors) or "the episode failed without a reason")
    (trace,) = [trace for trace in episode.traces if trace.agent.trainable]
    unscored = [name for name, reward in trace.rewards.items() if reward is None]
    if unscored or not trace.rewards:
        raise ValueError(f"no reward from {', '.join(unscored) or 'the task'}")
    for name, reward in trace.rewards.items():
        if not math.isfinite(reward.value):
            raise ValueError(f"the reward {name} is {reward.value}")
    return {"rewards": {part(name): reward.value for name, reward in trace.rewards.items()}, "stop": trace.stop_condition}


def part(name):
    """A name as a reward's part may have it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in name)[:64]


class Sidecar:
    def __init__(self, about, requests, out):
        self.about, self.requests, self.out = about, requests, out
        self.servers, self.episodes = {}, {}

    async def server(self, asked):
        key = json.dumps([asked["task"], asked["settings"]], sort_keys=True)
        if key not in self.servers:
            self.servers[key] = asyncio.ensure_future(self.started(asked))
        return await asyncio.shield(self.servers[key])

    async def started(self, asked):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(asked, self.about, folder)
            # Once they are connected, nothing needs the socket's name any more.
            await server.served(server.client.wait_for_server_startup(interval=0.1))
        return server

    def model(self, url, key):
        os.environ["ALLOT_KEY"] = key
        return {"base_url": url, "api_key_var": "ALLOT_KEY", "renderer": self.about["renderer"],
                "renderer_model_name": self.about["model"]}

    async def probe(self, asked):
        """The first request of each task, taken by an endpoint that answers none."""
        from aiohttp import web

        taken = []

        async def take(request):
            taken.append(await request.json())
            return web.json_response({"error": {"message": OVER}}, status=400)

        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/inference/v1/generate", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        server, first = await self.server(asked), []
        for data in asked["data"]:
            server.check(data)
            taken.clear()
            episode = await server.run(data, self.model(f"http://127.0.0.1:{port}/v1", ""), POLICY, {})
            if not taken:
                errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
                why = "; ".join(f"{e.type}: {e.message}" for e in errors)
                refuse(asked["task"], f"asks its model nothing: {why or 'its episode ends at once'}")
            first.append(taken[0]["token_ids"])
        await runner.cleanup()
        return {"first": first, "stops": taken[0]["sampling_params"]["stop_token_ids"]}

    async def begin(self, asked):
        data = asked["data"]
        if self.about["seed"]:
            *path, last = self.about["seed"].split(".")
            where = data = json.loads(json.dumps(data))
            for step in path:
                where = where[step]
            where[last] = asked["seed"]
        # Nothing else of sampling: the run draws tokens as it is configured.
        sampling = {"session": asked["session"]}
        server = await self.server(asked)
        episode = await server.run(data, self.model(asked["url"], asked["key"]), POLICY, sampling)
        return verdict(episode)

    async def answer(self, asked):
        said = {"id": asked["id"]}
        try:
            if asked["do"] == "cancel":
                if episode := self.episodes.get(asked["session"]):
                    episode.cancel()
            else:
                said |= await getattr(self, asked["do"])(asked)
        except asyncio.CancelledError:
            said["error"] = "the episode was cancelled"
        except Exception as e:
            said["error"] = str(e) if isinstance(e, ValueError) else f"{type(e).__name__}: {e}"
        print(json.dumps(said), file=self.out, flush=True)

    async def serve(self, about):
        print(json.dumps(about), file=self.out, flush=True)
        lines = asyncio.StreamReader(limit=1 << 30)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), self.requests)
        while line := await lines.readline():
            asked = json.loads(line)
            task = asyncio.ensure_future(self.answer(asked))
            if asked["do"] == "begin":
                self.episodes[asked["session"]] = task
                task.add_done_callback(lambda _, session=asked["session"]: self.episodes.pop(session, None))
        os._exit(0)


def main():
    # What a task prints is no answer, and what it reads is no request, in its own processes, too.
    out, requests = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    try:
        version = packages.version("verifiers")
    except packages.PackageNotFoundError:
        raise SystemExit(f"there is no package verifiers in {sys.executable}") from None
    import contextlib

    import verifiers.v1 as vf
    from verifiers.v1.configs.harness import HarnessConfig

    about = json.loads(sys.argv[1])
    module = types.ModuleType("allot_loop")
    module.__spec__ = importlib.machinery.ModuleSpec("allot_loop", None)
    module.__all__ = ["AllotHarness"]
    module.AllotHarness, module.Renderer = plugin(vf.Harness, HarnessConfig, contextlib), renderer(about["calls"])
    sys.modules["allot_loop"] = module
    about["renderer"] = about["renderer"] or {
        "name": "custom", "import_path": "allot_loop.Renderer"}
    about["harness"] = about["harness"] or {"id": "allot_loop"}
    name = f"verifiers {version}, renderers {packages.version('renderers')}"
    asyncio.run(Sidecar(about, requests, out).serve({"name": name, "version": f"Python {platform.python_version()}"}))


main()
