"""slime's data source, rollout function and post-processing of rewards under policies, on a CPU. What samples is a
function, as `--custom-generate-function-path` has it; slime's own code calls it, and cuts the batch into steps."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

import allot
from allot.errors import RunIsOver
from guest import made, needs
from recorded import allot as program
from recorded import lines
from slime_here import LIMITS, SEEN, InFolder, Slime, arguments


class Adapter(InFolder):
    def test_ragged_plans_are_the_host_s_and_batches_are_what_slime_s_steps_need(self):
        settings = {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}
        slime = Slime(arguments(self.folder, allot={"settings": settings}))
        trained = []
        for step in range(8):
            try:
                rows, data = slime.batch(step)
            except RunIsOver:
                break
            real = [row for row in rows if not row.remove_sample]
            trained.append(len(real))
            self.assertEqual(len(rows) % 8, 0)
            self.assertEqual(len({row.rollout_id for row in rows}), len(rows))
            self.assertEqual(data["raw_reward"], [row.reward for row in rows])
            # The mean over all rollouts is that over the real ones.
            scale = len(rows) / len(real)
            expected = [a * scale for a in self.unscaled(slime)]
            given = list(zip(data["rewards"], rows, strict=True))
            self.assertEqual([a for a, row in given if not row.remove_sample], expected)
            self.assertTrue(all(a == 0.0 for a, row in given if row.remove_sample))
            self.assertEqual(sum(map(len, slime.steps(data))), len(rows))
        slime.source.settle()
        with self.assertRaises(RunIsOver) as over:
            slime.batch(8)
        self.assertEqual(str(over.exception), "all steps are done")
        self.assertEqual(len(SEEN), slime.source.allocator.spent["run_rollouts"])
        self.assertEqual(len(set(SEEN)), len(SEEN), "each rollout has its own seed")
        steps = lines(Path(self.folder) / "record", "step")
        self.assertEqual([step["trained"] for step in steps if step["updated"]], trained)
        self.assertTrue(any(step["held"] for step in steps), "nothing was ever held")
        program("replay", f"{self.folder}/record", "pilot-commit")

    def unscaled(self, slime: Slime) -> list[float]:
        groups: dict[int, list[float]] = {}
        for learn in slime.source.allocator._picked:
            groups.setdefault(learn.prompt, []).append(learn.advantage)
        return [advantage for group in groups.values() for advantage in group]

    def seen(self, slime: Slime, steps) -> list:
        told = []
        for step in steps:
            _, data = slime.batch(step)
            told.append((data["tokens"], data["rewards"], data["rollout_ids"]))
        return told

    def test_a_request_has_a_length_limit_of_its_own(self):
        varies = made(Path(self.folder) / "guest.wasm", "varies", needs(4), temperature="1.0", tokens="5")
        own = {"policy": varies, "settings": {}, "requests": {"least_tokens": 5}}
        Slime(arguments(self.folder, allot=own)).batch(0)
        most = arguments(self.folder).rollout_max_response_len
        self.assertEqual(sorted(LIMITS), [5] * 3 + [most] * 3)

    def test_rollouts_are_learned_from_again(self):
        replays = made(Path(self.folder) / "guest.wasm", "replays", needs(2))
        slime = Slime(arguments(self.folder, allot={"policy": replays, "settings": {}}))
        both = []
        for step in range(2):
            rows, data = slime.batch(step)
            both.append({row.rollout_id: row.tokens for row in rows if not row.remove_sample})
        again = both[0].keys() & both[1].keys()
        self.assertTrue(again)
        for number in again:
            self.assertEqual(both[0][number], both[1][number])
        program("replay", f"{self.folder}/record", replays)

    def test_a_run_that_was_cut_off_goes_on_with_what_it_held(self):
        for generate in ("generate", "several"):
            with self.subTest(generate):
                more = {"custom_generate_function_path": f"slime_here.{generate}"}
                run = {"longest": 30, "record": f"{self.folder}/{generate}-whole"}
                expected = self.seen(Slime(arguments(self.folder, allot=run, **more)), range(6))
                run["record"] = f"{self.folder}/{generate}-cut"
                args = arguments(self.folder, allot=run, **more)
                cut = Slime(args)
                first = self.seen(cut, range(3))
                cut.source.save(2)
                self.seen(cut, [3])
                args.load = self.folder
                again = Slime(args)
                again.source.load(2)
                self.assertEqual(first + self.seen(again, range(3, 6)), expected)
                records = [
                    (Path(self.folder) / f"{generate}-{name}" / "record.jsonl").read_bytes()
                    for name in ("whole", "cut")
                ]
                self.assertEqual(*records)

    def test_a_run_goes_on_with_its_own_data_only(self):
        args = arguments(self.folder)
        first = Slime(args)
        first.batch(0)
        first.source.save(0)
        args.load = self.folder
        # Of the same lengths, so that only the texts differ.
        rows = [json.loads(line) for line in Path(args.prompt_data).read_text().splitlines()]
        rows[3]["label"] = "9"
        args.prompt_data = f"{self.folder}/others.jsonl"
        Path(args.prompt_data).write_text("\n".join(map(json.dumps, rows)))
        again = Slime(args)
        with self.assertRaises(allot.Error) as raised:
            again.source.load(0)
        path = f"{self.folder}/rollout/allot_0.pt"
        self.assertEqual(
            raised.exception.what, f"the checkpoint `{path}` is from a run with another data set"
        )
        self.assertIn("--prompt-data", raised.exception.hint)

    def test_a_record_is_not_written_over(self):
        args = arguments(self.folder)
        Slime(args).batch(0)
        for load in (None, self.folder):
            args.load = load
            with self.assertRaises(allot.Error) as raised:
                Slime(args)
            self.assertIn(f"there is a record in `{self.folder}/record` already", raised.exception.what)


if __name__ == "__main__":
    unittest.main()
