    ;; Samples 4 of the first prompt on offer, while rounds and the budget last; then learns from all that is buffered,
    ;; measured by group, and holds the first rollout of each group and all correct ones, so that most groups still have
    ;; two rewards when they are learned from again. Tells how many updates were made on all of that before.
    (if (i32.and (i32.lt_u (i32.load offset=100 (local.get $args)) (i32.const 2))
          (i32.and (i32.ne (i32.const 0) (i32.load offset=120 (local.get $args)))
            (i32.ne (i32.const 0) (i32.load offset=148 (local.get $args)))))
      (then
        (i32.store (local.get $list) (local.get $id))
        (i32.store offset=4 (local.get $list) (i32.const 4))
        (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1)))
      (else (call $replay (local.get $args) (local.get $plan))
        ;; "trained"
        (i64.store offset=1000 (local.get $list) (i64.const 0x0064656e69617274))
        (call $tell (local.get $plan) (local.get $list) (i32.add (local.get $list) (i32.const 1000)) (i32.const 7)
          (f64.convert_i32_u (i32.load (i32.const 8))))))
    (local.get $plan))

  ;; Leaves the sum of updates at 8.
  (func $replay (param $args i32) (param $plan i32)
    (local $group i32) (local $left i32) (local $pick i32) (local $hold i32) (local $places i32) (local $i i32)
    (local $n i32)
    (i32.store8 offset=4 (local.get $plan) (i32.const 1))
    (local.set $group (i32.load offset=152 (local.get $args)))
    (local.set $left (i32.load offset=156 (local.get $args)))
    (local.set $pick (call $alloc (i32.mul (i32.const 32) (local.get $left))))
    (local.set $hold (call $alloc (i32.mul (i32.const 16) (local.get $left))))
    (i32.store offset=8 (local.get $plan) (local.get $pick)) (i32.store offset=12 (local.get $plan) (local.get $left))
    (i32.store offset=16 (local.get $plan) (local.get $hold))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $left)))
      (i32.store (local.get $pick) (i32.load (local.get $group)))
      (i32.store8 offset=16 (local.get $pick) (i32.const 1))
      (f32.store offset=28 (local.get $pick) (f32.const 1))
      (local.set $places (call $alloc (i32.mul (i32.const 4) (i32.load offset=12 (local.get $group)))))
      (local.set $i (i32.const 0)) (local.set $n (i32.const 0))
      (loop $more
        (if (i32.or (i32.eqz (local.get $i))
          (i32.load8_u (i32.add (i32.load offset=16 (local.get $group)) (local.get $i))))
          (then
            (i32.store (i32.add (local.get $places) (i32.mul (i32.const 4) (local.get $n))) (local.get $i))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))))
        ;; nothing is there where the need is not described
        (if (i32.lt_u (local.get $i) (i32.load offset=68 (local.get $group)))
          (then (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8))
            (i32.load (i32.add (i32.load offset=64 (local.get $group)) (i32.mul (i32.const 4) (local.get $i))))))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $i) (i32.load offset=12 (local.get $group)))))
      (if (local.get $n)
        (then
          (i32.store (local.get $hold) (i32.load (local.get $group)))
          (i32.store8 offset=4 (local.get $hold) (i32.const 1))
          (i32.store offset=8 (local.get $hold) (local.get $places))
          (i32.store offset=12 (local.get $hold) (local.get $n))
          (local.set $hold (i32.add (local.get $hold) (i32.const 16)))
          (i32.store offset=20 (local.get $plan) (i32.add (i32.const 1) (i32.load offset=20 (local.get $plan))))))
      (local.set $group (i32.add (local.get $group) (i32.const 80)))
      (local.set $pick (i32.add (local.get $pick) (i32.const 32)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
