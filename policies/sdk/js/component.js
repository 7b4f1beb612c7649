// The step from an author's module to a component's exports, as componentize-js wants them.

import { column, costs, counts, measures } from "rollout:allocation/facts@0.3.0";
import { write } from "rollout:allocation/log@0.3.0";
import { aloud, withoutClocks } from "./aloud.js";
import * as calls from "./calls.js";
import { answer } from "./facts.js";
import { listen } from "./log.js";
import { camel } from "./refusal.js";

listen(write);
answer({ counts, measures, column, costs });
withoutClocks((timer) => `a policy has no \`${timer}\`: a decision has nothing to wait for`);

/** The component's `allocator` for a policy: `export const allocator = allocatorOf(policy)`. */
export function allocatorOf(policy) {
  return {
    describe: () => aloud(() => described(calls.describe(policy))),
    begin: (run) => aloud(() => calls.begin(policy, run)),
    decide: (run, state, view) => aloud(() => packed(calls.decide(policy, run, state, view))),
  };
}

/** A description with its needs as the bindings have flags. */
function described(description) {
  const needs = Object.fromEntries(description.needs.map((need) => [camel(need), true]));
  return { ...description, needs };
}

/** A plan with its lists as typed arrays, which cross over in one go and not number by number. */
function packed(plan) {
  const { tag, val } = plan.action;
  const trained = () => ({ ...val, picks: val.picks.map(packedPick), hold: val.hold.map(packedHold) });
  const action = { tag, val: tag === "train" ? trained() : val.map(packedRequest) };
  const { skip, defer, evict } = plan;
  return { ...plan, action, skip: whole(skip), defer: whole(defer), evict: whole(evict) };
}

function packedRequest(request) {
  return { ...request, starts: request.starts ?? [] };
}

function packedHold(hold) {
  if (typeof hold === "number") return { prompt: hold, rollouts: undefined };
  return { prompt: hold.prompt, rollouts: whole(hold.rollouts) };
}

function packedPick({ prompt, rollouts, advantage, weight }) {
  return {
    prompt,
    rollouts: rollouts === undefined ? undefined : whole(rollouts),
    advantage: packedAdvantage(advantage),
    weight,
  };
}

function packedAdvantage({ tag, val }) {
  if (tag === "given") return { tag, val: new Float32Array(val) };
  if (tag === "by-turn") return { tag, val: val.map((turns) => new Float32Array(turns)) };
  return tag === "among" ? { tag, val: whole(val) } : { tag };
}

const whole = (numbers) => new Uint32Array(numbers);
