"""Task sets of verifiers as environments: its environment server, and a client of it for the trainer.

Called with a description in JSON, it speaks lines of JSON with an id. `probe` tells with which tokens the first requests of
some tasks begin. `begin` plays an episode, whose model is at an address, and is answered by the episode's rewards. The server
and the client are verifiers' own, in one process, and speak by a socket in a folder that only this user can read."""

import asyncio
import datetime
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


def called(text, form, tools):
    """What a turn says beside its calls of tools, and the calls: none if one is malformed, as in TRL."""
    try:
        if form == "bare":
            call = json.loads(text)
            return "", [(named(call), call.get("parameters", call.get("arguments")) or {}, text)]
        blocks = re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL)
        if len(blocks) != text.count("<tool_call>"):
            return text, []
        beside = re.sub(r"<tool_call>.*?</tool_call>", "", text, flags=re.DOTALL).strip()
        if form == "json":
            read = [json.loads(block) for block in blocks]
            return beside, [(named(call), call.get("arguments") or {}, block) for call, block in zip(read, blocks)]
        calls = []
        for block in blocks:
            name, inside = re.fullmatch(r"<function=([^>]+)>(.*)</function>", block, re.DOTALL).groups()
            given = re.findall(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", inside, re.DOTALL)
            kinds = {key: kind.get("type") for key, kind in properties(tools, name).items()}
            values = {key: value if kinds.get(key) == "string" else value_of(value) for key, value in given}
            calls.append((name, values, block))
        return beside, calls
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text, []


def named(call):
    if not isinstance(call["name"], str):
        raise TypeError("a name is a text")
    return call["name"]


def properties(tools, name):
    functions = [tool.get("function", tool) for tool in tools]
    return next((one["parameters"].get("properties", {}) for one in functions if one["name"] == name), {})


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def renderer(about):
    """A renderer for any chat template, and for calls of tools in one of three forms. Unlike the default one of `renderers` it
    goes on after a turn of the model without reading that turn's tokens again: the template is rendered with a turn that
    stands for it."""
    from renderers.base import ParsedResponse, ParsedToolCall, RenderedTokens
    from renderers.configs import DefaultRendererConfig
    from renderers.default import DefaultRenderer

    form, given = about["calls"], {}
    if about["date"]:
        # As of the run, not of today.
        given["strftime_now"] = datetime.date.fromisoformat(about["date"]).strftime

    class Renderer(DefaultRenderer):
        config_class = DefaultRendererConfig
        supports_tools = form is not None

        def get_stop_token_ids(self):
            return about["stops"]

        def _apply(self, messages, *, tools=None, add_generation_prompt=False):
            return self._tokenizer.encode(
                self.text(messages, tools, add_generation_prompt), add_special_tokens=False)

        def text(self, messages, tools, before_a_turn):
            messages = [read_arguments(dict(message)) for message in messages]
            return self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=before_a_turn, **given)

        def parse_response(self, token_ids, *, tools=None, prompt_ids=None):
            # The default one encodes words of other templates, which not every tokenizer can.
            ends = self.get_stop_token_ids()
            text = self._tokenizer.decode([token for token in token_ids if token not in ends])
            for stop in about["texts"]:
                text = text.partition(stop)[0]
            thought, thinks, after = text.partition("</think>")
            if not thinks and text.lstrip().startswith("<think>"):
                return ParsedResponse(content="", reasoning_content=text, reasoning_complete=False)
            text = after if thinks else text
            beside, calls = called(text, form, tools) if form and tools else (text, [])
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
            rendered = self.text([*before, *new], tools, True)
            _, mark, after = rendered.partition(CALLED if results else SAID)
            found = min(((after.find(end), end) for end in ends if end in after), default=None)
            if not mark or results and found is None:
                return None
            ids = [*prompt, *said]
            if found is not None and (results or not after[:found[0]].strip()):
                after = after[found[0] + len(found[1]):]
                if said[-1] not in self.get_stop_token_ids():
                    ids.append(self._tokenizer.convert_tokens_to_ids(found[1]))
            more = self._tokenizer.encode(after, add_special_tokens=False)
            return RenderedTokens(
                token_ids=[*ids, *more], message_indices=[-1] * len(ids) + [len(new) - 1] * len(more),
                message_roles=[message["role"] for message in new])

    return Renderer


def read_arguments(message):
    """A message whose calls have their arguments as objects, which templates go through."""
    if message.get("tool_calls"):
        calls = [{**call, "function": dict(call["function"])} for call in message["tool_calls"]]
        for call in calls:
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = value_of(call["function"]["arguments"])
        message["tool_calls"] = calls
    return message


