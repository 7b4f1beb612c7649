// The contract's three exports, made of a grader's three functions. Only for Wasm.

#include "allot_grader.h"

// A grader without settings need not define it.
__attribute__((weak)) bool begin(const allot_settings *given, allot_error *error) {
  (void)given, (void)error;
  return true;
}

void exports_rollout_reward_grader_describe(allot_description *self) {
  // A grader has one of the two.
  allot_assert((grade == NULL) != (grade_group == NULL));
  describe(self);
  self->compares = grade_group != NULL;
}

bool exports_rollout_reward_grader_begin(exports_rollout_reward_grader_list_tuple2_string_value_t *settings,
                                         allot_error *error) {
  // The settings are what `begin` may keep a pointer to: they stay.
  const allot_settings given = {*settings};
  return begin(&given, error);
}

void exports_rollout_reward_grader_grade(allot_questions *questions, allot_verdicts *verdicts) {
  *verdicts = (allot_verdicts){NULL, 0};
  if (grade_group != NULL) grade_group(questions, verdicts);
  else for (size_t i = 0; i < questions->len; i++) allot_push(verdicts, grade(&questions->ptr[i]));
}

// The generated code links this, to draw in an object file with the contract's types. The program
// that makes the component adds the types itself, so there is no such file.
void __component_type_object_force_link_reward(void) {}
