// The grader as plain functions: `make test`.

#include "grader.c"

#include "made_grader.h"

static bool right(const char *gold, const char *answer) {
  const allot_question question = made_question(gold, answer);
  return made_right(grade(&question));
}

static void white_space_around_makes_no_difference(void) {
  const allot_settings given = made_settings();
  allot_error error;
  expect(begin(&given, &error));
  expect(right("Paris", " Paris\n"));
  expect(!right("Paris", "paris"));
}

static void capitals_make_none_where_a_run_says_so(void) {
  allot_settings given = made_settings();
  allot_error error;
  made_setting(&given, "caseless", allot_flag(true));
  expect(begin(&given, &error));
  expect(right("Paris", "PARIS"));
}

int main(void) {
  white_space_around_makes_no_difference();
  capitals_make_none_where_a_run_says_so();
  puts("2 tests passed");
}
