// @ts-check
// State: what a policy remembers between two calls, as bytes.
//
// Compact JSON of [name, version, state], so that the bytes of another policy, or of another version
// of this one, are refused and never misread. No bytes stand for no state.

import { BadState } from "./refusal.js";

/**
 * The bytes.
 * @param {{ name: string, version: string }} policy
 * @param {unknown} state
 */
export function save({ name, version }, state) {
  if (state === undefined) return new Uint8Array(0);
  return new TextEncoder().encode(JSON.stringify([name, version, state], carried));
}

/**
 * The state of these bytes.
 * @param {{ name: string, version: string }} policy
 * @param {ArrayLike<number>} bytes
 * @returns {any}
 */
export function load({ name, version }, bytes) {
  if (bytes.length === 0) return undefined;
  const parts = parsed(bytes);
  if (!Array.isArray(parts) || parts.length !== 3) {
    throw new BadState(`${bytes.length} bytes that no policy in JavaScript has written`);
  }
  const [writer, written, state] = parts;
  if (writer !== name || written !== version) {
    throw new BadState(`it was written by ${writer} ${written}, and this is ${name} ${version}`);
  }
  return state;
}

/** @param {ArrayLike<number>} bytes */
function parsed(bytes) {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes)));
  } catch {
    return undefined;
  }
}

/**
 * Lets through what JSON can carry and bring back. It would drop the rest without a word: a Set comes
 * back empty, NaN as null.
 * @param {string} key
 * @param {unknown} value
 */
function carried(key, value) {
  switch (typeof value) {
    case "number":
      if (Number.isFinite(value)) return value;
      break;
    case "object":
      if (value === null || Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype) {
        return value;
      }
      throw new TypeError(`the state has a ${value.constructor?.name} at \`${key}\`, which JSON can't carry`);
    case "string":
    case "boolean":
      return value;
  }
  throw new TypeError(`the state has ${String(value)} at \`${key}\`, which JSON can't carry`);
}
