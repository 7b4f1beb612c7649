"""slime: rollouts of several rows, and rewards of groups, on a CPU, up to slime's own reducer of a step's loss."""

from __future__ import annotations

import random
import unittest
from pathlib import Path

import allot
import slime_here
from recorded import allot as program
from recorded import lines
from slime.utils.types import Sample
from slime_here import COMPARED, SEEN, InFolder, Slime, arguments

SEVERAL = {"custom_generate_function_path": "slime_here.several", "allot": {"longest": 30}}


def worth(row: Sample, lengths: int) -> list[float]:
    """Something for each token, which is the same wherever the row is."""
    chance = random.Random(repr(row.tokens))
    return [chance.random() for _ in range(lengths)]


def granted(folder: str, name: str = "record") -> list[dict]:
    """What was sampled of each prompt of each request, by the record."""
    return [told for line in lines(Path(folder) / name, "rollouts") for told in line["sampled"]]


def rollouts(told: dict) -> int:
    return len(told["rewards"]) + told.get("unscorable", 0)


class Rows(InFolder):
    def batches(self, **more):
        """The first batches of a run, each with its rows by rollout, and the rollouts that were picked."""
        slime = Slime(arguments(self.folder, **more))
        for step in range(6):
            rows, data = slime.batch(step)
            picked = {learn.answer[0].rollout_id: learn for learn in slime.source.allocator._picked}
            yield slime, rows, data, picked

    def test_a_rollout_is_one_in_budget_record_and_batch_however_many_rows_it_has(self):
        several = 0
        for slime, rows, data, picked in self.batches(**SEVERAL):
            by_rollout: dict[int, list[Sample]] = {}
            for row in rows:
                by_rollout.setdefault(row.rollout_id, []).append(row)
            several += sum(len(learn.answer) > 1 for learn in picked.values())
            # Whole steps of rollouts, whose rows fill micro batches of 4 on 2 ranks.
            self.assertEqual(len(by_rollout) % 8, 0)
            for step in slime.steps(data):
                self.assertEqual(len(step) % 8, 0)
                self.assertEqual(len({data["rollout_ids"][i] for i in step}), 8)
            for number, learn in picked.items():
                mine = [row for row in by_rollout[number] if not row.remove_sample]
                self.assertEqual([row.tokens for row in mine], [row.tokens for row in learn.answer])
                self.assertEqual(len({row.metadata["allot_advantage"] for row in mine}), 1)
                self.assertEqual({row.group_index for row in mine}, {learn.answer[0].group_index})
        self.assertGreater(several, 10)
        slime.source.settle()
        spent = slime.source.allocator.spent
        self.assertEqual(spent["run_rollouts"], len(SEEN))
        self.assertEqual(sum(map(rollouts, granted(self.folder))), len(SEEN))
        program("replay", f"{self.folder}/record", "pilot-commit")

    def test_all_tokens_that_were_generated_are_charged(self):
        slime = Slime(arguments(self.folder, **SEVERAL))
        slime.batch(0)
        charged = sum(sum(told["tokens"]) for told in granted(self.folder))
        self.assertEqual(charged, slime.source.allocator.spent["run_tokens"])
        on_hand = [rows for group in range(18) for rows in slime.source.allocator.on_hand(group).values()]
        self.assertEqual(len(on_hand), slime.source.allocator.spent["run_rollouts"])
        # What a tool wrote is not generated.
        self.assertEqual(charged, sum(sum(row.loss_mask) for rows in on_hand for row in rows))

    def test_the_loss_is_the_mean_over_rollouts_of_the_means_over_their_tokens(self):
        for slime, rows, data, picked in self.batches(**SEVERAL):
            every = [worth(row, row.response_length) for row in rows]
            steps = slime.steps(data)
            loss = sum(slime.loss(data, step, every) for step in steps) / len(steps)
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
        for slime, rows, data, picked in self.batches(calculate_per_token_loss=True, **SEVERAL):
            every = [worth(row, row.response_length) for row in rows]
            for step in slime.steps(data):
                masks, values = [], []
                for number in dict.fromkeys(data["rollout_ids"][i] for i in step):
                    for row in picked[number].answer if number in picked else []:
                        masks += row.loss_mask
                        told = worth(row, row.response_length)
                        values += [picked[number].advantage * w for w in told]
                filled += sum(rows[i].remove_sample for i in step)
                expected = sum(m * v for m, v in zip(masks, values, strict=True)) / sum(masks)
                self.assertAlmostEqual(slime.loss(data, step, every), expected, places=6)
        self.assertGreater(filled, 0)

    def test_a_rollout_of_no_row_or_one_that_was_cut_off_has_no_reward(self):
        async def broken(args, sample, params):
            rows = await slime_here.several(args, sample, params)
            if params["sampling_seed"] % 4 == 0:
                return []
            if params["sampling_seed"] % 4 == 1:
                rows[-1].status = Sample.Status.ABORTED
            return rows

        slime_here.broken = broken
        more = {**SEVERAL, "custom_generate_function_path": "slime_here.broken"}
        slime = Slime(arguments(self.folder, **more))
        rows, _ = slime.batch(0)
        unscorable = sum(told.get("unscorable", 0) for told in granted(self.folder))
        self.assertEqual(unscorable, sum(seed % 4 < 2 for seed in SEEN))
        self.assertGreater(unscorable, 0)
        self.assertTrue(all(row.status == Sample.Status.COMPLETED for row in rows))
        self.assertEqual(slime.source.allocator.spent["run_rollouts"], len(SEEN))

    def test_rows_with_rewards_of_their_own_need_a_word(self):
        async def spread(args, sample, params):
            rows = await slime_here.several(args, sample, params)
            for i, row in enumerate(rows):
                row.reward = float(i + 1)
            return rows

        slime_here.spread = spread
        more = {**SEVERAL, "custom_generate_function_path": "slime_here.spread"}
        with self.assertRaises(allot.Error) as raised:
            Slime(arguments(self.folder, **more)).batch(0)
        self.assertIn("rows of a rollout have different rewards: 1, 2", raised.exception.what)
        self.assertIn("row_rewards: sum", raised.exception.hint)
        for how, expected in [("sum", lambda n: n * (n + 1) / 2), ("last", float)]:
            more["allot"] = {
                "longest": 30,
                "row_rewards": how,
                "correct_above": 1.5,
                "record": f"{self.folder}/{how}",
            }
            slime = Slime(arguments(self.folder, **more))
            slime.batch(0)
            on_hand = [
                rows for prompt in range(18) for rows in slime.source.allocator.on_hand(prompt).values()
            ]
            told = [reward for told in granted(self.folder, how) for reward in told["rewards"]]
            self.assertEqual(sorted(told), sorted(expected(len(rows)) for rows in on_hand))

    def test_more_tokens_than_the_longest_rollout_has_are_refused_with_the_key(self):
        with self.assertRaises(allot.Error) as raised:
            Slime(arguments(self.folder, **{**SEVERAL, "allot": {}})).batch(0)
        self.assertRegex(
            raised.exception.what, r"^a rollout has \d+ tokens in \d rows, and 6 is the longest$"
        )
        self.assertIn("longest: TOKENS", raised.exception.hint)


