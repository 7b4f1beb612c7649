;; Trains on nothing, and names a metric after something that clears a screen.
(i32.store8 offset=4 (local.get $plan) (i32.const 1))
(i32.store (local.get $list) (i32.const 128)) (i32.store offset=4 (local.get $list) (i32.const 24))
(i32.store offset=48 (local.get $plan) (local.get $list)) (i32.store offset=52 (local.get $plan) (i32.const 1))
(local.get $plan)
