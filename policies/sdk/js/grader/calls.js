// @ts-check
// The three calls of the contract, made of an author's module. Plain functions, for tests:
//
//     import * as grader from "./grader.js";
//     import { judge } from "./sdk/grader/calls.js";
//
//     const verdict = judge(grader, { gold: ["4"], answer: "It is 4." }, { caseless: true });

import { kebab } from "../refusal.js";
import { described, read } from "../settings.js";
import { Verdict } from "./verdict.js";
/** @import { Value } from "../types.js" */
/** @import { Description, Grader, Question, VerdictRecord } from "./types.js" */

/**
 * The contract's `describe` of a grader.
 * @param {Grader} grader
 * @returns {Description}
 */
export function describe(grader) {
  const { name, version, summary, settings = {}, parts = [] } = grader;
  for (const [key, value] of Object.entries({ name, version, summary })) {
    if (typeof value !== "string") throw new TypeError(`grader.js exports \`${key}\` as ${value}, not as text`);
  }
  return { name, version, summary, settings: described(settings), parts: [...parts] };
}

/**
 * The contract's `begin` of a grader: what its `grade` is to get.
 * @param {Grader} grader
 * @param {[string, Value][]} given
 * @returns {unknown}
 */
export function begin(grader, given) {
  const settings = read(grader.settings ?? {}, /** @type {any} */ ({ settings: given }));
  return grader.begin?.(settings) ?? settings;
}

/**
 * The contract's verdict on a question.
 * @param {Grader} grader
 * @param {unknown} begun What `begin` gave.
 * @param {Question} question
 * @returns {VerdictRecord}
 */
export function grade(grader, begun, question) {
  const verdict = grader.grade(begun, question);
  if (!(verdict instanceof Verdict)) {
    throw new TypeError(
      `grade returned ${shown(verdict)}, not a verdict; \`correct\`, \`reward\`, \`inParts\` and \`unscorable\` make one`,
    );
  }
  const { record } = verdict;
  if (record.tag === "judged" && record.val.reward.tag === "parts") {
    const [has, gives] = [[...(grader.parts ?? [])], record.val.reward.val.map(({ name }) => name)];
    if (has.sort().join() !== gives.sort().join()) {
      throw new TypeError(`\`parts\` names ${has.join(", ") || "none"}, and grade gives ${gives.join(", ")}`);
    }
  }
  return record;
}

/**
 * A verdict for tests: with the grader's default settings, some of them replaced by name.
 * @param {Grader} grader
 * @param {Partial<Question>} question
 * @param {Record<string, unknown>} changes As in `grade`: `{ atMostOff: 0.5 }`.
 * @returns {VerdictRecord}
 */
export function judge(grader, question, changes = {}) {
  const settings = describe(grader).settings.map(({ name, default: value }) => [name, { ...value }]);
  const values = new Map(/** @type {any} */ (settings));
  for (const [key, val] of Object.entries(changes)) {
    const value = values.get(kebab(key));
    if (value === undefined) throw new Error(`\`${grader.name}\` has no setting \`${key}\``);
    value.val = val;
  }
  const begun = begin(grader, /** @type {any} */ (settings));
  return grade(grader, begun, { prompt: "", source: "", gold: [], answer: "", ...question });
}

/** @param {unknown} value */
function shown(value) {
  if (value instanceof Promise) return "a promise (a verdict has nothing to wait for: take `async` off)";
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
