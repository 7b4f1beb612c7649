    ;; Samples 2 of a prompt that it names itself, the last of the data set first and one before it in each step; then
    ;; learns from the second of them, measured against the first, and holds the first.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (i32.store (local.get $list) (i32.sub (i32.sub (i32.load offset=8 (local.get $args)) (i32.const 1))
          (i32.load offset=96 (local.get $args))))
        (i32.store offset=4 (local.get $list) (i32.const 2))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1)))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        ;; of the last group, behind those that are held
        (i32.store (local.get $list) (i32.load (i32.add (i32.load offset=152 (local.get $args))
          (i32.mul (i32.const 80) (i32.sub (i32.load offset=156 (local.get $args)) (i32.const 1))))))
        (i32.store8 offset=4 (local.get $list) (i32.const 1))
        (i32.store offset=8 (local.get $list) (i32.add (local.get $list) (i32.const 64)))
        (i32.store offset=12 (local.get $list) (i32.const 1))
        (i32.store offset=64 (local.get $list) (i32.const 1))
        (i32.store8 offset=16 (local.get $list) (i32.const 2))
        (i32.store offset=20 (local.get $list) (i32.add (local.get $list) (i32.const 68)))
        (i32.store offset=24 (local.get $list) (i32.const 1))
        (f32.store offset=28 (local.get $list) (f32.const 1))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
        ;; a hold has 16 bytes: prompt, whether there are positions, which
        (i32.store offset=80 (local.get $list) (i32.load (local.get $list)))
        (i32.store8 offset=84 (local.get $list) (i32.const 1))
        (i32.store offset=88 (local.get $list) (i32.add (local.get $list) (i32.const 68)))
        (i32.store offset=92 (local.get $list) (i32.const 1))
        (i32.store offset=16 (local.get $plan) (i32.add (local.get $list) (i32.const 80)))
        (i32.store offset=20 (local.get $plan) (i32.const 1))))
    (local.get $plan)
