// @ts-check
// Tries each prompt with a few rollouts, and spends the rest where the answers vary.
//
// Change `decide` to your own rule. A policy is a pure function: all it knows is in its arguments.

import { all, flat, integer, isOpen, offer, request, sample, train } from "./sdk/allot.js";
/** @import { Decide } from "./sdk/allot.js" */

export const name = "{{name}}";
export const version = "0.1.0";
export const summary = "tries each prompt, and commits where answers vary";

/** What a run may set. It takes at least 2 rollouts to see whether answers vary. */
export const settings = {
  pilot: integer(4, "Rollouts to try each prompt with.", { min: 2 }),
  commit: integer(12, "Rollouts to add where the first ones vary.", { min: 1 }),
};

/** @type {Decide<typeof settings>} */
export function decide({ pilot, commit }, run, _state, view) {
  const open = isOpen(view.budget);
  const varied = view.groups.filter((g) => !flat(g));

  if (open && view.round === 0 && view.pool.length > 0) {
    return sample(offer(view, 2 * run.groups).map((p) => request(p.id, pilot)));
  }
  const tried = varied.slice(0, run.groups);
  if (open && view.round === 1 && tried.length > 0) {
    return sample(tried.map((g) => request(g.prompt, commit)));
  }
  return train(varied.map((g) => all(g.prompt)));
}
