;; Trains on nothing and remembers a gigabyte.
(i32.store8 offset=4 (local.get $plan) (i32.const 1))
(i32.store offset=40 (local.get $plan) (call $alloc (i32.const 0x40000000)))
(i32.store offset=44 (local.get $plan) (i32.const 0x40000000))
(local.get $plan)
