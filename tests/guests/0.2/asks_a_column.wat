    ;; Asks for a column that it did not describe.
    (call $column (i32.const 48) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0) (i32.add (local.get $list) (i32.const 64)))
    (local.get $plan)
