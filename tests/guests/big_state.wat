;; Trains on nothing and remembers 20 MB of zeros.
(i32.store8 offset=4 (local.get $plan) (i32.const 1))
(i32.store offset=40 (local.get $plan) (call $alloc (i32.const 20000000)))
(i32.store offset=44 (local.get $plan) (i32.const 20000000))
(local.get $plan)
