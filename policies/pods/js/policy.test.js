// @ts-check
import assert from "node:assert/strict";
import test from "node:test";

import { Chance, some } from "../../sdk/js/allot.js";
import { begin, decide, runWith } from "../../sdk/js/calls.js";
import * as made from "../../sdk/js/made.js";
import * as policy from "./policy.js";
import { maxReward, maxVariance } from "./policy.js";

/** @param {number[]} values */
function variance(values) {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length;
}

/**
 * The most variance of all subsets of size `m`, not only of the splits.
 * @param {Float32Array} rewards
 * @param {number} m
 */
function brute(rewards, m) {
  let most = 0;
  for (let set = 0; set < 1 << rewards.length; set++) {
    const values = [...rewards].filter((_, i) => (set >> i) & 1);
    if (values.length === m) most = Math.max(most, variance(values));
  }
  return most;
}

/** @param {import("../../sdk/js/allot.js").Group[]} groups */
function later(groups) {
  return { ...made.view(0, 9), round: 1, groups };
}

test("samples as many as it is told to, or as the run says", () => {
  const counts = (/** @type {Record<string, unknown>} */ changes) => {
    const { action } = decide(policy, runWith(policy, changes), [], made.view(0, 9));
    assert(action.tag === "sample");
    return action.val.map((r) => r.count);
  };
  assert.deepEqual(counts({}), [8, 8, 8, 8]);
  assert.deepEqual(counts({ generate: 3 }), [3, 3, 3, 3]);
});

test("no subset has more variance", () => {
  const chance = new Chance(7);
  for (let round = 0; round < 60; round++) {
    const n = 2 + chance.below(7);
    const offset = [0, 1000, -3][round % 3];
    const rewards = Float32Array.from({ length: n }, () => chance.unit() + offset);
    for (let m = 1; m <= n; m++) {
      const kept = maxVariance(rewards, m);
      assert.equal(new Set(kept).size, m);
      assert(variance(kept.map((i) => rewards[i])) >= brute(rewards, m) * (1 - 1e-9), `${rewards} ${m}`);
    }
  }
});

test("right and wrong are kept in equal parts", () => {
  const rewards = Float32Array.from({ length: 128 }, (_, i) => (i % 3 === 0 ? 1 : 0));
  for (const m of [32, 33]) {
    const right = maxVariance(rewards, m).filter((i) => rewards[i] === 1).length;
    assert.equal(right, Math.floor(m / 2), "of two balanced splits the one tried first");
  }
});

test("equal rewards keep the first", () => {
  assert.deepEqual(maxVariance(new Float32Array(5).fill(0.1), 3), [0, 1, 2]);
  assert.deepEqual(maxVariance(Float32Array.of(0, -0, 0), 2), [0, 1]);
  assert.deepEqual(maxReward(Float32Array.of(-0, 0, 1, 0), 3), [2, 0, 1]);
});

test("the edges are defined", () => {
  assert.throws(() => begin(policy, runWith(policy, { keep: 0 })), /must be at least 2/);
  assert.throws(() => begin(policy, runWith(policy, { keep: 1 })), /must be at least 2/);
  assert.throws(() => begin(policy, runWith(policy, { generate: 1 })), /it is 1, and an advantage/);
  assert.deepEqual(maxVariance(Float32Array.of(1, 0, 0.5), 5), [0, 2, 1]);

  const { action } = decide(policy, runWith(policy, { keep: 1 }), [], later([made.group(4, [0, 1, 0])]));
  assert.deepEqual(action, { tag: "train", val: { picks: [some(4, [1], { advantage: [0] })], hold: [] } });
});

test("random keeps m", () => {
  const run = runWith(policy, { keep: 2, rule: "random" });
  const { action } = decide(policy, run, [], later([made.group(4, [0, 1, 0]), made.group(5, [0])]));
  assert(action.tag === "train");
  assert.equal(action.val.picks[0].rollouts?.length, 2);
  assert.deepEqual(action.val.picks[1].rollouts, [0]);
});

test("chance is that of the other languages", () => {
  const chance = new Chance(0);
  // The first two outputs of SplitMix64 from seed 0.
  assert.deepEqual([chance.bits(), chance.bits()], [0xe220a8397b1dcdafn, 0x6e789e6aa1b965f4n]);
  const halves = new Chance(0xffffffff);
  const whole = new Chance(0xffffffff);
  for (let i = 1; i < 1000; i++) {
    assert.equal(halves.below(i * 1000), Number((whole.bits() * BigInt(i * 1000)) >> 64n));
    assert.equal(halves.unit(), Number(whole.bits() >> 11n) / 2 ** 53);
  }
});