class Server:
    """The environment server of a task set, and a client of it."""

    def __init__(self, asked, about, folder):
        from verifiers.v1.configs.agent import agent_config_fields
        from verifiers.v1.serve import EnvClient, EnvServer
        from verifiers.v1.utils.loaders import default_harness_id, env_config_type, resolve_env_config

        self.task, self.seed = asked["task"], about["seed"]
        taskset = {"id": self.task, **asked["settings"]}
        try:
            seats = agent_config_fields(env_config_type(self.task)())
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            refuse(self.task, f"can't be loaded: {e}")
        config = dict(about["env"])
        for seat, declared in seats.items():
            given = config[seat] = dict(config.get(seat, {}))
            if "runtime" not in declared.model_fields_set:
                given.setdefault("runtime", {"type": "subprocess"})
            if declared.harness is None and default_harness_id(self.task) == "bash":
                given.setdefault("harness", about["harness"])
            if given.get("client") or declared.client:
                # The name of an episode is no affair of another model's server.
                given["sampling"] = {**given.get("sampling", {}), "session": None}
            else:
                given.setdefault("max_turns", min(declared.max_turns or about["max_turns"], about["max_turns"]))
        try:
            self.config = resolve_env_config({**config, "taskset": taskset})
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            refuse(self.task, f"can't be loaded: {e}")
        ours = [seat for seat, agent in agent_config_fields(self.config).items() if agent.client is None]
        if len(ours) > 1:
            refuse(self.task, f"has several agents without a client of their own: {', '.join(ours)}; one can be trained")
        if not ours:
            refuse(self.task, "has a client for each of its agents: none is trained")
        self.seat = ours[0]
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

    def seeded(self, data, seed):
        """A task's data with the seed of its start, if they have a field for it."""
        if not self.seed:
            return data
        *path, last = self.seed.split(".")
        data = where = json.loads(json.dumps(data))
        for step in path:
            where = where.get(step) if isinstance(where, dict) else None
        if not isinstance(where, dict) or not path and last not in self.server.data_cls.model_fields:
            refuse(self.task, f"has no field {self.seed} in its tasks' data, for the seed")
        where[last] = seed
        return data

    def verdict(self, episode):
        """The rewards of the agent that was trained; its trace says how it stopped."""
        if not episode.ok:
            raise RuntimeError(troubles(episode) or "the episode failed without a reason")
        own = [trace for trace in episode.traces if trace.agent.name == self.seat] or episode.traces
        if len(own) != 1:
            raise ValueError(f"the agent {self.seat} has played {len(own)} times in one episode; once can be trained on")
        rewards = own[0].rewards
        unscored = [name for name, reward in rewards.items() if reward is None]
        if unscored or not rewards:
            raise ValueError(f"no reward from {', '.join(unscored) or 'the task'}")
        for name, reward in rewards.items():
            if not math.isfinite(reward.value):
                raise ValueError(f"the reward {name} is {reward.value}")
        parts = {part(name): reward.value for name, reward in rewards.items()}
        if len(parts) != len(rewards):
            raise ValueError(f"two rewards have one name as parts: {', '.join(rewards)}")
        return {"rewards": parts, "stop": own[0].stop_condition}

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


def troubles(episode):
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    return "; ".join(f"{e.type}: {e.message}" for e in errors)


def part(name):
    """A name as a reward's part may have it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in name)[:64]


class Sidecar:
    def __init__(self, about, requests, out):
        self.about, self.requests, self.out = about, requests, out
        self.servers, self.episodes = {}, {}

    async def server(self, asked):
        key = json.dumps([asked["task"], asked["settings"]], sort_keys=True)
        known = self.servers.get(key)
        if known is None or known.done() and (known.exception() or known.result().serving.done()):
            self.servers[key] = asyncio.ensure_future(self.started(asked))
        return await asyncio.shield(self.servers[key])

    async def started(self, asked):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(asked, self.about, folder)
            # Once they are connected, nothing needs the socket's name any more.
            await server.served(server.client.wait_for_server_startup(interval=0.1))
        return server

    def model(self, url, key):
        # By its name, verifiers keeps it from programs that the model runs.
        os.environ["ALLOT_API_KEY"] = key
        return {"base_url": url, "api_key_var": "ALLOT_API_KEY", "renderer": self.about["renderer"],
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
        for seed, data in enumerate(asked["data"]):
            server.check(data)
            taken.clear()
            episode = await server.run(server.seeded(data, seed), self.model(f"http://127.0.0.1:{port}/v1", ""), POLICY, {})
            if not taken:
                refuse(asked["task"], f"asks its model nothing: {troubles(episode) or 'its episode ends at once'}")
            first.append(taken[0]["token_ids"])
        await runner.cleanup()
        return {"first": first, "stops": taken[0]["sampling_params"]["stop_token_ids"]}

    async def begin(self, asked):
        # Nothing else of sampling: the run draws tokens as it is configured.
        sampling = {"session": asked["session"]}
        server = await self.server(asked)
        data = server.seeded(asked["data"], asked["seed"])
        episode = await server.run(data, self.model(asked["url"], asked["key"]), POLICY, sampling)
        return server.verdict(episode)

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
        # Before it counts as started: loading may take longer than a turn.
        for asked in self.about["sets"]:
            await self.server(asked)
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
    # Servers of tools are started in other folders, and the endpoint is behind no proxy.
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in [".", *paths])
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import contextlib

    import verifiers.v1 as vf
    from verifiers.v1.configs.harness import HarnessConfig

    about = json.loads(sys.argv[1])
    module = types.ModuleType("allot_loop")
    module.__spec__ = importlib.machinery.ModuleSpec("allot_loop", None)
    module.__all__ = ["AllotHarness"]
    module.AllotHarness, module.Renderer = plugin(vf.Harness, HarnessConfig, contextlib), renderer(about)
    sys.modules["allot_loop"] = module
    about["renderer"] = about["renderer"] or {
        "name": "custom", "import_path": "allot_loop.Renderer"}
    about["harness"] = about["harness"] or {"id": "allot_loop"}
    name = f"verifiers {version}, renderers {packages.version('renderers')}"
    asyncio.run(Sidecar(about, requests, out).serve({"name": name, "version": f"Python {platform.python_version()}"}))


main()
