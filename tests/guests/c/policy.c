// A policy that goes wrong in the way that its setting `how` says: what its author is then told is
// what the tests look at.

#include "allot.h"

#include <assert.h>

void describe(allot_description *self) {
  allot_describe(self, "faults", "0.1.0", "goes wrong in the way that is asked for");
  allot_set(self, "how", allot_string("fine"), "What to do in `decide`.");
  allot_set(self, "few", allot_integer(4), "A number with bounds.");
}

static const char *const ways[] = {"fine",  "panic", "assert",  "libc-assert", "abort",  "print",
                                   "flood", "null",  "recurse", "loop",        "grow", "give-up", "needless"};

bool begin(const allot_run *run, allot_bytes *state, allot_error *error) {
  (void)state; // nothing to remember
  allot_text how;
  uint32_t few;
  if (!allot_get_count_within(run, "few", 2, 64, &few, error)) return false;
  if (!allot_get_text(run, "how", &how, error)) return false;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    if (allot_is(how, ways[i])) return true;
  return allot_bad_setting(error, "how", allot_c(allot_words("there is no way `", allot_c(how), "`", NULL)));
}

// Volatile, so that no compiler sees what comes of it.
static volatile uint32_t far = 0xFFFFFFF0;
static volatile bool forever = true;
static void *volatile kept;

static uint32_t deeper(uint32_t n) {
  volatile uint32_t here[256] = {n};
  return forever ? here[0] + deeper(n + 1) + here[1] : n;
}

static void go_wrong(const allot_text how) {
  if (allot_is(how, "panic")) allot_panic("this went wrong");
  if (allot_is(how, "assert")) allot_assert(how.len == 0);
  if (allot_is(how, "libc-assert")) assert(how.len == 0);
  if (allot_is(how, "abort")) abort();
  if (allot_is(how, "print")) puts("hello from puts"), fprintf(stderr, "and %d from fprintf\n", 42);
  if (allot_is(how, "flood")) {
    for (int i = 0; i < 20000; i++) printf("%05d words and words\n", i);
    allot_panic("said too much");
  }
  if (allot_is(how, "null")) allot_logf(ALLOT_INFO, "%u", *(volatile uint32_t *)(uintptr_t)far);
  if (allot_is(how, "recurse")) allot_logf(ALLOT_INFO, "%u", deeper(0));
  if (allot_is(how, "loop")) while (forever) continue;
  if (allot_is(how, "grow")) while (forever) kept = allot_new(1, 1 << 20);
}

bool decide(const allot_run *run, const allot_bytes *state, const allot_view *view, allot_plan *plan,
            allot_error *error) {
  (void)state;
  allot_text how;
  if (!allot_get_text(run, "how", &how, error)) return false;
  go_wrong(how);
  if (allot_is(how, "give-up")) return allot_give_up(error, "the data set is not for this policy");

  *plan = allot_train();
  if (view->round > 0 || !allot_can_sample(view)) return true;
  *plan = allot_sample();
  for (size_t i = 0; i < allot_offer(view, run->groups); i++)
    allot_ask(plan, view->pool.ptr[i].id, run->rollouts);
  if (allot_is(how, "needless")) allot_until(allot_ask(plan, view->pool.ptr[run->groups].id, 8), 1, 1, 2);
  return true;
}
