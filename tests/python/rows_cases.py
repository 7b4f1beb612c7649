"""What holds for every trainer of rows: its data source, rollout function and post-processing of rewards under policies, on a
CPU. What samples is a function, as `--custom-generate-function-path` has it; the trainer's own code calls it, and cuts the
batch into steps."""

from __future__ import annotations

import json
import random
from pathlib import Path

import allot
from allot.errors import RunIsOver
from guest import made, needs
from recorded import allot as program
from recorded import lines
from rows_here import COMPARED, LIMITS, SEEN, InFolder, Process, several


def worth(row, lengths: int) -> list[float]:
    """Something for each token, which is the same wherever the row is."""
    chance = random.Random(repr(row.tokens))
    return [chance.random() for _ in range(lengths)]


def granted(folder: str, name: str = "record") -> list[dict]:
    """What was sampled of each prompt of each request, by the record."""
    return [told for line in lines(Path(folder) / name, "rollouts") for told in line["sampled"]]


def rollouts(told: dict) -> int:
    return len(told["rewards"]) + told.get("unscorable", 0)


class Batches(InFolder):
    """Batches under policies, and runs that go on."""

    def test_ragged_plans_are_the_host_s_and_batches_are_what_steps_need(self):
        settings = {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}
        process = self.process(allot={"settings": settings})
        trained = []
        for step in range(8):
            try:
                rows, data = process.batch(step)
            except RunIsOver:
                break
            real = [row for row in rows if not row.remove_sample]
            trained.append(len(real))
            self.assertEqual(len(rows) % 8, 0)
            self.assertEqual(len({row.rollout_id for row in rows}), len(rows))
            self.assertEqual(data["raw_reward"], [row.reward for row in rows])
            # The mean over all rollouts is that over the real ones.
            scale = len(rows) / len(real)
            expected = [a * scale for a in self.unscaled(process)]
            given = list(zip(data["rewards"], rows, strict=True))
            self.assertEqual([a for a, row in given if not row.remove_sample], expected)
            self.assertTrue(all(a == 0.0 for a, row in given if row.remove_sample))
            self.assertEqual(sum(map(len, process.steps(data))), len(rows))
        process.source.settle()
        with self.assertRaises(RunIsOver) as over:
            process.batch(8)
        self.assertEqual(str(over.exception), "all steps are done")
        self.assertEqual(len(SEEN), process.source.allocator.spent["run_rollouts"])
        self.assertEqual(len(set(SEEN)), len(SEEN), "each rollout has its own seed")
        steps = lines(Path(self.folder) / "record", "step")
        self.assertEqual([step["trained"] for step in steps if step["updated"]], trained)
        self.assertTrue(any(step["held"] for step in steps), "nothing was ever held")
        program("replay", f"{self.folder}/record", "pilot-commit")

    def unscaled(self, process: Process) -> list[float]:
        groups: dict[int, list[float]] = {}
        for learn in process.source.allocator._picked:
            groups.setdefault(learn.prompt, []).append(learn.advantage)
        return [advantage for group in groups.values() for advantage in group]

    def seen(self, process: Process, steps) -> list:
        told = []
        for step in steps:
            _, data = process.batch(step)
            told.append((data["tokens"], data["rewards"], data["rollout_ids"]))
        return told

    def test_a_request_has_a_length_limit_of_its_own(self):
        varies = made(Path(self.folder) / "guest.wasm", "varies", needs(4), temperature="1.0", tokens="5")
        own = {"policy": varies, "settings": {}, "requests": {"least_tokens": 5}}
        self.process(allot=own).batch(0)
        most = self.arguments().rollout_max_response_len
        self.assertEqual(sorted(LIMITS), [5] * 3 + [most] * 3)

    def test_rollouts_are_learned_from_again(self):
        replays = made(Path(self.folder) / "guest.wasm", "replays", needs(2))
        process = self.process(allot={"policy": replays, "settings": {}})
        both = []
        for step in range(2):
            rows, data = process.batch(step)
            both.append({row.rollout_id: row.tokens for row in rows if not row.remove_sample})
        again = both[0].keys() & both[1].keys()
        self.assertTrue(again)
        for number in again:
            self.assertEqual(both[0][number], both[1][number])
        program("replay", f"{self.folder}/record", replays)

    def test_a_run_that_was_cut_off_goes_on_with_what_it_held(self):
        for generate in ("generate", "several"):
            with self.subTest(generate):
                more = {"custom_generate_function_path": self.name(generate)}
                run = {"longest": 30, "record": f"{self.folder}/{generate}-whole"}
                expected = self.seen(self.process(allot=run, **more), range(6))
                run["record"] = f"{self.folder}/{generate}-cut"
                args = self.arguments(allot=run, **more)
                cut = self.here.Process(args)
                first = self.seen(cut, range(3))
                cut.source.save(2)
                self.seen(cut, [3])
                args.load = self.folder
                again = self.here.Process(args)
                again.source.load(2)
                self.assertEqual(first + self.seen(again, range(3, 6)), expected)
                records = [
                    (Path(self.folder) / f"{generate}-{name}" / "record.jsonl").read_bytes()
                    for name in ("whole", "cut")
                ]
                self.assertEqual(*records)

    def test_a_run_goes_on_with_its_own_data_only(self):
        args = self.arguments()
        first = self.here.Process(args)
        first.batch(0)
        first.source.save(0)
        args.load = self.folder
        # Of the same lengths, so that only the texts differ.
        rows = [json.loads(line) for line in Path(args.prompt_data).read_text().splitlines()]
        rows[3]["label"] = "9"
        args.prompt_data = f"{self.folder}/others.jsonl"
        Path(args.prompt_data).write_text("\n".join(map(json.dumps, rows)))
        again = self.here.Process(args)
        with self.assertRaises(allot.Error) as raised:
            again.source.load(0)
        path = f"{self.folder}/rollout/allot_0.pt"
        self.assertEqual(
            raised.exception.what, f"the checkpoint `{path}` is from a run with another data set"
        )
        self.assertIn("--prompt-data", raised.exception.hint)

    def test_a_record_is_not_written_over(self):
        args = self.arguments()
        self.here.Process(args).batch(0)
        for load in (None, self.folder):
            args.load = load
            with self.assertRaises(allot.Error) as raised:
                self.here.Process(args)
            self.assertIn(f"there is a record in `{self.folder}/record` already", raised.exception.what)


