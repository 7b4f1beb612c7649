;; Skips sixty million prompts: nothing but the first.
(i32.store offset=24 (local.get $plan) (call $alloc (i32.const 240000000)))
(i32.store offset=28 (local.get $plan) (i32.const 60000000))
(local.get $plan)
