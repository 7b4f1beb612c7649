"""A task set of verifiers with an environment of its own: a number to find in a few rounds. Some rounds do what they must not."""

import asyncio
import os

import verifiers.v1 as vf


class RoundsData(vf.TaskData):
    number: int
    then: str = ""
    start: dict = {}


class RoundsTask(vf.Task[RoundsData]):
    pass


class RoundsConfig(vf.TasksetConfig):
    then: str = ""


class RoundsEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class RoundsEnv(vf.Env[RoundsEnvConfig]):
    async def run(self, task, agents):
        data, reward = task.data, 0.0
        if data.then == "silent":
            raise RuntimeError("it has nothing to ask")
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                said = segment.last_reply
                if said == str(data.number):
                    reward = 1.0
                    break
                if data.then == "raise":
                    raise RuntimeError("this is asked to fail")
                if data.then == "hang":
                    await asyncio.sleep(3600)
                if data.then == "exit":
                    os._exit(3)
                if data.then == "nan":
                    reward = float("nan")
                    break
                hint = "higher" if said.isdigit() and int(said) < data.number else "lower"
                if data.then == "flood":
                    hint *= 2_000_000
                if data.then == "start":
                    hint = str(data.start)
                segment = await interaction.turn(hint)
        interaction.trace.record_reward("found", reward)


class Rounds(vf.Taskset[RoundsTask, RoundsConfig]):
    def load(self):
        for number in range(1, 9):
            data = RoundsData(prompt="Find a number from 1 to 8.", number=number, then=self.config.then)
            yield RoundsTask(data, self.config.task)


__all__ = ["Rounds", "RoundsEnv"]
