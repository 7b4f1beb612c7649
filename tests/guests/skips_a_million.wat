;; Skips prompt 0 a million times.
(i32.store offset=24 (local.get $plan) (call $alloc (i32.const 4000000)))
(i32.store offset=28 (local.get $plan) (i32.const 1000000))
(local.get $plan)
