    ;; Samples 4 of the first prompt, then learns from all of them: in optimizer steps of one rollout in the first step,
    ;; of two in the second, and so on, in one pass.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 4)))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (i32.store (local.get $list) (i32.load (i32.load offset=152 (local.get $args))))
        (f32.store offset=28 (local.get $list) (f32.const 1))
        (i32.store8 offset=24 (local.get $plan) (i32.const 1))
        (i32.store offset=28 (local.get $plan) (i32.add (i32.const 1) (i32.load offset=96 (local.get $args))))
        (i32.store offset=32 (local.get $plan) (i32.const 1))))
    (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
    (local.get $plan)
