// @ts-check
// A policy's own errors. Throw one where the policy can't go on: the run stops and shows its words.
// Anything else that is thrown is a mistake in the policy, and shown with its stack.

/** @import { Refused } from "./types.js" */

/** An error that the contract carries. */
export class Refusal extends Error {
  /**
   * @param {string} message
   * @param {Refused} refused
   */
  constructor(message, refused) {
    super(message);
    this.refused = refused;
  }
}

/** A setting has a value that the policy can't work with. */
export class BadSetting extends Refusal {
  /**
   * @param {string} setting Its name, in `settings` or in a config.
   * @param {string} reason
   */
  constructor(setting, reason) {
    const name = kebab(setting);
    super(`\`${name}\`: ${reason}`, { tag: "setting", val: { name, reason } });
  }
}

/** The state is none that this version of the policy has written. The SDK throws it. */
export class BadState extends Refusal {
  /** @param {string} reason */
  constructor(reason) {
    super(reason, { tag: "state", val: reason });
  }
}

/** Anything else. */
export class GiveUp extends Refusal {
  /** @param {string} reason */
  constructor(reason) {
    super(reason, { tag: "other", val: reason });
  }
}

/**
 * A setting's name as a config has it: `solvedAtLeast` is `solved-at-least`.
 * @param {string} name
 */
export function kebab(name) {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/**
 * The other way round: `solved-at-least` is `solvedAtLeast`.
 * @param {string} name
 */
export function camel(name) {
  return name.replace(/-[a-z]/g, (letter) => letter[1].toUpperCase());
}
