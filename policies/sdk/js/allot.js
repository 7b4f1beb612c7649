// What a JavaScript author needs to write an allocation policy.
//
// A policy is one module, `policy.js`: a name, some settings, perhaps some state, and one decision.
//
//     // @ts-check
//     import { integer, offer, request, sample, train, all } from "./sdk/allot.js";
//     /** @import { Decide } from "./sdk/allot.js" */
//
//     export const name = "even";
//     export const version = "0.1.0";
//     export const summary = "the same number of rollouts for every prompt";
//     export const settings = { rollouts: integer(8, "Rollouts of each prompt.", { min: 1 }) };
//
//     /** @type {Decide<typeof settings>} */
//     export function decide(settings, run, state, view) {
//       if (view.round > 0) return train(view.groups.map((g) => all(g.prompt)));
//       return sample(offer(view, run.groups).map((p) => request(p.id, settings.rollouts)));
//     }
//
// It may also export `signals`, a list of names, and `begin(settings, run)`, which checks settings
// against each other and the run and returns the first state. What `decide` leaves in `state` comes
// back at the next call: anything that JSON can carry, changed in place. What only some policies need is
// named: `columns`, a list of names of the data set's columns to ask `facts` for, and `needs`, a list of
// "any-prompt", "replay", "sampling", "stopping", "updating", "parts", "turns" and "starting".
//
// A policy is a pure function: `decide` may rest on its arguments alone. Chance comes from
// `view.seed` (see `Chance`), memory from `state`.
//
// In node these are plain functions that tests call (`calls.js`, with views of `made.js`); `build.mjs`
// makes a component of the contract `rollout:allocation@0.3.0` of them. The SDK knows nothing of any
// host.

export * from "./types.js";
export { flag, integer, number, text, choice, orElse } from "./settings.js";
export { size, solved, passRate, flat, mean, age, deviation, groupOf, offer, isOpen, canSample } from "./view.js";
export { Plan, sample, train, request, all, some } from "./plan.js";
export { Chance } from "./chance.js";
export { BadSetting, GiveUp } from "./refusal.js";
export * as facts from "./facts.js";
export * as log from "./log.js";
