// What each language's grader of groups does here: it compares answers, and a fault.

#include "allot_grader.h"

static double best;

void describe(allot_description *self) {
  allot_describe(self, "podium", "0.1.0", "the shortest right answers of a group");
  allot_set(self, "best", allot_number(1), "What the shortest right answer is worth.");
}

bool begin(const allot_settings *given, allot_error *error) { return allot_get_number(given, "best", &best, error); }

static bool is_right(const allot_question *question) {
  for (size_t i = 0; i < question->gold.len; i++)
    if (allot_same(question->gold.ptr[i], question->answer)) return true;
  return false;
}

void grade_group(const allot_questions *questions, allot_verdicts *verdicts) {
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < questions->len; i++) {
    const allot_question *question = &questions->ptr[i];
    if (allot_is(question->answer, "!")) allot_panic("no answer begins so");
    if (is_right(question) && question->answer.len < least) least = question->answer.len;
  }
  for (size_t i = 0; i < questions->len; i++) {
    const bool right = is_right(&questions->ptr[i]);
    const bool first = right && questions->ptr[i].answer.len == least;
    const allot_verdict verdict = allot_reward(first ? (float)best : 0, right);
    allot_push(verdicts, questions->len == 1 ? allot_unscorable("it is alone") : verdict);
  }
}
