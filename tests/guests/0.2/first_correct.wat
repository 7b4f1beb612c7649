    ;; Asks for 12 rollouts of each of up to four prompts on offer, two at a time until one is correct; then learns from all.
    (if (i32.eqz (i32.load offset=100 (local.get $args)))
      (then
        (loop $more
          (if (i32.and (i32.lt_u (local.get $i) (i32.const 4))
                (i32.lt_u (local.get $i) (i32.load offset=148 (local.get $args))))
            (then
              ;; a request has 36 bytes, a prompt 56
              (local.set $id (i32.add (local.get $list) (i32.mul (i32.const 36) (local.get $i))))
              (i32.store (local.get $id) (i32.load (i32.add (i32.load offset=144 (local.get $args))
                (i32.mul (i32.const 56) (local.get $i)))))
              (i32.store offset=4 (local.get $id) (i32.const 12)) ;; COUNT
              (i32.store8 offset=8 (local.get $id) (i32.const 1)) ;; UNTIL
              (i32.store offset=12 (local.get $id) (i32.const 1)) ;; CORRECT
              (i32.store offset=20 (local.get $id) (i32.const 2)) ;; PORTION
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br $more)))))
      (else
        (i32.store8 offset=4 (local.get $plan) (i32.const 1))
        (loop $more
          (if (i32.lt_u (local.get $i) (i32.load offset=156 (local.get $args)))
            (then
              ;; a pick has 32 bytes, a group 80
              (local.set $id (i32.add (local.get $list) (i32.mul (i32.const 32) (local.get $i))))
              (i32.store (local.get $id) (i32.load (i32.add (i32.load offset=152 (local.get $args))
                (i32.mul (i32.const 80) (local.get $i)))))
              (f32.store offset=28 (local.get $id) (f32.const 1))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br $more))))))
    (i32.store offset=8 (local.get $plan) (local.get $list))
    (i32.store offset=12 (local.get $plan) (local.get $i))
    (local.get $plan)
