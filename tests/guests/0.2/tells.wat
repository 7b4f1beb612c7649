    ;; Samples 3 of the first prompt on offer and puts the second back; then learns from all of that, and tells what it
    ;; was shown and what it was answered.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 3))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
        (if (i32.gt_u (i32.load offset=148 (local.get $args)) (i32.const 1)) (then
          (i32.store offset=64 (local.get $list) (i32.load offset=56 (i32.load offset=144 (local.get $args))))
          (i32.store offset=44 (local.get $plan) (i32.add (local.get $list) (i32.const 64)))
          (i32.store offset=48 (local.get $plan) (i32.const 1)))))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (if (i32.load offset=156 (local.get $args)) (then
          ;; all rollouts of the first group, measured against each other, weight 1: a pick has 32 bytes
          (i32.store (local.get $list) (i32.load (i32.load offset=152 (local.get $args))))
          (f32.store offset=28 (local.get $list) (f32.const 1))
          (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
          (call $tell (local.get $plan) (local.get $list) (i32.const 64) (i32.const 5)
            (f64.convert_i32_u (i32.load offset=4 (i32.load offset=152 (local.get $args)))))))
        (call $tell (local.get $plan) (local.get $list) (i32.const 70) (i32.const 6)
          (f64.convert_i32_u (i32.load offset=8 (i32.load offset=144 (local.get $args)))))
        (call $tell (local.get $plan) (local.get $list) (i32.const 77) (i32.const 11)
          (f64.promote_f32 (f32.load offset=52 (local.get $args))))
        (call $tell (local.get $plan) (local.get $list) (i32.const 89) (i32.const 10)
          (f64.convert_i32_u (i32.load offset=56 (local.get $args))))
        (call $tell (local.get $plan) (local.get $list) (i32.const 100) (i32.const 9)
          (f64.load offset=136 (local.get $args)))
        (call $tell (local.get $plan) (local.get $list) (i32.const 110) (i32.const 8)
          (f64.convert_i32_u (i32.load offset=164 (local.get $args))))
        ;; visits of all prompts
        (call $counts (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.add (local.get $list) (i32.const 256)))
        (block $end (loop $next
          (br_if $end (i32.eq (local.get $i) (i32.load offset=260 (local.get $list))))
          (local.set $sum (f64.add (local.get $sum) (f64.convert_i32_u (i32.load
            (i32.add (i32.load offset=256 (local.get $list)) (i32.mul (i32.const 4) (local.get $i)))))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $next)))
        (call $tell (local.get $plan) (local.get $list) (i32.const 119) (i32.const 6) (local.get $sum))
        ;; the std of prompt 0
        (call $measures (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 1) (i32.add (local.get $list) (i32.const 264)))
        (call $tell (local.get $plan) (local.get $list) (i32.const 126) (i32.const 3)
          (f64.promote_f32 (f32.load (i32.load offset=264 (local.get $list)))))))
    (local.get $plan)
