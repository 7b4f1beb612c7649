    ;; Asks until a million are right, and did not say that it would.
    (i32.store (local.get $list) (local.get $id))
    (i32.store offset=4 (local.get $list) (i32.const 8))
    (i32.store8 offset=8 (local.get $list) (i32.const 1))
    (i32.store offset=12 (local.get $list) (i32.const 1000000))
    (i32.store offset=20 (local.get $list) (i32.const 1))
    (i32.store offset=8 (local.get $plan) (local.get $list)) (i32.store offset=12 (local.get $plan) (i32.const 1))
    (local.get $plan)
