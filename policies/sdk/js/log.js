// @ts-check
// Words for the policy's author. They go to the run's log and change nothing.

/** @typedef {"debug" | "info" | "warn" | "error"} Level */

/** @type {(level: Level, line: string) => void} */
let sink = (level, line) => console.error(`${level}: ${line}`);

/**
 * Writes a line to the run's log; to standard error in node.
 * @param {Level} level
 * @param {string} line
 */
export function write(level, line) {
  sink(level, String(line));
}

/**
 * Writes a line of interest to anyone.
 * @param {string} line
 */
export function info(line) {
  write("info", line);
}

/**
 * Writes a line about something that looks wrong.
 * @param {string} line
 */
export function warn(line) {
  write("warn", line);
}

/**
 * Sends all lines elsewhere from now on. For the component, and for tests of what is said.
 * @param {(level: Level, line: string) => void} listener
 */
export function listen(listener) {
  sink = listener;
}
