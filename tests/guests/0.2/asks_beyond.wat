    ;; Asks about a prompt that the data set does not have.
    (i32.store (local.get $list) (i32.const -294967296))
    (call $counts (i32.const 0) (i32.const 2) (local.get $list) (i32.const 1) (i32.add (local.get $list) (i32.const 64)))
    (local.get $plan)
