// The contract's types, wit/reward/0.2/reward.wit, as JavaScript sees them: an absent value is undefined.

import type { Setting } from "../settings.js";
import type { Value, Values } from "../types.js";
import type { Verdict } from "./verdict.js";

/** An answer to be judged. */
export interface Question {
  /** The problem, before any template or chat. */
  prompt: string;
  /** Where the problem comes from, as the run's config or the data set says. */
  source: string;
  /** What the data set has as the problem's answer. Of several, any is right. */
  gold: string[];
  /** What the model said. */
  answer: string;
}

/** What is said of an answer, as the contract carries it. */
export type VerdictRecord =
  | { tag: "judged"; val: { correct: boolean | undefined; reward: Reward } }
  | { tag: "unscorable"; val: string };

/** A reward, as the contract carries it. */
export type Reward =
  | { tag: "by-correctness" }
  | { tag: "number"; val: number }
  | { tag: "parts"; val: { name: string; value: number }[] };

/** What a grader says of itself. */
export interface Description {
  name: string;
  version: string;
  summary: string;
  settings: { name: string; default: Value; summary: string }[];
  parts: string[];
  compares: boolean;
}

/** What a grader's module exports. */
export interface Grader {
  /** Short and lower-case, as in a record: `unit-tests`. */
  name: string;
  version: string;
  /** One line for people. */
  summary: string;
  /** The parts of its rewards, by name. */
  parts?: readonly string[];
  settings?: Record<string, Setting<any>>;
  begin?(settings: any): unknown;
  grade?(begun: any, question: Question): Verdict;
  /** In place of `grade`: a verdict for each answer of a group, in their order. */
  gradeGroup?(begun: any, questions: Question[]): Verdict[];
}

/** The type of a grader's `grade`; `Begun` is what its `begin` returns, if that returns anything. */
export type Grade<S = {}, Begun = Values<S>> = (settings: Begun, question: Question) => Verdict;

/** The type of a grader's `gradeGroup`; `Begun` as in `Grade`. */
export type GradeGroup<S = {}, Begun = Values<S>> = (settings: Begun, questions: Question[]) => Verdict[];
