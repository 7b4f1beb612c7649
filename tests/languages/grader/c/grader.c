// What each language's grader does here: all that a verdict can be, and a fault.

#include "allot_grader.h"

static allot_text word;
static double per_letter;

void describe(allot_description *self) {
  allot_describe(self, "yardstick", "0.1.0", "all that a verdict can be");
  allot_has_part(self, "answer");
  allot_has_part(self, "length");
  allot_set(self, "word", allot_string("pass"), "The answer that can't be judged.");
  allot_set(self, "per-letter", allot_number(0.125), "What each letter is worth.");
  allot_set(self, "open", allot_flag(true), "Whether anything is.");
  allot_set(self, "longest", allot_integer(100), "The longest answer.");
}

bool begin(const allot_settings *given, allot_error *error) {
  bool open;
  int32_t longest;
  if (!allot_get_text(given, "word", &word, error) || !allot_get_number(given, "per-letter", &per_letter, error) ||
      !allot_get_flag(given, "open", &open, error) || !allot_get_integer(given, "longest", &longest, error))
    return false;
  if (per_letter < 0) return allot_bad_setting(error, "per-letter", "a letter costs nothing");
  return open || allot_give_up(error, "it is closed");
}

allot_verdict grade(const allot_question *question) {
  const allot_text answer = question->answer;
  bool right = false;
  for (size_t i = 0; i < question->gold.len; i++) right |= allot_same(question->gold.ptr[i], answer);

  if (allot_is(answer, "!")) allot_panic("no answer begins so");
  if (allot_is(answer, "=")) return allot_correct(right);
  if (allot_is(answer, "+")) return allot_reward(0.75, right);
  if (allot_is(answer, "?")) return allot_undecided(allot_reward(0.25, false));
  if (allot_same(answer, word)) {
    const allot_text reason = allot_words(allot_c(question->source), " to ", allot_c(question->prompt), NULL);
    return allot_unscorable(allot_c(reason));
  }
  allot_verdict verdict = allot_in_parts(right);
  allot_give(&verdict, "length", (float)((double)answer.len * per_letter));
  allot_give(&verdict, "answer", right ? 1 : 0);
  return verdict;
}
