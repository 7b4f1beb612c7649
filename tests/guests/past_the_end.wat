;; Samples one prompt, then picks its rollout 99.
(if (i32.load offset=92 (local.get $args))
  (then
    (i32.store8 offset=4 (local.get $plan) (i32.const 1))
    (i32.store (local.get $list) (i32.load (i32.load offset=88 (local.get $args))))
    (i32.store8 offset=4 (local.get $list) (i32.const 1))
    (i32.store offset=8 (local.get $list) (i32.add (local.get $list) (i32.const 64)))
    (i32.store offset=12 (local.get $list) (i32.const 1))
    (f32.store offset=28 (local.get $list) (f32.const 1))
    (i32.store offset=64 (local.get $list) (i32.const 99)))
  (else
    (i32.store (local.get $list) (local.get $id)) (i32.store offset=4 (local.get $list) (i32.const 4))))
(i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
(local.get $plan)
