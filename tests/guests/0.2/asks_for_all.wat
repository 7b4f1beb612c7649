    ;; Asks about all prompts: how many rollouts each has had, how many were right, and its level; reads all of that; trains on
    ;; nothing.
    (call $counts (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0) (local.get $list))
    (call $counts (i32.const 6) (i32.const 0) (i32.const 0) (i32.const 0) (i32.add (local.get $list) (i32.const 8)))
    (call $column (i32.const 48) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.add (local.get $list) (i32.const 16)))
    (block $end (loop $next
      (br_if $end (i32.eq (local.get $i) (i32.mul (i32.const 4) (i32.load offset=4 (local.get $list)))))
      (local.set $sum (f64.add (local.get $sum) (f64.mul
        (f64.promote_f32 (f32.load (i32.add (i32.load offset=16 (local.get $list)) (local.get $i))))
        (f64.convert_i32_u (i32.sub
          (i32.load (i32.add (i32.load (local.get $list)) (local.get $i)))
          (i32.load (i32.add (i32.load offset=8 (local.get $list)) (local.get $i))))))))
      (local.set $i (i32.add (local.get $i) (i32.const 4)))
      (br $next)))
    (call $tell (local.get $plan) (local.get $list) (i32.const 48) (i32.const 5) (local.get $sum))
    (i32.store8 offset=4 (local.get $plan) (i32.const 1))
    (local.get $plan)
