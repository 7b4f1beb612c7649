"""A task set of verifiers whose environment has two agents that would both be trained."""

import verifiers.v1 as vf


class ContestEnvConfig(vf.EnvConfig):
    one: vf.AgentConfig = vf.AgentConfig()
    other: vf.AgentConfig = vf.AgentConfig()


class ContestEnv(vf.Env[ContestEnvConfig]):
    async def run(self, task, agents):
        await agents.one.run(task)
        await agents.other.run(task)


class Contest(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self):
        yield vf.Task(vf.TaskData(prompt="Who is first?"), self.config.task)


__all__ = ["Contest", "ContestEnv"]
