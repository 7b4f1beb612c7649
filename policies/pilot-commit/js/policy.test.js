// @ts-check
import assert from "node:assert/strict";
import test from "node:test";

import { Chance } from "../../sdk/js/allot.js";
import { begin, decide, runWith } from "../../sdk/js/calls.js";
import * as made from "../../sdk/js/made.js";
import { save } from "../../sdk/js/state.js";
import * as policy from "./policy.js";
import { downsample, gpuCut } from "./policy.js";
/** @import { PlanRecord } from "../../sdk/js/allot.js" */

/** Two groups of 4 + 4 rollouts, three prompts a round. */
function runOf(changes = {}) {
  const all = { pilot: 4, commit: 4, prompts: 3, sampling: "max-variance", ...changes };
  return { ...runWith(policy, all), groups: 2 };
}

const stateOf = (changes = {}) => save(policy, { committed: [], fresh: [], epoch: 0, ...changes });

/** @param {PlanRecord} plan */
function requests({ action }) {
  assert(action.tag === "sample");
  return action.val.map((r) => [r.prompt, r.count]);
}

/** @param {PlanRecord} plan */
function batch({ action }) {
  assert(action.tag === "train");
  return [action.val.picks.map((p) => p.prompt), action.val.hold];
}

test("pilots and commits share a round", () => {
  const run = runOf();
  let plan = decide(policy, run, begin(policy, run), made.view(0, 9));
  assert.deepEqual(requests(plan), [[0, 4], [1, 4], [2, 4]]);

  let groups = [made.group(0, [1, 1, 1, 1]), made.group(1, [0, 1, 0, 0]), made.group(2, [0, 0, 0, 0])];
  plan = decide(policy, run, plan.state, { ...made.view(3, 9), round: 1, groups });
  assert.deepEqual(requests(plan), [[3, 4], [4, 4], [5, 4], [1, 4]]);
  assert.deepEqual(plan.evict, [0]);

  groups[1] = made.group(1, [0, 1, 0, 0, 1, 1, 1, 1]);
  groups.push(made.group(3, [0, 1, 0, 0]), made.group(4, [0, 1, 0, 1]), made.group(5, [0, 0, 0, 0]));
  plan = decide(policy, run, plan.state, { ...made.view(6, 9), round: 2, groups });
  assert.deepEqual(requests(plan), [[6, 4], [7, 4], [8, 4], [4, 4]], "half solved goes first");
  assert.deepEqual(plan.evict, [], "once is enough");

  groups[4] = made.group(4, [0, 1, 0, 1, 1, 1, 1, 1]);
  plan = decide(policy, run, plan.state, { ...made.view(), round: 3, groups });
  assert.deepEqual(batch(plan), [[1, 4], [3]], "the survivor is held");
});

test("old pilots are let go", () => {
  const run = runOf({ maxOff: 1 });
  const view = made.view();
  view.budget.rounds = 0;
  view.groups = [0, 1, 2, 3, 4].map((p) => made.group(p, [1, 0, 0, 1]));
  [2, 0, 0, 2, 1].forEach((age, i) => view.groups[i].ages.fill(age));
  const plan = decide(policy, run, begin(policy, run), view);
  assert.deepEqual(batch(plan), [[0, 1], [2, 4]], "trained on rather than lost");
});

test("a commit cut by the budget counts if anything came", () => {
  const view = made.view(0, 9);
  view.round = 1;
  view.budget.runRollouts = 0;
  view.groups = [made.group(7, [1, 0, 1, 0]), made.group(8, [1, 0, 1, 0, 1])];
  const plan = decide(policy, runOf(), stateOf({ committed: [[7, 4], [8, 4]] }), view);
  assert.deepEqual(batch(plan), [[8], [7]]);
});

