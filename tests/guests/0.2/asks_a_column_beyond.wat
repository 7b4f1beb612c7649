    ;; Asks for a column of a prompt that the data set does not have.
    (call $column (i32.const 48) (i32.const 5) (i32.const 1) (i32.const 0) (i32.const 100000000)
      (i32.add (local.get $list) (i32.const 64)))
    (local.get $plan)