class GroupRewards(InFolder):
    """With --group-rm."""

    MORE = {"group_rm": True, "custom_rm_path": "slime_here.compare"}

    def test_a_reward_function_is_asked_about_a_request_s_rollouts_of_a_prompt(self):
        slime = Slime(arguments(self.folder, **self.MORE))
        rows, data = slime.batch(0)
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
        slime = Slime(arguments(self.folder, **self.MORE, **SEVERAL))
        rows, _ = slime.batch(0)
        self.assertTrue(all(isinstance(rollout, list) for asked in COMPARED for rollout in asked))
        by_rollout: dict[int, set] = {}
        for row in rows:
            if not row.remove_sample:
                by_rollout.setdefault(row.rollout_id, set()).add(row.reward)
        self.assertTrue(all(len(rewards) == 1 for rewards in by_rollout.values()))

    def test_a_reward_is_missing(self):
        async def short(args, samples, **_):
            return [1.0] * (len(samples) - 1)

        slime_here.short = short
        with self.assertRaises(allot.Error) as raised:
            Slime(arguments(self.folder, group_rm=True, custom_rm_path="slime_here.short")).batch(0)
        self.assertEqual(
            raised.exception.what, "the reward function `slime_here.short` gave 1 rewards for 2 rollouts"
        )


if __name__ == "__main__":
    unittest.main()
