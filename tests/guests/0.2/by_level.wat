    ;; Samples 3 of the prompt on offer with the lowest level, then learns from all of that; tells the group's level and
    ;; length, how many numbers a prompt has in the first column, and how many categories that has.
    (if (i32.and
          (i32.and (i32.eqz (i32.load offset=100 (local.get $args)))
            (i32.ne (i32.const 0) (i32.load offset=148 (local.get $args))))
          ;; where the step's budget has rounds and rollouts left
          (i32.and (i32.ne (i32.const 0) (i32.load offset=112 (local.get $args)))
            (i32.ne (i32.const 0) (i32.load offset=116 (local.get $args)))))
      (then
        (call $column (i32.const 48) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.add (local.get $list) (i32.const 256)))
        (local.set $sum (f64.const inf))
        (loop $next
          (local.set $id (i32.load (i32.add (i32.load offset=144 (local.get $args))
            (i32.mul (i32.const 56) (local.get $i)))))
          (if (f64.lt (f64.promote_f32 (f32.load (i32.add (i32.load offset=256 (local.get $list))
                (i32.mul (i32.const 4) (local.get $id))))) (local.get $sum))
            (then
              (local.set $sum (f64.promote_f32 (f32.load (i32.add (i32.load offset=256 (local.get $list))
                (i32.mul (i32.const 4) (local.get $id))))))
              (i32.store (local.get $list) (local.get $id))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $i) (i32.load offset=148 (local.get $args)))))
        (i32.store offset=4 (local.get $list) (i32.const 3))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1)))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (if (i32.load offset=156 (local.get $args)) (then
          ;; all rollouts of the first group, measured against each other, weight 1
          (i32.store (local.get $list) (i32.load (i32.load offset=152 (local.get $args))))
          (f32.store offset=28 (local.get $list) (f32.const 1))
          (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
          ;; of that prompt alone, by its id
          (call $column (i32.const 48) (i32.const 5) (i32.const 2) (local.get $list) (i32.const 1)
            (i32.add (local.get $list) (i32.const 256)))
          (call $tell (local.get $plan) (local.get $list) (i32.const 48) (i32.const 5)
            (f64.promote_f32 (f32.load (i32.load offset=256 (local.get $list)))))
          ;; and as a row of one
          (call $column (i32.const 70) (i32.const 6) (i32.const 1) (i32.load (local.get $list))
            (i32.add (i32.const 1) (i32.load (local.get $list))) (i32.add (local.get $list) (i32.const 256)))
          (call $tell (local.get $plan) (local.get $list) (i32.const 70) (i32.const 6)
            (f64.promote_f32 (f32.load (i32.load offset=256 (local.get $list)))))))
        ;; a column of the run has 20 bytes: name, width, categories
        (call $tell (local.get $plan) (local.get $list) (i32.const 144) (i32.const 5)
          (f64.convert_i32_u (i32.load offset=8 (i32.load offset=36 (local.get $args)))))
        (call $tell (local.get $plan) (local.get $list) (i32.const 150) (i32.const 10)
          (f64.convert_i32_u (i32.load offset=16 (i32.load offset=36 (local.get $args)))))))
    (local.get $plan)
