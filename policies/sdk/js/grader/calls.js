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
  const compares = grader.gradeGroup !== undefined;
  if (compares === (grader.grade !== undefined)) {
    throw new TypeError(`grader.js exports ${compares ? "both `grade` and" : "neither `grade` nor"} \`gradeGroup\``);
  }
  for (const [key, value] of Object.entries({ name, version, summary })) {
    if (typeof value !== "string") throw new TypeError(`grader.js exports \`${key}\` as ${value}, not as text`);
  }
  return { name, version, summary, settings: described(settings), parts: [...parts], compares };
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
 * The contract's verdicts on questions, which are a group if the grader compares answers.
 * @param {Grader} grader
 * @param {unknown} begun What `begin` gave.
 * @param {Question[]} questions
 * @returns {VerdictRecord[]}
 */
export function grade(grader, begun, questions) {
  if (grader.grade !== undefined) return questions.map((question) => checked(grader, grader.grade?.(begun, question)));
  const verdicts = grader.gradeGroup?.(begun, questions);
  if (!Array.isArray(verdicts) || verdicts.length !== questions.length) {
    const what = Array.isArray(verdicts) ? `${verdicts.length} verdicts` : shown(verdicts);
    throw new TypeError(`gradeGroup returned ${what} for ${questions.length} answers, not a list with one for each`);
  }
  return verdicts.map((verdict) => checked(grader, verdict));
}

/**
 * A verdict as the contract carries it.
 * @param {Grader} grader
 * @param {unknown} verdict
 * @returns {VerdictRecord}
 */
function checked(grader, verdict) {
  const by = grader.grade !== undefined ? "grade" : "gradeGroup";
  if (!(verdict instanceof Verdict)) {
    throw new TypeError(
      `${by} returned ${shown(verdict)}, not a verdict; \`correct\`, \`reward\`, \`inParts\` and \`unscorable\` make one`,
    );
  }
  const { record } = verdict;
  if (record.tag === "judged" && record.val.reward.tag === "parts") {
    const [has, gives] = [[...(grader.parts ?? [])], record.val.reward.val.map(({ name }) => name)];
    if (has.sort().join() !== gives.sort().join()) {
      throw new TypeError(`\`parts\` names ${has.join(", ") || "none"}, and ${by} gives ${gives.join(", ")}`);
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
  return judgeGroup(grader, [question], changes)[0];
}

/**
 * The verdicts on a group for tests: with the grader's default settings, some of them replaced by name.
 * @param {Grader} grader
 * @param {Partial<Question>[]} questions
 * @param {Record<string, unknown>} changes As in `judge`.
 * @returns {VerdictRecord[]}
 */
export function judgeGroup(grader, questions, changes = {}) {
  const settings = describe(grader).settings.map(({ name, default: value }) => [name, { ...value }]);
  const values = new Map(/** @type {any} */ (settings));
  for (const [key, val] of Object.entries(changes)) {
    const value = values.get(kebab(key));
    if (value === undefined) throw new Error(`\`${grader.name}\` has no setting \`${key}\``);
    value.val = val;
  }
  const begun = begin(grader, /** @type {any} */ (settings));
  const whole = questions.map((question) => ({ prompt: "", source: "", gold: [], answer: "", ...question }));
  return grade(grader, begun, whole);
}

/** @param {unknown} value */
function shown(value) {
  if (value instanceof Promise) return "a promise (a verdict has nothing to wait for: take `async` off)";
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
