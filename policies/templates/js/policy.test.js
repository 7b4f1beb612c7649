import assert from "node:assert/strict";
import test from "node:test";

import * as policy from "./policy.js";
import { begin, decide, runWith } from "./sdk/calls.js";
import * as made from "./sdk/made.js";

test("tries the next prompts", () => {
  const run = { ...runWith(policy, { pilot: 2 }), groups: 1 };
  const plan = decide(policy, run, begin(policy, run), made.view(0, 9));
  assert.deepEqual(plan.action, { tag: "sample", val: [{ prompt: 0, count: 2 }, { prompt: 1, count: 2 }] });
});

test("commits only where the pilots vary", () => {
  const view = made.view();
  view.round = 1;
  view.groups = [made.group(1, [1, 0, 1, 1]), made.group(2, [0, 0, 0, 0])];
  const plan = decide(policy, runWith(policy), [], view);
  assert.deepEqual(plan.action, { tag: "sample", val: [{ prompt: 1, count: 12 }] });
});

test("one rollout shows nothing", () => {
  assert.throws(() => begin(policy, runWith(policy, { pilot: 1 })), /2 or more/);
});
