// @ts-check
// What the JavaScript SDK makes of views, plans and facts, without Wasm.

import assert from "node:assert/strict";
import test from "node:test";

import { all, deviation, facts, integer, number, request, sample, train } from "../../../policies/sdk/js/allot.js";
import { begin, decide, describe, runWith } from "../../../policies/sdk/js/calls.js";
import * as made from "../../../policies/sdk/js/made.js";
/** @import { Policy } from "../../../policies/sdk/js/allot.js" */

/**
 * @param {Partial<Policy>} parts
 * @returns {Policy}
 */
const policy = (parts) => ({ name: "one", version: "1", summary: "one", decide: () => train([]), ...parts });

test("facts are those that were made", () => {
  assert.throws(() => facts.counts("visits"), /made.facts/);
  made.facts({
    prompts: 4,
    past: { 1: made.past(2, 4), 3: made.past(4, 4) },
    columns: { place: [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5] },
    costs: { reading: 1, generating: 2, learning: 3 },
  });
  assert.deepEqual([...facts.counts("correct")], [0, 2, 0, 4]);
  assert.deepEqual([...facts.counts("totalRollouts", facts.between(1, 4))], [4, 0, 4]);
  assert.deepEqual([...facts.measures("meanLength", [3, 0, 3])], [10, 0, 10]);
  assert.deepEqual([...facts.column("place", Uint32Array.of(3, 1))], [3, 3.5, 1, 1.5]);
  assert.equal(facts.costs().learning, 3);
  assert.throws(() => facts.counts("visits", [4]), /prompt 4/);
  assert.throws(() => facts.column("level"), /`level`/);
});

test("deviations are of the sample, and as 0.1 had them of the population", () => {
  const past = made.past(2, 4);
  assert.equal(past.std, Math.fround(Math.sqrt(1 / 3)));
  assert.ok(Math.abs(deviation(past) - 0.5) < 1e-6);
  assert.deepEqual([made.past(1, 1).std, deviation(made.past(1, 1))], [0, 0]);
});

test("what only some need is named", () => {
  const { needs, columns } = describe(policy({ needs: ["replay", "stopping"], columns: ["level"] }));
  assert.deepEqual([needs, columns], [["replay", "stopping"], ["level"]]);
  assert.deepEqual(runWith(policy({ columns: ["level"] })).columns, [{ name: "level", width: 1, categories: [] }]);
  // @ts-expect-error
  assert.throws(() => describe(policy({ needs: ["replays"] })), /`replays`/);
});

test("a bound of another name is refused", () => {
  const misspelt = /** @type {{}} */ ({ minimum: 2 });
  assert.throws(() => integer(8, "It.", misspelt), /a setting has no bound `minimum`; its bounds are `min` and `max`/);
});

test("a number outside of its bounds is refused", () => {
  /** @type {[import("../../../policies/sdk/js/settings.js").Setting<number>, number, string][]} */
  const wrong = [
    [integer(8, "It.", { min: 2, max: 64 }), 65, "65 is not a whole number from 2 to 64"],
    [integer(8, "It.", { min: 2, max: 64 }), -1, "-1 is not a whole number from 2 to 64"],
    [integer(8, "It.", { max: 64 }), 65, "65 is not a whole number, 64 or less"],
    [integer(8, "It.", { min: 2 }), 1, "1 is not a whole number, 2 or more"],
    [number(0.5, "It.", { min: 0, max: 1 }), 1.25, "1.25 is not a number from 0 to 1"],
    [number(0.5, "It.", { max: 1 }), 2, "2 is not a number, 1 or less"],
  ];
  for (const [it, value, message] of wrong) {
    const of = policy({ settings: { it } });
    assert.throws(() => begin(of, runWith(of, { it: value })), { message: `\`it\`: ${message}` });
    begin(of, runWith(of));
  }
});

test("plans say what only some need", () => {
  const until = { correct: 1, wrong: 0, portion: 4 };
  const sampling = { temperature: 0.5, maxTokens: 64, maxTurns: 4 };
  const sampled = sample([request(3, 8, { until, sampling })]).defer([5]);
  const { action, defer } = sampled.record(new Uint8Array());
  assert.deepEqual(action.val, [{ prompt: 3, count: 8, until, sampling }]);
  assert.deepEqual(defer, [5]);
  const trained = train([all(4, { advantage: { among: [0, 2] } })])
    .hold([7, { prompt: 4, rollouts: [0, 2] }])
    .update({ miniBatch: 16, passes: 2 });
  assert.deepEqual(trained.record(new Uint8Array()).action.val, {
    picks: [{ prompt: 4, rollouts: undefined, advantage: { tag: "among", val: [0, 2] }, weight: 1 }],
    hold: [7, { prompt: 4, rollouts: [0, 2] }],
    update: { miniBatch: 16, passes: 2 },
  });
});