class Rows(InFolder):
    """Rollouts of several rows, up to the trainer's own reducer of a step's loss."""

    def batches(self, **more):
        """The first batches of a run, each with its rows by rollout, and the rollouts that were picked."""
        process = self.process(**more)
        for step in range(6):
            rows, data = process.batch(step)
            picked = {learn.answer[0].rollout_id: learn for learn in process.source.allocator._picked}
            yield process, rows, data, picked

    def test_a_rollout_is_one_in_budget_record_and_batch_however_many_rows_it_has(self):
        several = 0
        for process, rows, data, picked in self.batches(**self.several()):
            by_rollout: dict[int, list] = {}
            for row in rows:
                by_rollout.setdefault(row.rollout_id, []).append(row)
            several += sum(len(learn.answer) > 1 for learn in picked.values())
            # Whole steps of rollouts, whose rows fill micro batches of 4 on 2 ranks.
            self.assertEqual(len(by_rollout) % 8, 0)
            for step in process.steps(data):
                self.assertEqual(len(step) % 8, 0)
                self.assertEqual(len({data["rollout_ids"][i] for i in step}), 8)
            for number, learn in picked.items():
                mine = [row for row in by_rollout[number] if not row.remove_sample]
                self.assertEqual([row.tokens for row in mine], [row.tokens for row in learn.answer])
                self.assertEqual(len({row.metadata["allot_advantage"] for row in mine}), 1)
                self.assertEqual({row.group_index for row in mine}, {learn.answer[0].group_index})
        self.assertGreater(several, 10)
        process.source.settle()
        spent = process.source.allocator.spent
        self.assertEqual(spent["run_rollouts"], len(SEEN))
        self.assertEqual(sum(map(rollouts, granted(self.folder))), len(SEEN))
        program("replay", f"{self.folder}/record", "pilot-commit")

    def test_all_tokens_that_were_generated_are_charged(self):
        process = self.process(**self.several())
        process.batch(0)
        charged = sum(sum(told["tokens"]) for told in granted(self.folder))
        self.assertEqual(charged, process.source.allocator.spent["run_tokens"])
        on_hand = [rows for group in range(18) for rows in process.source.allocator.on_hand(group).values()]
        self.assertEqual(len(on_hand), process.source.allocator.spent["run_rollouts"])
        # What a tool wrote is not generated.
        self.assertEqual(charged, sum(sum(row.loss_mask) for rows in on_hand for row in rows))

    def test_the_loss_is_the_mean_over_rollouts_of_the_means_over_their_tokens(self):
        for process, rows, data, picked in self.batches(**self.several()):
            every = [worth(row, row.response_length) for row in rows]
            steps = process.steps(data)
            loss = sum(process.loss(data, step, every) for step in steps) / len(steps)
            means = []
            for learn in picked.values():
                masks = [m for row in learn.answer for m in row.loss_mask]
                values = [w for row in learn.answer for w in worth(row, row.response_length)]
                means.append(
                    learn.advantage * sum(m * w for m, w in zip(masks, values, strict=True)) / sum(masks)
                )
            self.assertAlmostEqual(loss, sum(means) / len(means), places=6)

    def test_with_a_loss_by_tokens_it_is_the_mean_over_a_step_s_tokens(self):
        filled = 0
        for process, rows, data, picked in self.batches(calculate_per_token_loss=True, **self.several()):
            every = [worth(row, row.response_length) for row in rows]
            for step in process.steps(data):
                masks, values = [], []
                for number in dict.fromkeys(data["rollout_ids"][i] for i in step):
                    for row in picked[number].answer if number in picked else []:
                        masks += row.loss_mask
                        told = worth(row, row.response_length)
                        values += [picked[number].advantage * w for w in told]
                filled += sum(rows[i].remove_sample for i in step)
                expected = sum(m * v for m, v in zip(masks, values, strict=True)) / sum(masks)
                self.assertAlmostEqual(process.loss(data, step, every), expected, places=6)
        self.assertGreater(filled, 0)

    def test_a_rollout_of_no_row_or_one_that_was_cut_off_has_no_reward(self):
        async def broken(args, sample, params):
            rows = await several(args, sample, params)
            if params["sampling_seed"] % 4 == 0:
                return []
            if params["sampling_seed"] % 4 == 1:
                rows[-1].status = type(rows[0]).Status.ABORTED
            return rows

        self.here.broken = broken
        more = {**self.several(), "custom_generate_function_path": self.name("broken")}
        process = self.process(**more)
        rows, _ = process.batch(0)
        unscorable = sum(told.get("unscorable", 0) for told in granted(self.folder))
        self.assertEqual(unscorable, sum(seed % 4 < 2 for seed in SEEN))
        self.assertGreater(unscorable, 0)
        self.assertTrue(all(row.status == type(rows[0]).Status.COMPLETED for row in rows))
        self.assertEqual(process.source.allocator.spent["run_rollouts"], len(SEEN))

    def test_rows_with_rewards_of_their_own_need_a_word(self):
        async def spread(args, sample, params):
            rows = await several(args, sample, params)
            for i, row in enumerate(rows):
                row.reward = float(i + 1)
            return rows

        self.here.spread = spread
        more = {**self.several(), "custom_generate_function_path": self.name("spread")}
        with self.assertRaises(allot.Error) as raised:
            self.process(**more).batch(0)
        self.assertIn("rows of a rollout have different rewards: 1, 2", raised.exception.what)
        self.assertIn("row_rewards: sum", raised.exception.hint)
        for how, expected in [("sum", lambda n: n * (n + 1) / 2), ("last", float)]:
            more["allot"] = {
                "longest": 30,
                "row_rewards": how,
                "correct_above": 1.5,
                "record": f"{self.folder}/{how}",
            }
            process = self.process(**more)
            process.batch(0)
            on_hand = [
                rows for prompt in range(18) for rows in process.source.allocator.on_hand(prompt).values()
            ]
            told = [reward for told in granted(self.folder, how) for reward in told["rewards"]]
            self.assertEqual(sorted(told), sorted(expected(len(rows)) for rows in on_hand))

    def test_more_tokens_than_the_longest_rollout_has_are_refused_with_the_key(self):
        with self.assertRaises(allot.Error) as raised:
            self.process(**{**self.several(), "allot": {}}).batch(0)
        self.assertRegex(
            raised.exception.what, r"^a rollout has \d+ tokens in \d rows, and 6 is the longest$"
        )
        self.assertIn("longest: TOKENS", raised.exception.hint)


