"""Environments of TRL's form, after those of its documentation, in other words; and ones that do what they must not."""

import asyncio
import os
import subprocess
import sys
import time


class Counter:
    """A number that a tool raises, as in the documentation's first example."""

    def reset(self, target, **kwargs) -> str | None:
        self.count, self.target = 0, target

    def increment(self, step: int) -> int:
        """
        Adds to the counter.

        Args:
            step: How much to add.

        Returns:
            The counter's value.
        """
        self.count += step
        return self.count

    def get_reward(self) -> float:
        return 1.0 if self.count == self.target else 0.0


class Words:
    """A word to find, letter by letter: `reset` says how the game begins, and a tool ends it."""

    def reset(self, word, **kwargs):
        self.word, self.tries, self.over = word, 0, False
        return f"\nThe word has {len(word)} letters."

    def guess(self, word: str) -> str:
        """
        Guesses the word.

        Args:
            word: The word to guess.

        Returns:
            A mark for each letter: G if it is right, - if not.
        """
        if self.over:
            raise ValueError("Game over.")
        self.tries += 1
        self.over = word == self.word
        return "".join("G" if own == other else "-" for own, other in zip(word, self.word))

    def get_reward(self):
        return 1 / self.tries if self.over else None


class Shop(Counter):
    """Async tools beside one that is not, and its own seed: for a data set of several environments."""

    def reset(self, seed, prompt, **kwargs):
        self.count, self.target, self.seed = 0, 2, seed
        assert "environment" not in kwargs and prompt[-1]["role"] == "user", kwargs

    async def price(self, item: str, amount: int = 1) -> dict:
        """Says what something costs.

        Args:
            item: The item.
            amount: How many of it.
        """
        await asyncio.sleep(0.001 * amount)
        return {"item": item, "price": len(item) * amount}

    async def stolen(self) -> None:
        """Fails."""
        raise RuntimeError("there is none")


class Hostile(Counter):
    """What an environment must not do."""

    def do(self, what: str) -> str:
        """Does something.

        Args:
            what: What to do.
        """
        self.what = what
        if what == "exit":
            os._exit(3)
        elif what == "hang":
            time.sleep(3600)
        elif what == "flood":
            return "spam " * 2_000_000
        elif what == "print":
            print('{"id": 1, "reward": 9.0}')
        elif what == "shell":
            os.system("echo hello")
            subprocess.run(["cat"], check=True)
        elif what == "leave":
            sys.exit(3)
        elif what == "process":
            return str(os.getpid())
        elif what == "half":
            return "\ud800"
        elif what == "image":
            return [{"type": "image", "image": 1}]
        elif what == "text":
            return [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
        return "done"

    def get_reward(self):
        return {"nan": float("nan"), "word": "good"}.get(self.what, 0.5)


class Saying(Counter):
    def reset(self, said, **kwargs):
        return said


class Refusing(Counter):
    def reset(self, **kwargs):
        raise KeyError("there is no such table")


class Undescribed(Counter):
    def look(self, at):
        return at


class Unrewarded:
    def reset(self, **kwargs):
        return None


class Hidden:
    """The hidden number of the task `guess`, as a class: the shipped model plays it."""

    def reset(self, low, high, calls, seed, **kwargs):
        self.low, self.high, self.calls = low, high, calls
        self.number, self.right, self.over = low + seed % (high - low + 1), False, False

    def compare(self, number: int) -> str:
        """Compares the hidden number.

        Args:
            number: The number to compare it with.
        """
        if self.over or self.calls == 0:
            return "*"
        if self.low <= number < self.high:
            self.low, self.high = (self.low, number) if self.number <= number else (number + 1, self.high)
        self.calls -= 1
        return f"{self.low}-{self.high}*{self.calls}:"

    def answer(self, number: int) -> str:
        """Answers.

        Args:
            number: The hidden number.
        """
        self.right, self.over = self.right or (not self.over and number == self.number), True
        return "*"

    def get_reward(self):
        return float(self.right)
