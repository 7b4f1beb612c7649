// @ts-check
// What policies ask of views, groups and budgets. Plain loops: a component has no compiler for its
// JavaScript, and calls cost more than what they do.

/** @import { Budget, Group, Past, Prompt, PromptId, View } from "./types.js" */

/**
 * Buffered rollouts.
 * @param {Group} group
 */
export function size(group) {
  return group.rewards.length;
}

/**
 * How many rollouts are correct.
 * @param {Group} group
 */
export function solved(group) {
  const { correct } = group;
  let count = 0;
  for (let i = 0; i < correct.length; i++) if (correct[i]) count++;
  return count;
}

/**
 * Share of correct rollouts.
 * @param {Group} group
 */
export function passRate(group) {
  return solved(group) / size(group);
}

/**
 * Whether all rewards are one and the same: nothing to learn here. Not `std > 0`, whose
 * rounding error keeps groups of a constant such as 0.1.
 * @param {Group} group
 */
export function flat(group) {
  const { rewards } = group;
  const first = rewards[0];
  for (let i = 1; i < rewards.length; i++) if (rewards[i] !== first) return false;
  return true;
}

/**
 * Mean reward.
 * @param {Group} group
 */
export function mean(group) {
  const { rewards } = group;
  let sum = 0;
  for (let i = 0; i < rewards.length; i++) sum += rewards[i];
  return sum / rewards.length;
}

/**
 * The age of the oldest rollout, in model updates.
 * @param {Group} group
 */
export function age(group) {
  const { ages } = group;
  let oldest = 0;
  for (let i = 0; i < ages.length; i++) if (ages[i] > oldest) oldest = ages[i];
  return oldest;
}

/**
 * Standard deviation of a visit's rewards as contract 0.1 had it: of the population, divided by n.
 * @param {Past} past
 */
export function deviation({ std, rollouts }) {
  return std * Math.sqrt((rollouts - 1) / rollouts);
}

/**
 * The buffered rollouts of a prompt. Looks through all groups.
 * @param {View} view
 * @param {PromptId} prompt
 * @returns {Group | undefined}
 */
export function groupOf(view, prompt) {
  return view.groups.find((g) => g.prompt === prompt);
}

/**
 * The first `n` prompts of the pool, or all that are there.
 * @param {View} view
 * @param {number} n
 * @returns {Prompt[]}
 */
export function offer(view, n) {
  return view.pool.slice(0, n);
}

/**
 * Whether the host would serve another round of sampling.
 * @param {Budget} budget
 */
export function isOpen(budget) {
  return budget.rounds > 0 && budget.stepRollouts > 0 && budget.runRollouts > 0 && budget.runTokens > 0n;
}

/**
 * Whether there are prompts on offer and a budget to sample them with.
 * @param {View} view
 */
export function canSample(view) {
  return isOpen(view.budget) && view.pool.length > 0;
}
