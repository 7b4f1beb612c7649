// The step from an author's module to a component's exports, as componentize-js wants them.

import { write } from "rollout:allocation/log@0.1.0";
import * as calls from "./calls.js";
import { listen } from "./log.js";
import { Refusal } from "./refusal.js";

listen(write);

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
    describe: () => aloud(() => calls.describe(policy)),
    begin: (run) => aloud(() => calls.begin(policy, run)),
    decide: (run, state, view) => aloud(() => packed(calls.decide(policy, run, state, view))),
  };
}

/** A plan with its lists as typed arrays, which cross over in one go and not number by number. */
function packed(plan) {
  const { tag, val } = plan.action;
  const trained = () => ({ picks: val.picks.map(packedPick), hold: whole(val.hold) });
  const action = tag === "train" ? { tag, val: trained() } : plan.action;
  return { ...plan, action, skip: whole(plan.skip), evict: whole(plan.evict) };
}

function packedPick({ prompt, rollouts, advantage, weight }) {
  return {
    prompt,
    rollouts: rollouts === undefined ? undefined : whole(rollouts),
    advantage: advantage.tag === "given" ? { tag: "given", val: new Float32Array(advantage.val) } : advantage,
    weight,
  };
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
