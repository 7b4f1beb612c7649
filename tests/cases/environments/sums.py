"""A task set of verifiers: sums of two digits, with a reward for the answer and one for being short."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        assert trace.last_reply != "raise", "this is asked to fail"
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 4)

    @vf.metric
    async def length(self, trace) -> float:
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    least: int = 0


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for a in range(self.config.least, 10):
            for b in range(10):
                yield SumTask(SumData(prompt=f"{a}+{b}=", answer=str(a + b)), self.config.task)


__all__ = ["Sums"]
