import assert from "node:assert/strict";
import test from "node:test";

import * as grader from "./grader.js";
import { judge } from "./sdk/grader/calls.js";
import { correct } from "./sdk/grader/grader.js";

test("white space around makes no difference", () => {
  assert.deepEqual(judge(grader, { gold: ["Paris"], answer: " Paris\n" }), correct(true).record);
  assert.deepEqual(judge(grader, { gold: ["Paris"], answer: "paris" }), correct(false).record);
});

test("capitals make none where a run says so", () => {
  const verdict = judge(grader, { gold: ["Paris"], answer: "PARIS" }, { caseless: true });
  assert.deepEqual(verdict, correct(true).record);
});
