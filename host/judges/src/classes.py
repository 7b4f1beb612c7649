"""The sidecar of environment `class`: objects of Python classes of TRL's form, in a file of the user's.

A class has `reset`, which gets a prompt's columns and returns None or a text; public methods, which are tools; and
`get_reward`. Objects are used again for other episodes, as in TRL. Reads a line of JSON for each request and answers by one:

    {"id":1,"do":"begin","slot":0,"key":null,"row":{...},"seed":9}    {"id":1,"said":"a text, or null"}
    {"id":2,"do":"call","slot":0,"calls":[{"name":..,"arguments":..}]}    {"id":2,"said":[["tool","text"]]}
    {"id":3,"do":"reward","slot":0}    {"id":3,"reward":0.5}, or null

or by {"id":1,"error":"why not"}. Called with the file, the number of threads, the most characters of a text, and the
classes' names by key, as JSON."""

import asyncio
import importlib.util
import inspect
import json
import math
import os
import platform
import sys
import threading
from concurrent.futures import ThreadPoolExecutor


def load(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Kind:
    """What one name in the file makes: its objects that wait for an episode, and their tools."""

    def __init__(self, module, path, name):
        self.make = getattr(module, name, None)
        if not callable(self.make):
            raise SystemExit(f"{path} has no class {name}")
        first = self.make()
        members = dict(inspect.getmembers(type(first), predicate=inspect.isfunction))
        for needed in ("reset", "get_reward"):
            if needed not in members:
                raise SystemExit(f"{name} of {path} has no method {needed}")
        public = [own for own in members if not own.startswith("_") and own not in ("reset", "get_reward")]
        self.waiting, self.tools = [first], {own: schema(name, getattr(first, own)) for own in public}
        # TRL passes columns only; a class that names `seed` gets the group's.
        self.takes_seed = "seed" in inspect.signature(first.reset).parameters

    def taken(self):
        try:
            return self.waiting.pop()
        except IndexError:
            return self.make()


def schema(name, method):
    try:
        from transformers.utils import get_json_schema
    except ImportError:
        raise SystemExit("transformers is not installed; it describes the tools to the model") from None
    try:
        return get_json_schema(method)
    except Exception as e:
        raise SystemExit(f"{name}.{method.__name__} can't be a tool: {e}") from None


LOOP = asyncio.new_event_loop()
# The most characters of a text, given by the caller.
LONGEST = 0


def awaited(said):
    """The result of a call, which may be async. All async code runs in one loop, in a thread of its own."""
    if not inspect.isawaitable(said):
        return said

    async def wait():
        return await said

    return asyncio.run_coroutine_threadsafe(wait(), LOOP).result()


def types_of(described):
    """The JSON types that a parameter's schema allows, in its order."""
    declared = described.get("type")
    types = [declared] if isinstance(declared, str) else list(declared or [])
    for union in ("anyOf", "oneOf"):
        for choice in described.get(union) or []:
            types += types_of(choice)
    return types + ["null"] if described.get("nullable") else types


def cast(text, types):
    """A text as the first of these types that it can be read as, as transformers reads arguments."""
    for wanted in types:
        try:
            if wanted in ("integer", "number"):
                number = float(text)
                if math.isfinite(number) and number.is_integer() and (wanted == "integer" or "." not in text):
                    try:
                        return int(text)
                    except ValueError:
                        return int(number)
                if math.isfinite(number) and wanted == "number":
                    return number
            elif wanted == "boolean" and text.strip().lower() in ("true", "1", "false", "0"):
                return text.strip().lower() in ("true", "1")
            elif wanted == "null" and text.strip() in ("null", "None"):
                return None
            elif wanted in ("object", "array"):
                value = json.loads(text)
                if isinstance(value, dict if wanted == "object" else list):
                    return value
        except ValueError:
            pass
    return text


def arguments_of(described, arguments):
    """Arguments of a call, with texts that stand for other types as these."""
    if not isinstance(arguments, dict):
        return arguments
    known = described["function"]["parameters"].get("properties", {})
    fits = {key: types_of(known[key]) for key in arguments if key in known}
    is_text = {key for key, value in arguments.items() if key in fits and isinstance(value, str)}
    return {key: cast(value, fits[key]) if key in is_text else value for key, value in arguments.items()}


def as_text(what, said):
    """What a method returned, as a text. Lists of parts may have texts only."""
    if isinstance(said, list) and said and all(isinstance(part, dict) and "type" in part for part in said):
        other = next((part["type"] for part in said if part["type"] != "text"), None)
        if other is not None:
            raise ValueError(f"{what} returned a part of type {other!r}; only texts are read")
        said = "".join(str(part["text"]) for part in said)
    return clean(str(said))


def clean(text):
    """A text as it can be written, up to what is more than any episode reads: half of a surrogate pair is no character."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")


def failure(e):
    """An exception as a text, whatever the exception does when it is asked for one."""
    try:
        return clean(f"{type(e).__name__}: {e}")
    except BaseException:
        return type(e).__name__


class Episode:
    """An object in its episode."""

    def __init__(self, kind, row, seed):
        self.kind, self.object = kind, kind.taken()
        try:
            self.first = self.reset({"seed": seed} | row if kind.takes_seed else row)
        except BaseException:
            self.end()
            raise

    def end(self):
        """Leaves the object to another episode."""
        self.kind.waiting.append(self.object)

    def reset(self, given):
        said = awaited(self.object.reset(**given))
        if not (said is None or isinstance(said, (str, list))):
            raise TypeError(f"reset returned {type(said).__name__}; expected None or a text")
        return None if said is None else as_text("reset", said)

    def call(self, calls):
        """The texts of calls of tools. Results of async tools come after the others, as in TRL."""
        done, later = [], []
        for call in calls:
            name = call["name"]
            try:
                if name not in self.kind.tools:
                    raise ValueError(f"Tool {name} not found.")
                method = getattr(self.object, name)
                arguments = arguments_of(self.kind.tools[name], call["arguments"])
                result = method(**arguments)
            except Exception as e:
                result = {"error": str(e)}
            (later if inspect.isawaitable(result) else done).append((name, result))

        async def all_of():
            return await asyncio.gather(*(result for _, result in later), return_exceptions=True)

        if later:
            told = asyncio.run_coroutine_threadsafe(all_of(), LOOP).result()
            failed = [{"error": str(one)} if isinstance(one, BaseException) else one for one in told]
            done += [(name, one) for (name, _), one in zip(later, failed)]
        return [[name, as_text(name, result)] for name, result in done]

    def reward(self):
        reward = awaited(self.object.get_reward())
        if reward is None:
            return None
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise TypeError(f"get_reward returned {reward!r}; expected a number or None") from None
        if not math.isfinite(number):
            raise ValueError(f"get_reward returned {number}")
        return number


class Served:
    """All episodes of this process, by slot."""

    def __init__(self, kinds, out):
        self.kinds, self.out, self.open, self.lock = kinds, out, {}, threading.Lock()

    def done(self, asked):
        slot = asked["slot"]
        if asked["do"] == "begin":
            # One whose last reply could not be used.
            if slot in self.open:
                self.open.pop(slot).end()
            self.open[slot] = Episode(self.kinds[asked["key"]], asked["row"], asked["seed"])
            return {"said": self.open[slot].first}
        if asked["do"] == "call":
            return {"said": self.open[slot].call(asked["calls"])}
        ended = self.open.pop(slot)
        try:
            return {"reward": ended.reward()}
        finally:
            ended.end()

    def answer(self, asked):
        try:
            said = self.done(asked)
        except BaseException as e:  # Also of `sys.exit`, which would end the process with all its episodes.
            said = {"error": failure(e)}
        line = json.dumps({"id": asked["id"], **said}, ensure_ascii=False)
        with self.lock:
            print(line, file=self.out, flush=True)


def main():
    global LONGEST
    path, threads, longest, names = sys.argv[1:]
    LONGEST = int(longest)
    names = [(key, name) for key, name in json.loads(names)]
    # What a class prints is no answer, and what it reads is no request, in its own processes and in C, too.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    module = load(path)
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    kinds = {key: Kind(module, path, name) for key, name in names}
    import transformers

    hello = {"name": ", ".join(name for _, name in names)}
    hello["version"] = f"Python {platform.python_version()}, transformers {transformers.__version__}"
    hello["tools"] = [[key, list(kinds[key].tools.values())] for key, _ in names]
    print(json.dumps(hello), file=out, flush=True)
    served = Served(kinds, out)
    if threads == "1":
        for line in requests:
            served.answer(json.loads(line))
        return
    with ThreadPoolExecutor(int(threads)) as pool:
        for line in requests:
            pool.submit(served.answer, json.loads(line))


main()
