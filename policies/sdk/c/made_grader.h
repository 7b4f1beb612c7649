// Made questions and settings, for the tests of graders: plain C, no Wasm.
//
// A test includes its grader's file, `#include "grader.c"`, and so can call all that is in it.
#ifndef ALLOT_MADE_GRADER_H
#define ALLOT_MADE_GRADER_H

#include "allot_grader.h"

// Ends the test where a condition does not hold.
#define expect(condition)                                                         \
  ((condition) ? (void)0                                                          \
               : (fprintf(stderr, "%s:%d: `%s` does not hold\n", __FILE__, __LINE__, #condition), exit(1)))

// The grader's default settings.
static inline allot_settings made_settings(void) {
  allot_description self;
  allot_settings given = {{NULL, 0}};
  describe(&self);
  for (size_t i = 0; i < self.settings.len; i++) {
    exports_rollout_reward_grader_tuple2_string_value_t setting = {self.settings.ptr[i].name,
                                                                   self.settings.ptr[i].default_};
    allot_push(&given.settings, setting);
  }
  return given;
}

// Replaces one of them.
static inline void made_setting(allot_settings *given, const char *name, allot_value value) {
  for (size_t i = 0; i < given->settings.len; i++) {
    if (!allot_is(given->settings.ptr[i].f0, name)) continue;
    given->settings.ptr[i].f1 = value;
    return;
  }
  fprintf(stderr, "the grader has no setting `%s`\n", name);
  exit(1);
}

// An answer that is judged by one gold answer.
static inline allot_question made_question(const char *gold, const char *answer) {
  allot_question question = {{NULL, 0}, {NULL, 0}, {NULL, 0}, allot_words(answer, NULL)};
  allot_push(&question.gold, allot_words(gold, NULL));
  return question;
}

// Whether a verdict says that an answer is right.
static inline bool made_right(allot_verdict verdict) {
  return verdict.tag == ROLLOUT_REWARD_TYPES_VERDICT_JUDGED && verdict.val.judged.correct.is_some &&
         verdict.val.judged.correct.val;
}

#endif
