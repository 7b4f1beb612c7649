;; Returns its own error.
(i32.store8 (local.get $plan) (i32.const 1))
(i32.store8 offset=4 (local.get $plan) (i32.const 2))
(i32.store offset=8 (local.get $plan) (i32.const 64))
(i32.store offset=12 (local.get $plan) (i32.const 22))
(local.get $plan)
