// An answer is right if it is a gold answer.
//
// Change `grade` to your own rule. A grader is a pure function: a verdict rests on the settings and the question alone.

#include "allot_grader.h"

// What a run may set.
static bool caseless;

void describe(allot_description *self) {
  allot_describe(self, "{{name}}", "0.1.0", "right is what is a gold answer");
  allot_set(self, "caseless", allot_flag(false), "Whether capital letters are the same as small ones.");
}

bool begin(const allot_settings *given, allot_error *error) {
  return allot_get_flag(given, "caseless", &caseless, error);
}

// A copy of a text without what makes no difference. Of capital letters and white space it knows what ASCII has.
static allot_text plain(allot_text text) {
  text = allot_trim(text);
  text = allot_copy((const char *)text.ptr, text.len);
  for (size_t i = 0; caseless && i < text.len; i++)
    if (text.ptr[i] >= 'A' && text.ptr[i] <= 'Z') text.ptr[i] += 'a' - 'A';
  return text;
}

allot_verdict grade(const allot_question *question) {
  if (question->gold.len == 0) return allot_unscorable("there is no gold answer");
  const allot_text answer = plain(question->answer);
  for (size_t i = 0; i < question->gold.len; i++)
    if (allot_same(plain(question->gold.ptr[i]), answer)) return allot_correct(true);
  return allot_correct(false);
}