test("pilots that could not be judged are not missed", () => {
  const run = runOf({ pilotKept: 2 });
  let plan = decide(policy, run, begin(policy, run), made.view(0, 9));

  // Of three times four pilots these were judged.
  const groups = [made.group(0, [0, 1, 0]), made.group(1, [1, 1, 1]), made.group(2, [0, 1])];
  plan = decide(policy, run, plan.state, { ...made.view(3, 9), round: 1, groups });
  assert.deepEqual(requests(plan), [[3, 4], [4, 4], [5, 4], [0, 4], [2, 4]]);
  assert.deepEqual(plan.evict, [1]);

  groups[0] = made.group(0, [0, 1, 0, 1, 1, 1]);
  groups[2] = made.group(2, [0, 1, 0]);
  plan = decide(policy, run, plan.state, { ...made.view(), round: 2, groups });
  assert.deepEqual(batch(plan), [[0, 2], []]);
  assert(plan.action.tag === "train");
  assert.deepEqual(plan.action.val.picks.map((p) => p.rollouts?.length), [2 + 3, 2 + 1]);
});

test("pilots cut short by the budget evict nobody", () => {
  const run = runOf();
  let plan = decide(policy, run, begin(policy, run), made.view(0, 9));
  const groups = [made.group(0, [1, 1, 1]), made.group(1, [1])];
  plan = decide(policy, run, plan.state, { ...made.view(0, 9), round: 1, groups });
  assert.deepEqual(plan.evict, [0], "what came after it shows that its pilots are whole");
});

test("an epoch may end for good", () => {
  const run = runOf({ epochEnd: "discard" });
  const view = made.view(0, 6);
  view.pool.slice(2).forEach((p) => (p.epoch = 1));
  view.round = 1;
  view.groups = [made.group(9, [1, 0, 1, 0])];
  let plan = decide(policy, run, stateOf(), view);
  assert.deepEqual(batch(plan), [[], []], "all is let go");
  assert.deepEqual(plan.skip, [0, 1], "too few for a round");

  plan = decide(policy, run, plan.state, { ...view, round: 0, groups: [], pool: view.pool.slice(2) });
  assert.deepEqual(requests(plan), [[2, 4], [3, 4], [4, 4]]);
});

test("pilots can be thinned out", () => {
  const chance = new Chance(1);
  const kept = downsample([true, false, true, true, false], 3, chance);
  assert([0, 2, 3].includes(kept[0]));
  assert.deepEqual(kept.slice(1).sort(), [1, 4]);
  assert.equal(downsample([false, false, false], 2, chance).length, 2);
  assert.deepEqual(downsample([true], 4, chance), [0]);

  const view = made.view(0, 9);
  view.round = 1;
  view.budget.rounds = 0;
  view.groups = [made.group(7, [1, 0, 0, 0, 1, 1])];
  const { action } = decide(policy, runOf({ pilotKept: 2 }), stateOf({ committed: [[7, 4]] }), view);
  assert(action.tag === "train");
  const rollouts = action.val.picks[0].rollouts ?? [];
  assert.deepEqual([rollouts.length, rollouts[0], rollouts[2], rollouts[3]], [4, 0, 4, 5]);
});

test("rounds fit the GPUs", () => {
  assert.equal(gpuCut(3, 24, 4, 1), 3);
  assert.equal(gpuCut(3, 24, 4, 8), 2, "commits in pairs");
  assert.equal(gpuCut(3, 21, 3, 2), 3);
  assert.equal(gpuCut(4, 21, 3, 2), 3);
  assert.equal(gpuCut(3, 1, 2, 2), 0);
});

test("bad settings and foreign states are refused", () => {
  assert.throws(() => begin(policy, runOf({ pilot: 0 })), /`pilot`/);
  assert.throws(() => begin(policy, runOf({ pilot: 1 })), /`pilot`: 1 pilot can't be .*; set 2 or more/);
  assert.throws(() => begin(policy, runOf({ solvedAtLeast: 0.8 })), /`solved-at-least`: pilots can't be/);
  assert.throws(() => begin(policy, runOf({ pilotKept: 5 })), /`pilot-kept`: there are not as many pilots/);
  const foreign = save({ name: "pods", version: "0.1.0" }, {});
  assert.throws(() => decide(policy, runOf(), foreign, made.view(0, 9)), /written by pods 0.1.0/);
  assert.throws(() => decide(policy, runOf(), [1, 2, 3], made.view(0, 9)), /no policy in JavaScript/);
});