test("rollouts start from turns of others", () => {
  const requests = [request(3, 3, { starts: [{ rollout: 1, turn: 0 }, undefined, null] }), request(4, 2)];
  assert.deepEqual(sample(requests).record(new Uint8Array()).action.val, [
    { prompt: 3, count: 3, starts: [{ rollout: 1, turn: 0 }, undefined, undefined] },
    { prompt: 4, count: 2 },
  ]);
  assert.deepEqual(describe(policy({ needs: ["turns", "starting"] })).needs, ["turns", "starting"]);
});

test("advantages are given by turn", () => {
  const turns = [[0.5, -1], Float32Array.of(2), []];
  assert.deepEqual(all(4, { advantage: { byTurn: turns } }).advantage, { tag: "by-turn", val: turns });
});

test("groups are made by turn", () => {
  const { lengths, turns, stopped } = made.byTurn(made.group(3, [1, 0, 0]), [[10, 20], [5], []]);
  assert.deepEqual([...lengths], [30, 5, 0]);
  assert.deepEqual(turns, [[{ read: 10, tokens: 10 }, { read: 10, tokens: 20 }], [{ read: 10, tokens: 5 }], []]);
  assert.deepEqual(stopped, ["done", "done", "done"]);
  const whole = made.group(3, [1]);
  assert.deepEqual([whole.turns, whole.stopped, whole.origins], [[], [], []]);
});

test("advantages that are no numbers are told", () => {
  /** @type {[any, string][]} */
  const wrong = [
    [{ byTurn: [[1], 2] }, "a rollout's advantages by turn of prompt 3 are 2, not a list"],
    [{ byTurn: [["1"]] }, "a rollout's advantages by turn of prompt 3 have 1, not a number"],
    [{ byTurn: 1 }, "the advantages by turn of prompt 3 are 1, not a list"],
    [[[0.5, 1], [2]], "the advantages of prompt 3 have 0.5,1, not a number"],
    [{ byTurns: [[1]] }, "the advantages of prompt 3 are [object Object], not a list"],
  ];
  for (const [advantage, message] of wrong) {
    assert.throws(() => all(3, { advantage }), { name: "TypeError", message });
  }
});

test("what can't be is refused where it is written", () => {
  for (const wrong of [
    () => sample([request(3, 8, { until: { correct: 1, wrong: 0, portion: 0.5 } })]),
    () => sample([request(3, 8, { sampling: { temperature: 0.5, maxTokens: -1, maxTurns: 1 } })]),
    () => sample([request(3, 8, { sampling: { temperature: 0.5, maxTokens: 64, maxTurns: 0.5 } })]),
    () => sample([request(3, 1, { starts: [{ rollout: -1, turn: 0 }] })]),
    () => sample([request(3, 1, { starts: [{ rollout: 0, turn: 0.5 }] })]),
    () => sample([request(3, 1, { starts: /** @type {any} */ ([0]) })]),
    () => sample([request(3, 1, { starts: /** @type {any} */ ({ rollout: 0, turn: 0 }) })]),
    () => all(3, { advantage: { among: [-1] } }),
    () => train([]).hold([{ prompt: 3, rollouts: [0.5] }]),
    () => train([]).update({ miniBatch: -1, passes: 1 }),
    () => train([]).defer([-1]),
    () => sample([]).update({ miniBatch: 1, passes: 1 }),
    () => sample([]).hold([3]),
  ]) {
    assert.throws(wrong);
  }
});

test("names of contract 0.1 are told their new ones", () => {
  const seen = { ...made.view(0, 1), groups: [made.group(1, [1, 0])] };
  seen.pool[0].past = made.past(2, 4);
  /** @param {(view: any) => unknown} read */
  const reads = (read) => {
    const reader = policy({ decide: (settings, run, state, view) => (read(view), train([])) });
    return () => decide(reader, runWith(reader), [], seen);
  };
  assert.throws(reads((view) => view.groups[0].tokens), /a group of contract 0.3 has no `tokens`: it has `lengths`/);
  assert.throws(reads((view) => view.pool[0].tokens), /it has `length`/);
  assert.throws(reads((view) => view.pool[0].past.tokens), /it has `meanLength`/);
  assert.throws(reads((view) => view.pool[0].past.deviation), /`deviation\(past\)`/);
  reads((view) => [view.groups[0].lengths, view.pool[0].length, view.pool[0].past.std])();
});
