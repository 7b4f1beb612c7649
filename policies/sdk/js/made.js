// @ts-check
// Made views, groups and pasts, for the tests of policies.

/** @import { Group, Past, Prompt, PromptId, View } from "./types.js" */

const NO_LIMIT = 2 ** 32 - 1;

/**
 * A view that opens the first step: the prompts from `from` up to `to` on offer, nothing on hand, no limit.
 * @param {PromptId} [from]
 * @param {PromptId} [to] The first that is not on offer.
 * @returns {View}
 */
export function view(from = 0, to = from) {
  const pool = [];
  for (let id = from; id < to; id++) pool.push(prompt(id));
  const budget = {
    rounds: NO_LIMIT,
    stepRollouts: NO_LIMIT,
    runRollouts: NO_LIMIT,
    runTokens: 2n ** 64n - 1n,
  };
  return { step: 0, round: 0, seed: 1, budget, pool, groups: [] };
}

/**
 * A prompt never visited before, of the first epoch.
 * @param {PromptId} id
 * @returns {Prompt}
 */
export function prompt(id) {
  return { id, epoch: 0, tokens: 10, past: undefined };
}

/**
 * A fresh group whose rewards are its marks: 1 for a correct rollout, 0 for another.
 * @param {PromptId} prompt
 * @param {number[]} marks
 * @returns {Group}
 */
export function group(prompt, marks) {
  return { ...rewarded(prompt, marks), correct: marks.map((m) => m === 1) };
}

/**
 * A fresh group of these rewards; a rollout is correct from 1 on.
 * @param {PromptId} prompt
 * @param {number[]} rewards
 * @returns {Group}
 */
export function rewarded(prompt, rewards) {
  const n = rewards.length;
  return {
    prompt,
    rewards: Float32Array.from(rewards),
    correct: rewards.map((r) => r >= 1),
    tokens: new Uint32Array(n).fill(10),
    ages: new Uint32Array(n),
    truncated: new Array(n).fill(false),
    signals: [],
  };
}

/**
 * The only visit of a prompt: so many of `rollouts` correct, rewards as `group` makes them.
 * @param {number} correct
 * @param {number} rollouts
 * @returns {Past}
 */
export function past(correct, rollouts) {
  const mean = Math.fround(correct / rollouts);
  return {
    step: 0,
    visits: 1,
    rollouts,
    correct,
    mean,
    deviation: Math.fround(Math.sqrt(Math.fround(mean * Math.fround(1 - mean)))),
    tokens: 10,
    streak: correct === 0 || correct === rollouts ? 1 : 0,
    totalRollouts: rollouts,
    totalCorrect: correct,
  };
}
