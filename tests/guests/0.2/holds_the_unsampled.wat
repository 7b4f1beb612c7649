    ;; Samples 2 of the first prompt on offer, learns from both, and holds the third.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 2))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1)))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (i32.store (local.get $list) (i32.load (i32.load offset=152 (local.get $args))))
        (f32.store offset=28 (local.get $list) (f32.const 1))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
        (i32.store offset=64 (local.get $list) (i32.const 2))
        (i32.store offset=80 (local.get $list) (i32.load (local.get $list)))
        (i32.store8 offset=84 (local.get $list) (i32.const 1))
        (i32.store offset=88 (local.get $list) (i32.add (local.get $list) (i32.const 64)))
        (i32.store offset=92 (local.get $list) (i32.const 1))
        (i32.store offset=16 (local.get $plan) (i32.add (local.get $list) (i32.const 80)))
        (i32.store offset=20 (local.get $plan) (i32.const 1))))
    (local.get $plan)
