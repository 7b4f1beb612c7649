;; Asks for the first prompt twice.
(i32.store (local.get $list) (local.get $id)) (i32.store offset=4 (local.get $list) (i32.const 2))
(i32.store offset=8 (local.get $list) (local.get $id)) (i32.store offset=12 (local.get $list) (i32.const 2))
(i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 2))
(local.get $plan)
