// The step from an author's module to a component's exports, as componentize-js wants them.

import { column, costs, counts, measures } from "rollout:allocation/facts@0.2.0";
import { write } from "rollout:allocation/log@0.2.0";
import * as calls from "./calls.js";
import { answer } from "./facts.js";
import { listen } from "./log.js";
import { Refusal, camel } from "./refusal.js";

listen(write);
answer({ counts, measures, column, costs });

// A component is built without clocks: `Date.now()` is the time of the build. What else asks for one
// would end in an `unreachable` with no words.
const unreachable = globalThis.setTimeout;
globalThis.performance.now = () => 0;
for (const timer of ["setTimeout", "setInterval"]) {
  globalThis[timer] = () => {
    throw new Error(`a policy has no \`${timer}\`: a decision has nothing to wait for`);
  };
}

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
  const action = tag === "train" ? { tag, val: trained() } : plan.action;
  const { skip, defer, evict } = plan;
  return { ...plan, action, skip: whole(skip), defer: whole(defer), evict: whole(evict) };
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
  return tag === "among" ? { tag, val: whole(val) } : { tag };
}

const whole = (numbers) => new Uint32Array(numbers);

/**
 * A refusal goes to the host as the contract has it. Whatever else is thrown is a mistake: its words and
 * the author's lines go to the log, and the call ends in a trap. Left alone it would lose its stack.
 */
function aloud(call) {
  try {
    return call();
  } catch (thrown) {
    if (thrown instanceof Refusal) return { tag: "err", val: thrown.refused };
    write("error", words(thrown));
    return trap(thrown);
  }
}

function trap(thrown) {
  unreachable(() => {}, 0);
  // Were it reached, this would do: a getter's error gets past the bindings, which catch all others.
  throw {
    get payload() {
      throw thrown;
    },
  };
}

/** What was thrown, and the innermost of the author's lines. */
function words(thrown) {
  if (!(thrown instanceof Error)) {
    return `threw ${JSON.stringify(thrown) ?? String(thrown)}; an Error would tell its line`;
  }
  const frames = thrown.stack.trim().split("\n");
  const glue = frames.findIndex((frame) => /sdk\/(js\/)?calls\.js:/.test(frame));
  const own = glue < 0 ? frames : frames.slice(0, glue);
  const told = own.slice(0, 8).map((frame) => {
    const [name, place] = frame.split(/@(?=[^@]*$)/);
    return `    at ${name || "(top)"} (${place})`;
  });
  if (own.length > told.length) told.push(`    … ${own.length - told.length} more`);
  return [`${thrown.name}: ${thrown.message}`, ...told].join("\n");
}