class GroupRewards(InFolder):
    """With --group-rm."""

    def compared(self) -> dict:
        """Options with which rollouts are compared."""
        return {"group_rm": True, "custom_rm_path": self.name("compare")}

    def test_a_reward_function_is_asked_about_a_request_s_rollouts_of_a_prompt(self):
        process = self.process(**self.compared())
        rows, data = process.batch(0)
        sampled = granted(self.folder)
        self.assertEqual(sorted(map(len, COMPARED)), sorted(map(rollouts, sampled)))
        # Each group is of one prompt in one request, in the order of sampling.
        self.assertEqual(len({group for asked in COMPARED for group, _ in asked}), len(COMPARED))
        for asked in COMPARED:
            numbers = [number for _, number in asked]
            self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertGreater(sum(told.get("unscorable", 0) for told in sampled), 0, "none was unscorable")
        self.assertEqual(data["raw_reward"], [row.reward for row in rows])

    def test_rollouts_of_several_rows_are_lists_and_their_rows_have_the_rollout_s_reward(self):
        process = self.process(**self.compared(), **self.several())
        rows, _ = process.batch(0)
        self.assertTrue(all(isinstance(rollout, list) for asked in COMPARED for rollout in asked))
        by_rollout: dict[int, set] = {}
        for row in rows:
            if not row.remove_sample:
                by_rollout.setdefault(row.rollout_id, set()).add(row.reward)
        self.assertTrue(all(len(rewards) == 1 for rewards in by_rollout.values()))

    def test_a_reward_is_missing(self):
        async def short(args, samples, **_):
            return [1.0] * (len(samples) - 1)

        self.here.short = short
        with self.assertRaises(allot.Error) as raised:
            self.process(group_rm=True, custom_rm_path=self.name("short")).batch(0)
        self.assertEqual(
            raised.exception.what, f"the reward function `{self.name('short')}` gave 1 rewards for 2 rollouts"
        )
