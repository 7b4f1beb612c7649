// @ts-check
// Made views, groups, pasts and facts, for the tests of policies.

import { answer } from "./facts.js";
import { camel } from "./refusal.js";
/** @import { Prompts, TokenCosts } from "./facts.js" */
/** @import { Group, Past, Prompt, PromptId, View } from "./types.js" */

const NO_LIMIT = 2 ** 32 - 1;

/**
 * A view that opens the first step: the prompts from `from` up to `to` on offer, nothing buffered, no limit.
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
    runFlops: Number.MAX_VALUE,
  };
  return { step: 0, round: 0, seed: 1, budget, pool, groups: [], unscored: [], underWay: [] };
}

/**
 * A prompt never visited before, of the first epoch.
 * @param {PromptId} id
 * @returns {Prompt}
 */
export function prompt(id) {
  return { id, epoch: 0, length: 10, past: undefined };
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
 * A fresh group of these rewards; a rollout is correct from 1 on. What only policies that need it are shown
 * is empty: `{ ...made.group(3, [1, 0]), trained: Uint32Array.of(1, 0) }`.
 * @param {PromptId} prompt
 * @param {number[]} rewards
 * @returns {Group}
 */
export function rewarded(prompt, rewards) {
  const n = rewards.length;
  return {
    prompt,
    epoch: 0,
    rewards: Float32Array.from(rewards),
    correct: rewards.map((r) => r >= 1),
    lengths: new Uint32Array(n).fill(10),
    ages: new Uint32Array(n),
    truncated: new Array(n).fill(false),
    signals: [],
    parts: [],
    trained: new Uint32Array(0),
    sampling: [],
    turns: [],
    stopped: [],
    origins: [],
  };
}

/**
 * The same group by turn, for policies that need turns: so many tokens in each turn of each rollout, with 10 read
 * before it, and the environment ended them all.
 * @param {Group} group
 * @param {number[][]} tokens
 * @returns {Group}
 */
export function byTurn(group, tokens) {
  return {
    ...group,
    lengths: Uint32Array.from(tokens, (turns) => turns.reduce((a, b) => a + b, 0)),
    turns: tokens.map((turns) => turns.map((tokens) => ({ read: 10, tokens }))),
    stopped: tokens.map(() => "done"),
  };
}

/**
 * The only visit of a prompt: so many of `rollouts` correct, rewards as `group` makes them.
 * @param {number} correct
 * @param {number} rollouts
 * @returns {Past}
 */
export function past(correct, rollouts) {
  const mean = correct / rollouts;
  const variance = (mean * (1 - mean) * rollouts) / Math.max(rollouts - 1, 1);
  return {
    step: 0,
    visits: 1,
    rollouts,
    correct,
    mean: Math.fround(mean),
    std: Math.fround(Math.sqrt(variance)),
    meanLength: 10,
    streak: correct === 0 || correct === rollouts ? 1 : 0,
    totalRollouts: rollouts,
    totalCorrect: correct,
  };
}

/**
 * From now on `facts` answers these: the last visits of a data set of so many prompts, its columns with the
 * same number of numbers for each prompt, and what a token takes.
 * @param {object} known
 * @param {number} known.prompts
 * @param {Record<PromptId, Past>} [known.past]
 * @param {Record<string, ArrayLike<number>>} [known.columns]
 * @param {TokenCosts} [known.costs]
 */
export function facts({
  prompts,
  past = {},
  columns = {},
  costs = { reading: 0, generating: 0, learning: 0 },
}) {
  /** @param {Prompts} of */
  const ids = (of) => {
    const [first, end] = of.tag === "between" ? of.val : [0, prompts];
    const asked = of.tag === "listed" ? [...of.val] : Array.from({ length: end - first }, (_, i) => first + i);
    for (const id of asked) {
      if (id >= prompts) throw new RangeError(`asked about prompt ${id}, where the made facts have ${prompts}`);
    }
    return asked;
  };
  /** @type {(what: string, of: Prompts) => number[]} */
  const visits = (what, of) => ids(of).map((id) => past[id]?.[/** @type {keyof Past} */ (camel(what))] ?? 0);
  answer({
    counts: (what, of) => Uint32Array.from(visits(what, of)),
    measures: (what, of) => Float32Array.from(visits(what, of)),
    column: (name, of) => {
      const numbers = columns[name];
      if (!numbers) throw new Error(`asked for the column \`${name}\`, which the made facts don't have`);
      const width = numbers.length / prompts;
      return Float32Array.from(ids(of).flatMap((id) => [...Array(width).keys()].map((i) => numbers[id * width + i])));
    },
    costs: () => costs,
  });
}
