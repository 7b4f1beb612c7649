    ;; Samples 3 rollouts of each of the first two prompts on offer, those of the first at temperature 0.5 and 40 tokens long
    ;; at most; then learns from all, and tells how the first rollouts of the first two groups were sampled.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 3))
        (i32.store8 offset=24 (local.get $list) (i32.const 1))
        (f32.store offset=28 (local.get $list) (f32.const 0.5)) ;; TEMPERATURE
        (i32.store offset=32 (local.get $list) (i32.const 40)) ;; TOKENS
        (local.set $i (i32.const 1))
        (if (i32.gt_u (i32.load offset=148 (local.get $args)) (i32.const 1))
          (then
            (i32.store offset=36 (local.get $list)
              (i32.load offset=56 (i32.load offset=144 (local.get $args))))
            (i32.store offset=40 (local.get $list) (i32.const 3))
            (local.set $i (i32.const 2)))))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (loop $more
          (if (i32.and (i32.lt_u (local.get $i) (i32.const 2))
                (i32.lt_u (local.get $i) (i32.load offset=156 (local.get $args))))
            (then
              ;; a pick has 32 bytes, a group 80, in which the settings are last
              (local.set $id (i32.add (i32.load offset=152 (local.get $args))
                (i32.mul (i32.const 80) (local.get $i))))
              (i32.store (i32.add (local.get $list) (i32.mul (i32.const 32) (local.get $i)))
                (i32.load (local.get $id)))
              (f32.store offset=28 (i32.add (local.get $list) (i32.mul (i32.const 32) (local.get $i))) (f32.const 1))
              (local.set $id (i32.load offset=72 (local.get $id)))
              ;; temperature and max-tokens, then std and visits
              (call $tell (local.get $plan) (local.get $list)
                (select (i32.const 126) (i32.const 77) (local.get $i))
                (select (i32.const 3) (i32.const 11) (local.get $i))
                (f64.promote_f32 (f32.load (local.get $id))))
              (call $tell (local.get $plan) (local.get $list)
                (select (i32.const 119) (i32.const 89) (local.get $i))
                (select (i32.const 6) (i32.const 10) (local.get $i))
                (f64.convert_i32_u (i32.load offset=4 (local.get $id))))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br $more))))))
    (i32.store offset=8 (local.get $plan) (local.get $list))
    (i32.store offset=12 (local.get $plan) (local.get $i))
    (local.get $plan)
