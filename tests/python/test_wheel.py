"""The wheel as a researcher meets it: policies, a run by hand, and whatever can be wrong with either."""

from __future__ import annotations

import json
import logging
import pickle
import random
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import distribution, entry_points, version
from pathlib import Path

import allot
from guest import made, needs
from recorded import ROOT, lines
from recorded import allot as program

SHIPPED = ROOT / "policies" / "prebuilt"
BILL = "allot.cdx.json"
RUN = {"prompts": 100, "steps": 5, "groups": 4, "rollouts": 8}
VIEW = {
    "step": 0,
    "round": 0,
    "seed": 1,
    "budget": {"rounds": 5, "step_rollouts": 100, "run_rollouts": 1000, "run_tokens": 10**6},
    "pool": [{"id": i, "epoch": 0, "tokens": 5} for i in range(16)],
    "groups": [],
}


TAKEN_OVER = """
import faulthandler, signal, sys
import allot

def run():
    return allot.Allocator(sys.argv[1], [5] * 9, steps=1, groups=1, rollouts=1, longest=9)

before = run()
faulthandler.enable()
for name in ("SIGILL", "SIGSEGV", "SIGFPE", "SIGBUS"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
for allocator in (before, run()):
    try:
        allocator.next()
    except allot.PolicyFault as fault:
        said = fault.what.split(":")[0]
print(said)
"""


def small(policy: str | allot.Policy = "uniform", **more) -> allot.Allocator:
    return allot.Allocator(
        policy, [5] * 40, **{"steps": 4, "groups": 4, "rollouts": 8, "longest": 10, "seed": 1, **more}
    )


def flip(allocator: allot.Allocator, order: allot.Sample) -> list[allot.Rollout]:
    """Coins, by the seeds that the run gives: the same in every run of its seed."""
    rollouts = []
    for draw in order.draws:
        for seed in draw.seeds:
            right = random.Random(seed).random() < 0.5
            rollouts.append(allot.Rollout(float(right), 3, right, answer=f"{draw.prompt}:{seed}"))
    return rollouts


def guest(component: Path, decide: str) -> None:
    """A component that decides so."""
    text = component.with_suffix(".wat")
    text.write_text((ROOT / "tests/guests/frame.wat").read_text().replace(";; DECIDE", decide))
    program("build", text, "--out", component)


#: In the `describe` of a guest of contract 0.2: the columns `level` and `length`.
COLUMNS = """
(i32.store offset=128 (local.get $d) (i32.const 48)) (i32.store offset=132 (local.get $d) (i32.const 5))
(i32.store offset=136 (local.get $d) (i32.const 70)) (i32.store offset=140 (local.get $d) (i32.const 6))
(i32.store offset=40 (local.get $d) (i32.add (local.get $d) (i32.const 128)))
(i32.store offset=44 (local.get $d) (i32.const 2))
"""


def drive(allocator: allot.Allocator, stop: int | None = None) -> list[list[allot.Learn]]:
    batches = []
    while allocator.steps != stop and not isinstance(order := allocator.next(), allot.Over):
        if isinstance(order, allot.Sample):
            allocator.sampled(flip(allocator, order))
        else:
            batches.append(order.rollouts)
            allocator.trained(metrics={"loss": 0.5})
    return batches


class Raises(unittest.TestCase):
    def raises(
        self, kind: type[allot.Error], what: str, hint: str | None, call, *arguments, **named
    ) -> allot.Error:
        with self.assertRaises(kind) as raised:
            call(*arguments, **named)
        error = raised.exception
        self.assertIs(type(error), kind)
        self.assertEqual(error.what, what)
        if hint is None:
            self.assertIsNone(error.hint)
            self.assertEqual(str(error), what)
        else:
            self.assertIn(hint, error.hint)
            self.assertEqual(str(error), f"{what}\n\nhint: {error.hint}")
        return error


