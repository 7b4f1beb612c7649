;; Samples one prompt, then gives it a weight that is no number.
(if (i32.load offset=92 (local.get $args))
  (then
    (i32.store8 offset=4 (local.get $plan) (i32.const 1))
    (i32.store (local.get $list) (i32.load (i32.load offset=88 (local.get $args))))
    (f32.store offset=28 (local.get $list) (f32.div (f32.const 0) (f32.const 0))))
  (else
    (i32.store (local.get $list) (local.get $id)) (i32.store offset=4 (local.get $list) (i32.const 4))))
(i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
(local.get $plan)
