// The step from an author's module to a component's exports, as componentize-js wants them.

import { write } from "rollout:reward/log@0.2.0";
import { aloud, withoutClocks } from "../aloud.js";
import { listen } from "../log.js";
import * as calls from "./calls.js";

listen(write);
withoutClocks((timer) => `a grader has no \`${timer}\`: a verdict has nothing to wait for`);

/** The component's `grader` for an author's: `export const grader = graderOf(author)`. */
export function graderOf(grader) {
  let begun;
  return {
    describe: () => aloud(() => calls.describe(grader)),
    begin: (settings) =>
      aloud(() => {
        begun = calls.begin(grader, settings);
      }),
    grade: (questions) => aloud(() => calls.grade(grader, begun, questions)),
  };
}