def locked() -> dict[tuple[str, str], str]:
    """Checksums of the crates in `Cargo.lock`, by name and version."""
    packages = re.findall(
        r'^name = "(.+)"\nversion = "(.+)"\n(?:source = .+\n)?(?:checksum = "(.+)"\n)?',
        (ROOT / "Cargo.lock").read_text(),
        re.MULTILINE,
    )
    return {(name, version): checksum for name, version, checksum in packages}


class Wheel(unittest.TestCase):
    def test_the_bill_of_materials_has_the_crates_of_the_lock_file_each_once(self):
        bill = json.loads(distribution("allot").read_text(f"sboms/{BILL}"))
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.6"))
        self.assertEqual(bill["metadata"]["component"]["version"], version("allot"))
        self.assertNotIn("timestamp", bill["metadata"])

        crates, lock = bill["components"], locked()
        named = [(crate["name"], crate["version"]) for crate in crates]
        self.assertEqual(len(set(named)), len(named))
        self.assertEqual(len({crate["bom-ref"] for crate in crates}), len(crates))
        for crate, key in zip(crates, named, strict=True):
            self.assertEqual(crate["hashes"], [{"alg": "SHA-256", "content": lock[key]}], key)
            self.assertEqual(crate["purl"], f"pkg:cargo/{key[0]}@{key[1].replace('+', '%2B')}")
            (licence,) = crate["licenses"]
            self.assertRegex(licence["expression"], r"^[\w(][\w.() -]*[\w)]$", key)

        # Of both halves; of the program alone; of the module alone; C code; and of the policies in both.
        wanted = {"wasmtime", "serde_json", "clap_builder", "tokenizers", "pyo3", "pythonize", "zstd-sys"}
        self.assertLess(wanted | {"wit-bindgen"}, {name for name, _ in named})
        # What only the compiler runs, what only tests need, and what is this project's own.
        self.assertFalse({"serde_derive", "syn", "cc", "proptest", "allot-engine"} & {n for n, _ in named})

    def test_licences_are_where_installers_look_for_them(self):
        wheel = distribution("allot")
        self.assertEqual(wheel.metadata["License-Expression"], "Apache-2.0")
        self.assertEqual(wheel.metadata.get_all("License-File"), ["LICENSE", "LICENCES.txt"])
        self.assertEqual(wheel.read_text("licenses/LICENSE"), (ROOT / "LICENSE").read_text())
        licences = wheel.read_text("licenses/LICENCES.txt")
        table, *texts = licences.split("\n" + "-" * 80 + "\n")
        for crate in json.loads(wheel.read_text(f"sboms/{BILL}"))["components"]:
            line = f"{crate['name']} {crate['version']}".ljust(40) + crate["licenses"][0]["expression"]
            self.assertIn(f"\n{line}", table)
        # A crate, vendored C code, and a font: each with the text that it brings.
        for crate, words in [
            ("wasmtime ", "Apache License"),
            ("zstd-sys ", "Meta Platforms"),
            ("notosans ", "SIL OPEN FONT LICENSE"),
        ]:
            brought = [text for text in texts if crate in f" {text}".split(":\n", 1)[0]]
            self.assertTrue(any(words in text for text in brought), crate)

    def test_verl_is_told_of_its_plugin_which_loads_without_verl(self):
        (plugin,) = [e for e in entry_points(group="verl.plugins") if e.name == "allot"]
        before = list(sys.meta_path)
        try:
            self.assertEqual(plugin.load().TRAINERS, "verl.trainer.ppo.v1")
        finally:
            sys.meta_path[:] = before


