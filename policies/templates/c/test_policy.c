// The policy as plain functions: `make test`.

#include "policy.c"

#include "made.h"

static void commits_only_where_the_pilots_vary(void) {
  const allot_run run = made_run();
  allot_view view = made_view(0);
  view.round = 1;
  allot_push(&view.groups, made_group(1, "1011"));
  allot_push(&view.groups, made_group(2, "0000"));

  const allot_plan plan = made_plan(&run, &view);
  expect(made_samples(&plan));
  expect(made_requests(plan).len == 1);
  expect(made_requests(plan).ptr[0].prompt == 1 && made_requests(plan).ptr[0].count == 12);
}

int main(void) {
  commits_only_where_the_pilots_vary();
  puts("1 test passed");
}
