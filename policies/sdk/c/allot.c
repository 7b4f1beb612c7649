// The contract's three exports, made of a policy's three functions. Only for Wasm.

#include "allot.h"

// A policy without settings to check need not define it.
__attribute__((weak)) bool begin(const allot_run *run, allot_bytes *state, allot_error *error) {
  (void)run, (void)state, (void)error;
  return true;
}

void exports_rollout_allocation_allocator_describe(allot_description *self) { describe(self); }

bool exports_rollout_allocation_allocator_begin(allot_run *run, allot_bytes *state, allot_error *error) {
  *state = (allot_bytes){NULL, 0};
  return begin(run, state, error);
}

bool exports_rollout_allocation_allocator_decide(allot_run *run, allot_bytes *state, allot_view *view,
                                                 allot_plan *plan, allot_error *error) {
  *plan = allot_train();
  return decide(run, state, view, plan, error);
}

// The generated code links this, to draw in an object file with the contract's types. The program
// that makes the component adds the types itself, so there is no such file.
void __component_type_object_force_link_policy(void) {}
