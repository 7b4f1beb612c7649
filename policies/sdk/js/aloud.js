// How what goes wrong in a component is told: a refusal in the contract's words, anything else in words with the
// author's lines, and then the end.

import { write } from "./log.js";
import { Refusal } from "./refusal.js";

const unreachable = globalThis.setTimeout;

/**
 * A component is built without clocks: `Date.now()` is the time of the build. What else asks for one would end in an
 * `unreachable` with no words. `words` are what is said of a timer.
 */
export function withoutClocks(words) {
  globalThis.performance.now = () => 0;
  for (const timer of ["setTimeout", "setInterval"]) {
    globalThis[timer] = () => {
      throw new Error(words(timer));
    };
  }
}

/**
 * A refusal goes to the host as the contract has it. Whatever else is thrown is a mistake: its words and
 * the author's lines go to the log, and the call ends in a trap. Left alone it would lose its stack.
 */
export function aloud(call) {
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
  const glue = frames.findIndex((frame) => /sdk\/(js\/)?(grader\/)?calls\.js:/.test(frame));
  const own = glue < 0 ? frames : frames.slice(0, glue);
  const told = own.slice(0, 8).map((frame) => {
    const [name, place] = frame.split(/@(?=[^@]*$)/);
    return `    at ${name || "(top)"} (${place})`;
  });
  if (own.length > told.length) told.push(`    … ${own.length - told.length} more`);
  return [`${thrown.name}: ${thrown.message}`, ...told].join("\n");
}
