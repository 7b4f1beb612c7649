// @ts-check
// Settings: what a run may set of a policy, by name.
//
// `export const settings = { solvedAtLeast: number(0.125, "…") }` is the setting `solved-at-least` in a
// config, and `settings.solvedAtLeast` in `decide`. The default fixes the type.

import { BadSetting, kebab } from "./refusal.js";
/** @import { Run, Value, Description, Values } from "./types.js" */

/**
 * A setting: what it is by default, what people read about it, and which values it takes.
 * @template T
 */
export class Setting {
  /**
   * @param {Value["tag"]} tag
   * @param {T} byDefault
   * @param {string} summary
   * @param {string} expected What its values are, in words.
   * @param {(value: T) => string | undefined} wrong What is wrong with a value, if anything.
   */
  constructor(tag, byDefault, summary, expected, wrong = () => undefined) {
    this.tag = tag;
    this.default = byDefault;
    this.summary = summary;
    this.expected = expected;
    this.wrong = wrong;
  }
}

/**
 * True or false.
 * @param {boolean} byDefault
 * @param {string} summary One line for people.
 * @returns {Setting<boolean>}
 */
export function flag(byDefault, summary) {
  return new Setting("flag", byDefault, summary, "true or false");
}

/**
 * A whole number. `{ min: 0 }` makes it a count; `{ min: 1, max: 64 }` gives both bounds.
 * @param {number} byDefault
 * @param {string} summary One line for people.
 * @param {{ min?: number, max?: number }} bounds
 * @returns {Setting<number>}
 */
export function integer(byDefault, summary, bounds = {}) {
  return bounded("integer", byDefault, summary, "a whole number", bounds);
}

/**
 * A number.
 * @param {number} byDefault
 * @param {string} summary One line for people.
 * @param {{ min?: number, max?: number }} bounds
 * @returns {Setting<number>}
 */
export function number(byDefault, summary, bounds = {}) {
  return bounded("number", byDefault, summary, "a number", bounds);
}

/**
 * Text.
 * @param {string} byDefault
 * @param {string} summary One line for people.
 * @returns {Setting<string>}
 */
export function text(byDefault, summary) {
  return new Setting("text", byDefault, summary, "text");
}

/**
 * One of some texts.
 * @template {string} T
 * @param {readonly T[]} names All of them.
 * @param {NoInfer<T>} byDefault
 * @param {string} summary One line for people.
 * @returns {Setting<T>}
 */
export function choice(names, byDefault, summary) {
  const expected = `one of ${names.join(", ")}`;
  const wrong = (/** @type {T} */ name) =>
    names.includes(name) ? undefined : `\`${name}\` is unknown; expected ${expected}`;
  return new Setting("text", byDefault, summary, expected, wrong);
}

/**
 * A count that a run may leave to something else by setting it to 0.
 * @param {number} count
 * @param {number} byDefault
 */
export function orElse(count, byDefault) {
  return count === 0 ? byDefault : count;
}

/**
 * A number, with bounds if there are any. The words are those of the SDKs of other languages.
 * @param {"integer" | "number"} tag
 * @param {number} byDefault
 * @param {string} summary
 * @param {string} kind
 * @param {{ min?: number, max?: number }} bounds
 * @returns {Setting<number>}
 */
function bounded(tag, byDefault, summary, kind, { min = -Infinity, max = Infinity, ...others }) {
  for (const other of Object.keys(others))
    throw new TypeError(`a setting has no bound \`${other}\`; its bounds are \`min\` and \`max\``);
  let range = "";
  if (min > -Infinity && max < Infinity) range = ` from ${min} to ${max}`;
  else if (min > -Infinity) range = `, ${min} or more`;
  else if (max < Infinity) range = `, ${max} or less`;
  const expected = kind + range;
  const wrong = (/** @type {number} */ value) =>
    value < min || value > max ? `${value} is not ${expected}` : undefined;
  return new Setting(tag, byDefault, summary, expected, wrong);
}

/**
 * The settings as the contract describes them.
 * @param {Record<string, Setting<any>>} settings
 * @returns {Description["settings"]}
 */
export function described(settings) {
  return Object.entries(settings).map(([key, setting]) => ({
    name: kebab(key),
    default: { tag: setting.tag, val: setting.default },
    summary: setting.summary,
  }));
}

/**
 * The values in force in a run.
 * @template {Record<string, Setting<any>>} S
 * @param {S} settings
 * @param {Run} run
 * @returns {Values<S>}
 */
export function read(settings, run) {
  const given = new Map(run.settings);
  const values = Object.entries(settings).map(([key, setting]) => {
    const value = given.get(kebab(key));
    if (value === undefined) throw new BadSetting(key, "the host did not give it");
    if (value.tag !== setting.tag) throw new BadSetting(key, `expected ${setting.expected}`);
    const wrong = setting.wrong(value.val);
    if (wrong !== undefined) throw new BadSetting(key, wrong);
    return [key, value.val];
  });
  return Object.fromEntries(values);
}
