// @ts-check
// PODS (arXiv 2504.13818): samples n rollouts of each prompt and trains on the m among them whose
// rewards differ most. Those are always some of the highest and some of the lowest.
//
// The twin of ../src/lib.rs, plan for plan; what departs from upstream is told there.

import { BadSetting, canSample, Chance, choice, integer, offer, orElse, request } from "../../sdk/js/allot.js";
import { sample, size, some, train } from "../../sdk/js/allot.js";
/** @import { Begin, Decide, Group } from "../../sdk/js/allot.js" */

export const name = "pods";
export const version = "0.1.0";
export const summary = "samples many, trains on the few whose rewards differ most";

export const settings = {
  generate: integer(0, "Rollouts to sample of each prompt; 0 for the run's own number.", { min: 0 }),
  keep: integer(8, "Rollouts of each prompt to train on.", { min: 0 }),
  rule: choice(
    ["max-variance", "max-reward", "random"],
    "max-variance",
    "Which to train on: max-variance, max-reward or random.",
  ),
};

/** @type {Begin<typeof settings>} */
export function begin({ keep, generate }, run) {
  if (keep < 2) {
    throw new BadSetting("keep", "must be at least 2: one rollout alone has no deviation to be measured by");
  }
  if (orElse(generate, run.rollouts) > 1) return;
  const why = "an advantage is measured against the prompt's other rollouts, so nothing can be learned";
  if (generate === 1) throw new BadSetting("generate", `it is 1, and ${why}; set 2 or more`);
  const what = `it leaves the number to \`run.rollouts\`, which is ${run.rollouts}`;
  throw new BadSetting("generate", `${what}, and ${why}; set either to 2 or more`);
}

/** @type {Decide<typeof settings>} */
export function decide({ generate, keep, rule }, run, _state, view) {
  if (view.round === 0 && canSample(view)) {
    const rollouts = orElse(generate, run.rollouts);
    return sample(offer(view, run.groups).map((p) => request(p.id, rollouts)));
  }
  const chance = new Chance(view.seed);
  return train(
    view.groups.map((group) => {
      const kept = pick(rule, group, keep, chance);
      // One rollout alone has no deviation to be measured by: upstream's advantage is NaN.
      return some(group.prompt, kept, { advantage: kept.length === 1 ? [0] : "picked" });
    }),
  );
}

/**
 * @param {"max-variance" | "max-reward" | "random"} rule
 * @param {Group} group
 * @param {number} m
 * @param {Chance} chance
 */
function pick(rule, group, m, chance) {
  switch (rule) {
    case "max-variance":
      return maxVariance(group.rewards, m);
    case "max-reward":
      return maxReward(group.rewards, m);
    case "random":
      return chance.draw(size(group), m);
  }
}

/**
 * Positions of the `m` rewards of largest variance: the top ones descending, then the bottom ones
 * descending. Of equal splits the first in upstream's order of trial wins: all from the top, then 0,
 * 1, … from the top.
 * @param {Float32Array} rewards
 * @param {number} m
 */
export function maxVariance(rewards, m) {
  const order = descending(rewards);
  const n = order.length;
  if (m >= n) return order;
  // Measured from the middle of the range, so that the sums lose no digits to a common offset.
  const middle = (rewards[order[0]] + rewards[order[n - 1]]) / 2;
  // The sums of the k lowest, and of their squares. Those of the highest are run along with i.
  const tail = new Float64Array(m + 1);
  const tailSquares = new Float64Array(m + 1);
  for (let k = 0; k < m; k++) {
    const x = rewards[order[n - 1 - k]] - middle;
    tail[k + 1] = tail[k] + x;
    tailSquares[k + 1] = tailSquares[k] + x * x;
  }
  // m² times the variance of a split; whole numbers for 0/1 rewards, so that ties are exact.
  const spreads = new Float64Array(m + 1);
  let head = 0;
  let headSquares = 0;
  for (let i = 0; i <= m; i++) {
    const sum = head + tail[m - i];
    spreads[i] = m * (headSquares + tailSquares[m - i]) - sum * sum;
    const x = rewards[order[i]] - middle;
    head += x;
    headSquares += x * x;
  }
  let best = m;
  let most = spreads[m];
  for (let i = 0; i < m; i++) {
    // Strict, and by more than rounding can do.
    if (spreads[i] > most + Math.abs(most) * 1e-12) {
      best = i;
      most = spreads[i];
    }
  }
  return [...order.slice(0, best), ...order.slice(n - (m - best))];
}

/**
 * Positions of the `m` highest rewards, descending.
 * @param {Float32Array} rewards
 * @param {number} m
 */
export function maxReward(rewards, m) {
  return descending(rewards).slice(0, m);
}

/**
 * Positions by reward, highest first; equal rewards in order of sampling.
 * @param {Float32Array} rewards
 */
function descending(rewards) {
  return [...rewards.keys()].sort((a, b) => rewards[b] - rewards[a]);
}
