// @ts-check
// A policy that makes use of all that there is. The twin of ../../whole.rs.

import { canSample, facts, request, sample, size, some, text, train } from "../../../../policies/sdk/js/allot.js";
/** @import { Decide, Need, RequestOptions } from "../../../../policies/sdk/js/allot.js" */

export const name = "whole";
export const version = "0.1.0";
export const summary = "makes use of all that there is";
/** @type {Need[]} */
export const needs = ["any-prompt"];
export const settings = {
  beyond: text("", "What to use that is not described: nothing, until, sampling or update."),
};

/** @type {Decide<typeof settings>} */
export function decide({ beyond }, run, _state, view) {
  const visits = facts.counts("visits");
  let plan;
  if (view.round === 0 && canSample(view)) {
    const least = visits.reduce((a, b) => Math.min(a, b));
    const rarest = visits.indexOf(least);
    /** @type {RequestOptions} */
    const options = {};
    if (beyond === "until") options.until = { correct: 1, wrong: 0, portion: 2 };
    if (beyond === "sampling") options.sampling = { ...run.sampling.default, temperature: 0.5 };
    const others = view.pool.map((prompt) => prompt.id).filter((id) => id !== rarest);
    plan = sample([request(rarest, 3, options)]).defer(others.slice(0, 2));
  } else {
    plan = train(view.groups.map((g) => some(g.prompt, [0], { advantage: { among: [size(g) - 1] } })));
    plan.hold(view.groups.filter((g) => size(g) > 1).map((g) => ({ prompt: g.prompt, rollouts: [1] })));
    if (beyond === "update") plan.update({ miniBatch: 16, passes: 1 });
  }
  const listed = view.pool.slice(0, 3).map((prompt) => prompt.id);
  return plan
    .metric("correct", sum(facts.counts("totalCorrect", facts.between(2, 9))))
    .metric("std", sum(facts.measures("std", listed)))
    .metric("mean-length", sum(facts.measures("meanLength", facts.between(0, 4))))
    .metric("learning", facts.costs().learning)
    .metric("unscored", sum(view.unscored.map((lost) => lost.rollouts)))
    .metric("lengths", sum(view.groups.flatMap((g) => [...g.lengths])))
    .metric("epochs", sum(view.groups.map((g) => g.epoch)))
    .metric("past", sum(view.pool.map((prompt) => prompt.past?.std ?? 0)))
    .metric("flops", view.budget.runFlops)
    .metric("temperature", run.sampling.most.temperature)
    .metric("passes", run.update.passes);
}

/** @param {ArrayLike<number>} numbers */
function sum(numbers) {
  let total = 0;
  for (let i = 0; i < numbers.length; i++) total += numbers[i];
  return total;
}
