    ;; Samples 3 of the first prompt on offer, then learns from all of that, and tells what reading a token costs, what is
    ;; left of the run's operations, and the second part of the first reward.
    (if (i32.eqz (i32.and (i32.ne (i32.const 0) (i32.load offset=120 (local.get $args)))
          (i32.eqz (i32.load offset=100 (local.get $args)))))
      (then
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (call $costs (i32.add (local.get $list) (i32.const 256)))
        (call $tell (local.get $plan) (local.get $list) (i32.const 130) (i32.const 7)
          (f64.load offset=256 (local.get $list)))
        (call $tell (local.get $plan) (local.get $list) (i32.const 100) (i32.const 9)
          (f64.load offset=136 (local.get $args)))
        (if (i32.load offset=156 (local.get $args)) (then
          (i32.store (local.get $list) (i32.load (i32.load offset=152 (local.get $args))))
          (f32.store offset=28 (local.get $list) (f32.const 1))
          (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
          (call $tell (local.get $plan) (local.get $list) (i32.const 138) (i32.const 5)
            (f64.promote_f32 (f32.load (i32.load offset=8
              (i32.load offset=56 (i32.load offset=152 (local.get $args))))))))))
      (else
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 3))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))))
    (local.get $plan)
