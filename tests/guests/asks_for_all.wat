;; Asks for four billion rollouts of one prompt, and trains on nothing when it has them.
(if (i32.load offset=92 (local.get $args))
  (then (i32.store8 offset=4 (local.get $plan) (i32.const 1)))
  (else
    (i32.store (local.get $list) (local.get $id)) (i32.store offset=4 (local.get $list) (i32.const -1))
    (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))))
(local.get $plan)