class Policies(Raises):
    def test_a_policy_by_name_and_by_path_is_the_same(self):
        by_name = allot.Policy("greso", run=RUN)
        by_path = allot.Policy(str(SHIPPED / "greso.wasm"), {}, run=RUN)
        self.assertEqual(by_name.describe(), by_path.describe())
        self.assertEqual(by_name.decide(VIEW), by_path.decide(VIEW))
        self.assertEqual(by_name.describe()["contract"], allot.CONTRACT)
        self.assertIn("greso", allot.shipped())

    def test_what_is_asked_for_is_told_in_plain_dictionaries(self):
        plan = allot.Policy("uniform", run=RUN).decide(VIEW)
        self.assertEqual(plan["action"]["sample"], [{"prompt": i, "count": 8} for i in range(4)])

    def test_settings_are_checked_and_in_force(self):
        policy = allot.Policy("pilot-commit", {"pilot": 3, "evict-at": 2}, run=RUN)
        self.assertEqual((policy.settings["pilot"], policy.settings["evict-at"]), (3, 2.0))
        requests = policy.decide(VIEW)["action"]["sample"]
        self.assertEqual({request["count"] for request in requests}, {3})
        self.raises(
            allot.Error,
            "policy `pilot-commit` has no setting `pilott`",
            "did you mean `pilot`?",
            allot.Policy,
            "pilot-commit",
            {"pilott": 3},
        )
        self.raises(
            allot.Error,
            'policy `pilot-commit`: setting `pilot` is "three"; it must be '
            "a whole number from -2147483648 to 2147483647",
            None,
            allot.Policy,
            "pilot-commit",
            {"pilot": "three"},
        )
        with self.assertRaises(allot.PolicyFault) as refused:
            allot.Policy("pilot-commit", {"pilot": -1}, run=RUN)
        self.assertIn("policy `pilot-commit` refused its setting `pilot`", refused.exception.what)

    def test_a_name_that_does_not_ship_and_a_file_that_is_not_there(self):
        self.raises(
            allot.Error,
            "no policy is called `unifrom`",
            "did you mean `uniform`?",
            allot.Policy,
            "unifrom",
        )
        self.raises(
            allot.Error,
            "could not read `./nowhere.wasm`: there is no such file or folder",
            None,
            allot.Policy,
            "./nowhere.wasm",
        )

    def test_a_file_that_is_no_policy_or_one_for_another_contract(self):
        whole = (SHIPPED / "uniform.wasm").read_bytes()
        cases = {
            "empty": (b"", "the file is empty", None),
            "other": (b"#!/bin/sh", "it does not begin with the Wasm magic number", None),
            "text": (b";; a text\n(component)", "the file is Wasm text", "allot build"),
            "module": (b"\0asm\1\0\0\0", "the file is a core Wasm module, not a component", "allot build"),
            "cut": (
                whole[: len(whole) // 2],
                "the component is damaged or cut off",
                "copy or build it again",
            ),
            "contract": (
                whole.replace(b"rollout:allocation/allocator@0.3.0", b"rollout:allocation/allocator@0.4.0"),
                "this policy is built for rollout:allocation@0.4.0; this program knows 0.1, 0.2 and 0.3",
                "use a newer version of this program",
            ),
        }
        for name, (content, what, hint) in cases.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "policy.wasm"
                path.write_bytes(content)
                with self.assertRaises(allot.LoadError) as raised:
                    allot.Policy(str(path))
                self.assertIn(f"could not load policy `{path}`: ", raised.exception.what)
                self.assertIn(what, raised.exception.what)
                self.assertNotIn("\n", raised.exception.what)
                if hint:
                    self.assertIn(hint, raised.exception.hint)

    def test_another_build_than_the_one_demanded(self):
        with self.assertRaises(allot.LoadError) as raised:
            allot.Policy("uniform", sha256="0" * 64)
        self.assertIn("the config expects 000", raised.exception.what)

    def test_a_view_that_is_none_and_a_policy_without_a_run(self):
        with self.assertRaises(allot.Error) as raised:
            allot.Policy("uniform", run=RUN).decide({**VIEW, "pool": "all"})
        self.assertIn("this is no view: ", raised.exception.what)
        self.raises(
            allot.Error,
            "a policy decides in a run, and this one was given none",
            "run=",
            allot.Policy("uniform").decide,
            VIEW,
        )
        with self.assertRaises(allot.Error) as raised:
            allot.Policy("uniform", run={**RUN, "prompt": 3})
        self.assertIn("`run`: unknown field `prompt`", raised.exception.what)

    def test_guests_that_fail_or_break_a_rule_say_so_and_end_the_run(self):
        with tempfile.TemporaryDirectory() as scratch:
            for name, kind, what in [
                ("traps", allot.PolicyFault, "in step 0, round 0 policy `guest` trapped"),
                ("gives_up", allot.PolicyFault, "in step 0, round 0 policy `guest` gave up"),
                ("asks_twice", allot.BrokenRule, "policy `guest` asked for prompt"),
            ]:
                with self.subTest(name):
                    component, folder = Path(scratch) / f"{name}.wasm", Path(scratch) / name
                    guest(component, (ROOT / f"tests/guests/{name}.wat").read_text())
                    allocator = small(str(component), record=folder)
                    with self.assertRaises(kind) as raised:
                        allocator.next()
                    self.assertIn(what, raised.exception.what)
                    if kind is allot.BrokenRule:
                        self.assertEqual(raised.exception.rule, "requested-twice")
                    self.assertEqual(allocator.over, raised.exception.what)
                    end = lines(folder, "end")[0]
                    self.assertEqual((end["normal"], end["reason"]), (False, raised.exception.what))

    def test_a_trap_is_an_exception_whoever_handles_the_process_s_signals(self):
        with tempfile.TemporaryDirectory() as scratch:
            component = Path(scratch) / "traps.wasm"
            guest(component, (ROOT / "tests/guests/traps.wat").read_text())
            # Ray, for one, takes signals over after a policy was loaded: those of Wasm traps among them.
            said = subprocess.run(
                [sys.executable, "-c", TAKEN_OVER, str(component)], capture_output=True, text=True
            )
            self.assertEqual(said.stdout, "in step 0, round 0 policy `guest` trapped\n", said.stderr)

    def test_a_policy_s_own_words_go_to_logging(self):
        with tempfile.TemporaryDirectory() as scratch:
            component = Path(scratch) / "chats.wasm"
            # It says something, and then asks for nothing: its words are heard, whatever becomes of its plan.
            guest(component, "(call $log (i32.const 2) (i32.const 64) (i32.const 22)) (local.get $plan)")
            with self.assertLogs("allot.policy", logging.DEBUG) as heard, self.assertRaises(allot.BrokenRule):
                small(str(component)).next()
            self.assertEqual(heard.output, ["WARNING:allot.policy:the words of the guest"])


class Runs(Raises):
    def test_a_run_keeps_its_budget_to_the_rollout(self):
        # A rollout is granted only while the longest would fit: of 100 tokens, at 3 each, that many in turn.
        by_tokens = 10 + 7 + 4 + 3 + 2 + 2 + 1 + 1 + 1
        for budget, steps, spent in [
            ({"rollouts": 50}, 4, 50),
            ({"tokens": 100}, 30, by_tokens),
            ({}, 4, 128),
        ]:
            allocator = small(budget=budget, steps=steps)
            drive(allocator)
            self.assertEqual(allocator.spent["run_rollouts"], spent, budget)
            self.assertEqual(allocator.over, "the budget is spent" if budget else "all steps are done")
            self.assertIsInstance(allocator.next(), allot.Over)

    def test_answers_come_back_with_their_own_advantages(self):
        for batch in drive(small("uniform")):
            by_prompt: dict[int, list[allot.Learn]] = {}
            for learn in batch:
                self.assertTrue(learn.answer.startswith(f"{learn.prompt}:"))
                by_prompt.setdefault(learn.prompt, []).append(learn)
            for group in by_prompt.values():
                self.assertEqual(len(group), 8)
                right = [random.Random(int(learn.answer.split(":")[1])).random() < 0.5 for learn in group]
                mean = sum(right) / 8
                deviation = (sum((r - mean) ** 2 for r in right) / 7) ** 0.5
                for learn, r in zip(group, right, strict=True):
                    self.assertAlmostEqual(
                        learn.advantage, (r - mean) / (deviation + 1e-6) if deviation else 0.0, 5
                    )

    def test_what_was_granted_is_handed_in_and_nothing_else(self):
        allocator = small()
        self.raises(
            allot.Error,
            "rollouts were handed in, and none were granted",
            "next() says",
            allocator.sampled,
            [],
        )
        order = allocator.next()
        rollouts = flip(allocator, order)
        self.raises(
            allot.Error,
            "31 rollouts were handed in, and 32 were granted",
            "a reward of None",
            allocator.sampled,
            rollouts[1:],
        )
        self.raises(
            allot.Error,
            f"a rollout of prompt `{order.draws[0].prompt}` has 11 tokens, and 10 is the longest",
            None,
            allocator.sampled,
            [allot.Rollout(1.0, 11, True)] * 32,
        )
        self.raises(
            allot.Error,
            "32 rollouts were granted, and nothing was said of them",
            "sampled(",
            allocator.next,
        )
        self.raises(
            allot.Error,
            "a batch is said to be done, and none was given",
            "next() gives",
            allocator.trained,
        )
        self.assertEqual(allocator.spent["run_rollouts"], 0, "nothing is charged for a mistake")
        allocator.sampled(rollouts)
        self.assertEqual(allocator.spent["run_rollouts"], 32)
        self.raises(
            allot.Error,
            "step 0 is not over",
            "between two steps",
            allocator.state_dict,
        )

    def test_an_update_that_is_not_finite_is_refused(self):
        allocator = small()
        allocator.sampled(flip(allocator, allocator.next()))
        allocator.next()
        with self.assertRaises(allot.Error) as raised:
            allocator.trained(metrics={"loss": float("nan")})
        self.assertIn("the update of step 0 was refused: loss is NaN", raised.exception.what)
        self.assertEqual(allocator.steps, 0)

    def test_an_unscorable_rollout_is_paid_for_and_never_shown(self):
        allocator = small()
        rollouts = flip(allocator, allocator.next())
        for i, reward in enumerate([None, float("nan"), float("inf")]):
            rollouts[i] = allot.Rollout(reward, 3, False)
        allocator.sampled(rollouts)
        self.assertEqual(allocator.spent["run_rollouts"], 32)
        self.assertEqual(sum(len(group["rewards"]) for group in allocator.groups), 29)
        self.assertEqual(len(allocator.next().rollouts), 29)

    def test_a_state_goes_through_pickle_and_on_to_the_same_end(self):
        for policy in ("pilot-commit", "reinforce-ada"):
            with tempfile.TemporaryDirectory() as folder:
                more = {"max_age": 3, "steps": 12, "budget": {"rollouts": 400}}
                whole = drive(small(policy, record=f"{folder}/whole", **more))
                first = small(policy, record=f"{folder}/cut", **more)
                head = drive(first, stop=2)
                state = pickle.loads(pickle.dumps(first.state_dict()))
                drive(first)
                second = small(policy, record=f"{folder}/cut", **more)
                second.load_state_dict(state)
                self.assertEqual(head + drive(second), whole)
                records = [Path(f"{folder}/{name}/record.jsonl").read_bytes() for name in ("whole", "cut")]
                self.assertEqual(*records)

    def test_a_state_of_another_run_is_refused(self):
        first = small()
        drive(first, stop=1)
        state = first.state_dict()
        for other, what in [
            (small("dapo"), "policy"),
            (small(seed=2), "seed"),
            (small(groups=3), "`groups`"),
            (
                allot.Allocator("uniform", [6] * 40, steps=4, groups=4, rollouts=8, longest=10, seed=1),
                "data set",
            ),
        ]:
            self.raises(
                allot.Error,
                f"the state is from a run with another {what}",
                "begin another",
                other.load_state_dict,
                state,
            )
        with self.assertRaises(allot.Error) as raised:
            small().load_state_dict({"run": "{", "answers": {}})
        self.assertIn("this is no state of a run", raised.exception.what)

    def test_nobody_s_record_is_written_over(self):
        with tempfile.TemporaryDirectory() as folder:
            drive(small(record=folder))
            before = (Path(folder) / "record.jsonl").read_bytes()
            with self.assertRaises(allot.Error) as raised:
                small(record=folder).next()
            self.assertIn("there is a record in", raised.exception.what)
            self.assertIn("load_state_dict", raised.exception.hint)
            self.assertEqual((Path(folder) / "record.jsonl").read_bytes(), before)

    def test_the_program_replays_and_reports_such_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            for policy in ("uniform", "pilot-commit"):
                for seed in (1, 2):
                    allocator = small(policy, seed=seed, record=f"{scratch}/{policy}-{seed}", engine="coins")
                    allocator.scored(0.25)
                    while not isinstance(order := allocator.next(), allot.Over):
                        if isinstance(order, allot.Sample):
                            allocator.sampled(flip(allocator, order))
                        else:
                            allocator.trained(accuracy=0.25 + 0.1 * order.step)
            program("replay", f"{scratch}/uniform-1", "uniform")
            program("report", scratch, "--out", f"{scratch}/report")
            self.assertTrue((Path(scratch) / "report" / "index.html").exists())

    def test_a_policy_is_told_the_columns_that_a_trainer_gives(self):
        with tempfile.TemporaryDirectory() as scratch:
            component = Path(scratch) / "guest.wasm"
            made(component, "by_level", COLUMNS)
            self.assertEqual(allot.Policy(str(component)).describe()["columns"], ["level", "length"])
            levels = [(7 * i) % 40 for i in range(40)]

            def orders(columns, **more):
                allocator = small(str(component), columns=columns, pool=40, **more)
                while not isinstance(order := allocator.next(), allot.Over):
                    if isinstance(order, allot.Sample):
                        yield [draw.prompt for draw in order.draws]
                        allocator.sampled(flip(allocator, order))
                    else:
                        allocator.trained()

            first = [levels.index(level) for level in range(4)]
            for columns in ({"level": levels, "other": object()}, lambda name: levels):
                self.assertEqual([prompt for prompts in orders(columns) for prompt in prompts], first)
            list(orders({"level": levels}, record=f"{scratch}/run"))
            program("replay", f"{scratch}/run", component)
            names = [f"Level {level:02}" for level in levels]
            self.assertEqual(sum(orders({"level": names}), []), first)

            run = lambda columns: small(str(component), columns=columns)  # noqa: E731
            for columns, what in [
                ({}, "policy `guest` wants the column `level`, which the run does not have"),
                ({"level": levels[1:]}, "the column `level` is of 39 prompts, and the data set has 40"),
                ({"level": [*levels[1:], "x"]}, "in the column `level` prompt 39 has the word `x`, where the first"),
                ({"level": [*levels[1:], float("nan")]}, "a number that is not finite"),
                ({"level": levels, "length": levels}, "`columns` has `length`, which is the prompts' lengths"),
            ]:
                with self.assertRaises(allot.Error) as raised:
                    run(columns)
                self.assertIn(what, raised.exception.what)
            state = run({"level": levels}).state_dict()
            run({"level": levels}).load_state_dict(state)
            with self.assertRaises(allot.Error) as raised:
                run({"level": levels[::-1]}).load_state_dict(state)
            self.assertIn("another data set: its columns", raised.exception.what)
            run_of_40 = {"prompts": 40, "steps": 1, "groups": 1, "rollouts": 1}
            alone = allot.Policy(
                str(component), run={**run_of_40, "columns": {"level": levels, "length": levels}}
            )
            plan = alone.decide(VIEW)
            self.assertEqual(plan["action"]["sample"][0]["prompt"], min(range(16), key=lambda i: levels[i]))

    def test_a_request_says_how_its_rollouts_are_sampled(self):
        with tempfile.TemporaryDirectory() as scratch:
            varies = made(Path(scratch) / "guest.wasm", "varies", needs(4))
            wide = {"temperature": [0.5, 1.5], "least_tokens": 20}
            allocator = small(varies, longest=60, requests=wide, record=f"{scratch}/run")
            own, other = allocator.next().draws
            self.assertEqual(own.sampling, allot.Sampling(temperature=0.5, max_tokens=40))
            self.assertIsNone(other.sampling)
            rollout = lambda tokens: allot.Rollout(1.0, tokens, True)  # noqa: E731
            with self.assertRaises(allot.Error) as raised:
                allocator.sampled([rollout(41)] * 3 + [rollout(60)] * 3)
            self.assertIn("has 41 tokens, and 40 is the longest", raised.exception.what)
            allocator.sampled([rollout(40)] * 3 + [rollout(60)] * 3)
            self.assertEqual(len(allocator.next().rollouts), 6)
            # The budget of tokens holds back what the request can have at most, not what any rollout can.
            self.assertEqual(allocator.spent["run_tokens"], 3 * 40 + 3 * 60)
            told = [group["sampling"] for group in allocator.groups if group.get("sampling")]
            self.assertEqual(told[0][0], {"temperature": 0.5, "max_tokens": 40})
            program("replay", f"{scratch}/run", varies)
            self.raises(
                allot.PolicyFault,
                "policy `guest` needs `sampling`, which this run does not provide",
                "`requests=` in a trainer in Python",
                small, varies, longest=60,
            )  # fmt: skip
            for requests, what, hint in [
                ({"temperature": [1.2, 1.5]}, "`requests.temperature` is [1.2, 1.5]", "the run's `temperature`, 1, between"),
                ({"least_tokens": 61}, "`requests.least_tokens` is 61", "it is from 1 to `longest`, 60"),
            ]:
                self.raises(allot.Error, what, hint, small, varies, longest=60, requests=requests)
            narrow = small(varies, longest=60, requests={"least_tokens": 20})
            with self.assertRaises(allot.BrokenRule):
                narrow.next()

    def test_a_policy_learns_from_rollouts_again(self):
        with tempfile.TemporaryDirectory() as scratch:
            replays = made(Path(scratch) / "guest.wasm", "replays", needs(2))
            allocator = small(replays, record=f"{scratch}/run")
            first, second = drive(allocator)[:2]
            again = {learn.id for learn in first} & {learn.id for learn in second}
            self.assertTrue(again)
            for learn in second:
                self.assertEqual(learn.age, int(learn.id in again))
                self.assertTrue(learn.answer.startswith(f"{learn.prompt}:"), learn)
            program("replay", f"{scratch}/run", replays)

            # What is learned from again decides nothing about a rollout: waste is of the others.
            allocator = small(replays)
            seen: set[int] = set()
            for order in allocator:
                if isinstance(order, allot.Sample):
                    allocator.sampled(flip(allocator, order))
                    continue
                fresh = [learn for learn in order.rollouts if learn.id not in seen]
                seen |= {learn.id for learn in order.rollouts}
                metrics = allocator.metrics(step := allocator.trained())
                known = len(fresh) + step["released"] + step["stale"]
                share = 1 - sum(learn.advantage != 0 for learn in fresh) / known
                self.assertAlmostEqual(metrics["allot/waste"], share)
            self.raises(
                allot.PolicyFault,
                "policy `guest` needs `replay`, which this run does not provide",
                "this trainer in Python discards what it has trained on",
                small, replays, replay=False,
            )  # fmt: skip

            # A state has the answers that are learned from again.
            cut, resumed = small(replays), small(replays)
            drive(cut, stop=1)
            resumed.load_state_dict(pickle.loads(pickle.dumps(cut.state_dict())))
            self.assertEqual(drive(resumed)[0], second)

    def test_a_policy_is_told_what_tokens_take(self):
        with tempfile.TemporaryDirectory() as scratch:
            twice = {"mini_batch": 8, "passes": 2}
            for name, more, costs in [
                ("none", {}, None),
                ("once", {"parameters": 1_000}, (2_000.0, 9_000.0)),
                ("twice", {"parameters": 1_000, "update": twice}, (2_000.0, 18_000.0)),
            ]:
                for order in (allocator := small("prospect", record=f"{scratch}/{name}", **more)):
                    if isinstance(order, allot.Sample):
                        allocator.sampled(flip(allocator, order))
                    else:
                        allocator.trained()
                program("replay", f"{scratch}/{name}", "prospect")
                with open(f"{scratch}/{name}/record.jsonl") as record:
                    head = json.loads(record.readline())
                head = head.get("head", head)
                keys = ("generating", "learning")
                told = head["run"]["terms"].get("costs")
                self.assertEqual(told and tuple(told[key] for key in keys), costs)

    def test_accuracies_are_told_whenever_a_trainer_evaluates(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = f"{scratch}/run"
            allocator = small(record=folder, steps=3)
            allocator.scored(0.1)
            kept = None
            while not isinstance(order := allocator.next(), allot.Over):
                if isinstance(order, allot.Sample):
                    allocator.sampled(flip(allocator, order))
                    continue
                what = "an accuracy in the middle of an update belongs to no step"
                self.raises(allot.Error, what, "tell it after trained", allocator.scored, 0.5)
                allocator.trained()
                allocator.scored(0.1 + 0.2 * allocator.steps, {"easy": 1.0, "hard": 0.0})
                kept = kept or allocator.state_dict()
            self.raises(allot.Error, "an accuracy is 43; it is from 0 to 1", "for 43 %: 0.43", allocator.scored, 43)
            # What was told last of a step counts.
            allot.evaluated(folder, 3, 0.75)
            said = json.loads(program("report", folder, "--json", "--out", f"{scratch}/report"))
            (arm,) = said["arms"]
            self.assertEqual([arm["runs"][0][name] for name in ("start", "last", "best")], [0.1, 0.75, 0.75])
            self.assertNotIn("optimizer-steps", said["axes"] if "axes" in said else [])

            # It is the same run: what it may spend and how it measures advantages, too.
            for more, name in [
                ({"budget": {"rollouts": 900}}, "`budget`"),
                ({"advantage": {"normalize": False}}, "`advantage`"),
                ({"order": "sequential"}, "`order`"),
                ({"steps": 4}, "`steps`"),
                ({"max_age": 3}, "`max_age`"),
            ]:
                with self.assertRaises(allot.Error) as raised:
                    small(**{"steps": 3, **more}).load_state_dict(kept)
                self.assertEqual(raised.exception.what, f"the state is from a run with another {name}")

            # A run that goes on from a state forgets what was told after it.
            again = small(record=folder, steps=3)
            again.load_state_dict(kept)
            told = [json.loads(line) for line in open(f"{folder}/evaluations.jsonl")]
            self.assertEqual([line["steps"] for line in told], [1])
            self.assertEqual(told[0]["scores"], [["easy", 1.0], ["hard", 0.0]])
            with self.assertRaises(allot.Error) as raised:
                allot.evaluated(f"{scratch}/nowhere", 1, 0.5)
            self.assertIn("there is no record in", raised.exception.what)

    def test_numbers_that_make_no_run(self):
        for more, what in [
            ({"parameters": 0}, "`parameters` is 0; it is at least 1"),
            ({"temperature": -1.0}, "`temperature` is -1; it is finite and not negative"),
            ({"steps": 0}, "`steps` is 0; it is at least 1"),
            ({"budget": {"rollouts": 0}}, "`budget.rollouts` is 0; it is at least 1"),
            ({"advantage": {"epsilon": -1.0}}, "`advantage.epsilon` is -1; it is finite and not negative"),
        ]:
            self.raises(allot.Error, what, None, small, **more)
        with self.assertRaises(allot.Error) as raised:
            small(budget={"rollout": 5})
        self.assertIn("unknown field `rollout`", raised.exception.what)


if __name__ == "__main__":
    unittest.main()
