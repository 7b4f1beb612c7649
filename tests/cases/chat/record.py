"""Records renderings of chat templates by transformers.

    python record.py            # constructs.jsonl, from constructs.json beside this file
    python record.py FOLDER     # FOLDER/cases.jsonl, from every *.jinja in FOLDER; for `ALLOT_CHAT`

Needs transformers and jinja2 (recorded with 5.24.0 and 3.1.6). A rendering that transformers refuses has
`refused` with its reason.
"""

import datetime
import itertools
import json
import pathlib
import sys

from transformers.utils import chat_template_utils as utils

DATE = datetime.datetime(2026, 11, 25)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


utils.datetime = Clock

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers, é & <b>.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "One number"},
                "b": {"type": ["number", "null"], "description": "Another", "default": 1.5},
                "unit": {"type": "string", "enum": ["m", "km"]},
            },
            "required": ["a", "b"],
        },
        "return": {"type": "number", "description": "The sum"},
    },
}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments, **more):
    return {"type": "function", "function": {"name": "add", "arguments": arguments}, **more}


USER = say("user", "What is 12 + 30? It's <|im_end|> \"quoted\".\n")
SYSTEM = say("system", "Answer briefly.  ")
ANSWER = say("assistant", "  42 ")
NEXT = say("user", "And é\u2028 twice that?")
THOUGHT = say("assistant", "<think>\nA sum.\n</think>\n\n42")
REASONED = say("assistant", "42", reasoning_content="Add 12 to 30.")
RESULT = {"role": "tool", "name": "add", "tool_call_id": "abcdef123", "content": "42"}
PARTS = say("user", [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": " what is it?"}])
CALLED = say("assistant", "", tool_calls=[call({"a": 12, "b": 30}, id="abcdef123")])
CALLED_TEXT = say("assistant", "Let me add.", tool_calls=[call('{"a": 12, "b": 30}', id="abcdef123")])
CALLED_TWICE = say(
    "assistant",
    "",
    tool_calls=[call({"a": 12, "b": [1, {"c": None}]}, id="abcdef123"), call({"a": True, "b": 0.5}, id="abcdef124")],
)
CALLED_NULL = {"role": "assistant", "content": None, "tool_calls": [call({"a": 1, "b": 2}, id="abcdef123")]}

CONVERSATIONS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "empty system": [say("system", ""), USER],
    "developer": [say("developer", "Be kind."), USER],
    "turns": [USER, ANSWER, NEXT],
    "system turns": [SYSTEM, USER, ANSWER, NEXT, ANSWER],
    "thought": [USER, THOUGHT, NEXT],
    "thought last": [SYSTEM, USER, THOUGHT],
    "reasoned": [USER, REASONED, NEXT, REASONED],
    "two users": [USER, NEXT],
    "parts": [PARTS, ANSWER],
    "called": [USER, CALLED, RESULT],
    "called text": [SYSTEM, USER, CALLED_TEXT, RESULT, ANSWER, NEXT],
    "called twice": [USER, CALLED_TWICE, RESULT, {**RESULT, "tool_call_id": "abcdef124"}, ANSWER],
    "called null": [USER, CALLED_NULL, RESULT, ANSWER],
    "reasoned call": [USER, {**CALLED, "reasoning_content": "I call."}, RESULT],
    "nobody": [],
}
KWARGS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": [ADD, {**ADD, "function": {"name": "now", "description": "The time", "parameters": {}}}]},
    {"add_generation_prompt": True, "enable_thinking": False, "thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    {"add_generation_prompt": True, "documents": [{"title": "Sums", "text": "12 + 30 = 42", "doc_id": 1}]},
]


def rendered(template, messages, kwargs):
    messages = utils._normalize_chat_messages(messages)
    try:
        texts, _ = utils.render_jinja_template([messages], chat_template=template, **SPECIAL, **kwargs)
    except Exception as error:  # whatever a template or Jinja raises is a refusal
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"rendered": texts[0]}


def write(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def folder(path):
    for file in sorted(path.glob("*.jinja")):
        with open(file, encoding="utf-8", newline="") as text:
            template = text.read()
        for (name, messages), kwargs in itertools.product(CONVERSATIONS.items(), KWARGS):
            case = {"template": file.name, "case": name, "special": SPECIAL, "messages": messages, "kwargs": kwargs}
            yield {**case, **rendered(template, messages, kwargs)}


def constructs(path):
    for one in json.loads(path.read_text(encoding="utf-8")):
        messages = one.get("messages", CONVERSATIONS[one.get("conversation", "system turns")])
        kwargs = one.get("kwargs", {"add_generation_prompt": True})
        template = "\n".join(one["template"]) if isinstance(one["template"], list) else one["template"]
        case = {"case": one["case"], "source": template, "special": SPECIAL, "messages": messages, "kwargs": kwargs}
        yield {**case, **rendered(template, messages, kwargs)}


if len(sys.argv) > 1:
    place = pathlib.Path(sys.argv[1])
    write(place / "cases.jsonl", folder(place))
else:
    place = pathlib.Path(__file__).parent
    write(place / "constructs.jsonl", constructs(place / "constructs.json"))
