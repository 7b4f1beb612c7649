    ;; Wants a billion passes over nothing, one rollout in each optimizer step.
    (i32.store8 offset=4 (local.get $plan) (i32.const 1))
    (i32.store8 offset=24 (local.get $plan) (i32.const 1))
    (i32.store offset=28 (local.get $plan) (i32.const 1))
    (i32.store offset=32 (local.get $plan) (i32.const 1000000000))
    (local.get $plan)
