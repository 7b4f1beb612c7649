;; Counts its calls in memory, and asks for one rollout more each time; trains on nothing where it may not ask.
(i32.store (i32.const 96) (i32.add (i32.load (i32.const 96)) (i32.const 1)))
(if (i32.and (i32.ne (i32.load offset=56 (local.get $args)) (i32.const 0))
      (i32.ne (i32.load offset=60 (local.get $args)) (i32.const 0)))
  (then
    (i32.store (local.get $list) (local.get $id))
    (i32.store offset=4 (local.get $list) (i32.load (i32.const 96)))
    (i32.store offset=8 (local.get $plan) (local.get $list))
    (i32.store offset=12 (local.get $plan) (i32.const 1)))
  (else (i32.store8 offset=4 (local.get $plan) (i32.const 1))))
(local.get $plan)
