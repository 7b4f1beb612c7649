// What a C author needs to write a grader of answers.
//
// A grader is three functions in one file: `describe`, `begin` and `grade`; or `grade_group` in place of `grade`, where
// verdicts compare the answers of a group. They are declared below. It is a pure
// function: a verdict rests on the settings and the question alone. `begin` is called once before answers are judged,
// and keeps what it reads of the settings in variables of the file.
//
// Each call has a memory of its own, which goes when the call ends. So nothing is ever freed.
//
// Compiled for the machine at hand the three are plain functions that a test calls (see `made_grader.h`); compiled for
// Wasm they are a component of the contract `rollout:reward@0.2.0`.
#ifndef ALLOT_GRADER_H
#define ALLOT_GRADER_H

#include "gen/reward.h"

// The contract's types, by their own names. What each field means is told in `gen/reward.h`.
typedef rollout_reward_types_description_t allot_description;
typedef rollout_reward_types_error_t allot_error;
typedef rollout_reward_types_part_t allot_part;
typedef rollout_reward_types_question_t allot_question;
typedef rollout_reward_types_setting_t allot_setting;
typedef rollout_reward_types_value_t allot_value;
typedef rollout_reward_types_verdict_t allot_verdict;
typedef reward_string_t allot_text;
typedef exports_rollout_reward_grader_list_question_t allot_questions;
typedef exports_rollout_reward_grader_list_verdict_t allot_verdicts;

// The settings in force.
typedef struct allot_settings {
  exports_rollout_reward_grader_list_tuple2_string_value_t settings;
} allot_settings;

// ── What a grader's file defines ───────────────────────────────────────────────────────────

// They keep their names in a component, whatever the compiler would merge them into: a trap then
// tells which of them it was in.
#define ALLOT_EXPORT __attribute__((noinline))

// Says what the grader is and what can be set.
ALLOT_EXPORT void describe(allot_description *self);

// Takes the settings. Where it returns false, `error` says why. May be left out by a grader without settings.
ALLOT_EXPORT bool begin(const allot_settings *given, allot_error *error);

// Judges an answer.
ALLOT_EXPORT __attribute__((weak)) allot_verdict grade(const allot_question *question);

// Judges the answers of a group, which differ in `answer` alone: pushes a verdict for each, in their order.
ALLOT_EXPORT __attribute__((weak)) void grade_group(const allot_questions *questions, allot_verdicts *verdicts);

// ── The log, text, lists, errors and settings ──────────────────────────────────────────────

#define allot_write rollout_reward_log_write
#define ALLOT_TYPE(name) ROLLOUT_REWARD_TYPES_##name

#include "settings.h"

// A part of the grader's rewards.
static inline void allot_has_part(allot_description *self, const char *name) {
  allot_push(&self->parts, allot_words(name, NULL));
}

// The text without white space around it. It is the same memory.
static inline allot_text allot_trim(allot_text text) {
  static const char *const white = " \t\r\n\v\f";
  while (text.len && memchr(white, text.ptr[0], 6)) text.ptr++, text.len--;
  while (text.len && memchr(white, text.ptr[text.len - 1], 6)) text.len--;
  return text;
}

// Whether two texts are the same.
static inline bool allot_same(allot_text one, allot_text other) {
  return one.len == other.len && (one.len == 0 || memcmp(one.ptr, other.ptr, one.len) == 0);
}

// ── Verdicts ───────────────────────────────────────────────────────────────────────────────

// The run's reward of a right answer, or of a wrong one.
static inline allot_verdict allot_correct(bool correct) {
  allot_verdict verdict;
  memset(&verdict, 0, sizeof verdict);
  verdict.tag = ROLLOUT_REWARD_TYPES_VERDICT_JUDGED;
  verdict.val.judged.correct.is_some = true;
  verdict.val.judged.correct.val = correct;
  verdict.val.judged.reward.tag = ROLLOUT_REWARD_TYPES_REWARD_BY_CORRECTNESS;
  return verdict;
}

// This much, and whether the answer is right.
static inline allot_verdict allot_reward(float reward, bool correct) {
  allot_verdict verdict = allot_correct(correct);
  verdict.val.judged.reward.tag = ROLLOUT_REWARD_TYPES_REWARD_NUMBER;
  verdict.val.judged.reward.val.number = reward;
  return verdict;
}

// A reward in parts, and whether the answer is right. `allot_give` gives each part of the description.
static inline allot_verdict allot_in_parts(bool correct) {
  allot_verdict verdict = allot_correct(correct);
  verdict.val.judged.reward.tag = ROLLOUT_REWARD_TYPES_REWARD_PARTS;
  verdict.val.judged.reward.val.parts.ptr = NULL;
  verdict.val.judged.reward.val.parts.len = 0;
  return verdict;
}

// Gives a part of a reward in parts.
static inline void allot_give(allot_verdict *verdict, const char *name, float value) {
  allot_assert(verdict->val.judged.reward.tag == ROLLOUT_REWARD_TYPES_REWARD_PARTS);
  const allot_part part = {allot_words(name, NULL), value};
  allot_push(&verdict->val.judged.reward.val.parts, part);
}

// The same reward, and it is for the run to say from which reward on an answer is right.
static inline allot_verdict allot_undecided(allot_verdict verdict) {
  verdict.val.judged.correct.is_some = false;
  return verdict;
}

// No verdict, and why not, in one line.
static inline allot_verdict allot_unscorable(const char *reason) {
  allot_verdict verdict;
  memset(&verdict, 0, sizeof verdict);
  verdict.tag = ROLLOUT_REWARD_TYPES_VERDICT_UNSCORABLE;
  verdict.val.unscorable = allot_words(reason, NULL);
  return verdict;
}

#endif
