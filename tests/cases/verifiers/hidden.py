"""The hidden number of the task `guess` as a task set of verifiers with an environment of its own: the shipped model plays it."""

import verifiers.v1 as vf


class HiddenData(vf.TaskData):
    low: int
    high: int
    calls: int
    seed: int = 0


class HiddenTask(vf.Task[HiddenData]):
    pass


class HiddenConfig(vf.TasksetConfig):
    games: int = 120


class HiddenEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class HiddenEnv(vf.Env[HiddenEnvConfig]):
    async def run(self, task, agents):
        low, high, calls = task.data.low, task.data.high, task.data.calls
        number, right = low + task.data.seed % (high - low + 1), False
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                said = segment.last_reply
                asked = int(said[1:]) if said[1:].isdecimal() else None
                if said[:1] == "!" or calls == 0:
                    right = said[:1] == "!" and asked == number
                    break
                if said[:1] == "?" and asked is not None and low <= asked < high:
                    low, high = (low, asked) if number <= asked else (asked + 1, high)
                calls -= 1
                segment = await interaction.turn(f"{low}-{high}*{calls}:")
        interaction.trace.record_reward("found", float(right))
        interaction.trace.record_reward("quick", float(right) * calls, 0.0)


class Hidden(vf.Taskset[HiddenTask, HiddenConfig]):
    def load(self):
        for i in range(self.config.games):
            low, size, calls = 10 + i % 60, 4 + i % 9, 2 + i % 3
            high = low + size - 1
            prompt = f"{low}-{high}*{calls}:"
            yield HiddenTask(HiddenData(prompt=prompt, low=low, high=high, calls=calls), self.config.task)


__all__ = ["Hidden", "HiddenEnv"]
