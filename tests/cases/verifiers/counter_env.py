"""An environment of OpenEnv as a local server: a counter that a model raises to a target. Prints its port."""

import socket
import sys

import uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server import create_fastapi_app


class Raise(Action):
    by: int


class Count(Observation):
    count: int


class Counter(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.count, self.target = 0, 5

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.count = (seed or 0) % 2
        return Count(count=self.count, done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        self.count += action.by
        return Count(count=self.count, done=self.count >= self.target, reward=float(self.count == self.target))

    @property
    def state(self):
        return State(episode_id=None, step_count=0)


app = create_fastapi_app(Counter, Raise, Count, max_concurrent_envs=64)
door = socket.socket()
door.bind(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[door])
