    ;; Asks for a column of a million prompts at a time, again and again into the same place.
    (local.set $i (call $alloc (i32.const 4000000)))
    (loop $again
      (global.set $top (i32.add (local.get $i) (i32.const 4000000)))
      (call $column (i32.const 48) (i32.const 5) (i32.const 2) (local.get $i) (i32.const 1000000)
        (i32.add (local.get $list) (i32.const 64)))
      (br $again))
    (local.get $plan)
