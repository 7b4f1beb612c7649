"""A task set of verifiers with a tool: prices on a shelf, asked for one by one, and their sum as the answer."""

import verifiers.v1 as vf

PRICES = {"tea": 3, "salt": 1, "rice": 2}


class Shelf(vf.Toolset[vf.SharedToolsetConfig]):
    TOOL_PREFIX = "shelf"

    @vf.tool
    def price(self, item: str) -> str:
        """The price of an item."""
        return str(PRICES[item]) if item in PRICES else "not there"


class ShelfData(vf.TaskData):
    items: list[str]


class ShelfTask(vf.Task[ShelfData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def sum(self, trace) -> float:
        return float((trace.last_reply or "").strip() == str(sum(PRICES[item] for item in self.data.items)))


class ShelvesConfig(vf.TasksetConfig):
    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()


class Shelves(vf.Taskset[ShelfTask, ShelvesConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Shelf(config.tools)]

    def load(self):
        for items in (["tea"], ["tea", "rice"], ["salt", "salt"]):
            prompt = f"What do {' and '.join(items)} cost together?"
            yield ShelfTask(ShelfData(prompt=prompt, system_prompt="You mind a shop.", items=items), self.config.task)


__all__ = ["Shelves"]

if __name__ == "__main__":
    Shelf.run()
