"""A task set of verifiers whose agent does not keep to one history: it asks a helper in between, and in the end goes on from a summary
alone. The shipped model plays it: a range of numbers, the calls that are left, and a number with `!` as the answer."""

import httpx
import verifiers.v1 as vf
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult


class ForgetsData(vf.TaskData):
    low: int


class ForgetsTask(vf.Task[ForgetsData]):
    @vf.reward(weight=1.0)
    async def even(self, trace) -> float:
        """Whether the agent's replies have an even sum, so that rewards of a model that plays well differ."""
        said = "".join(node.message.content or "" for node in trace.nodes if node.sampled)
        return float(sum(map(int, filter(str.isdecimal, said))) % 2 == 0)


class ForgetsConfig(vf.TasksetConfig):
    tasks: int = 40


class Forgets(vf.Taskset[ForgetsTask, ForgetsConfig]):
    def load(self):
        for low in range(10, 10 + self.config.tasks):
            yield ForgetsTask(ForgetsData(prompt=f"{low}-{low + 3}*2:", low=low), self.config.task)


class ForgetsHarnessConfig(HarnessConfig):
    id: str = "forgets"
    again: bool = False
    """Whether it asks the first question twice, as if the reply had been lost."""


class ForgetsHarness(vf.Harness[ForgetsHarnessConfig]):
    EXECUTES_CODE = NEEDS_CONTAINER = False
    SUPPORTS_MCP = True

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        low = data.low
        async with httpx.AsyncClient(timeout=None) as client:

            async def asked(messages):
                reply = await client.post(
                    f"{endpoint}/chat/completions",
                    json={"model": ctx.model, "messages": messages},
                    headers={"Authorization": f"Bearer {secret}"},
                )
                if reply.status_code != 200:
                    trace.stop("limit")
                    raise EOFError
                return [*messages, reply.json()["choices"][0]["message"]]

            def user(text):
                return {"role": "user", "content": text}

            try:
                main = await asked([user(f"{low}-{low + 3}*2:")])
                if self.config.again:
                    main = await asked(main[:1])
                helper = await asked([user(f"{low}-{low + 1}*1:")])
                main = await asked([*main, user(f"{low}-{low + 1}*1:")])
                await asked([*helper, user(f"{low}-{low}*0:")])
                await asked([user(f"{low + 1}-{low + 1}*0:")])
            except EOFError:
                pass
        return ProgramResult(0, "", "")


__all__ = ["Forgets", "ForgetsHarness"]
