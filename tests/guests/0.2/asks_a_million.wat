    ;; Asks about a million prompts at a time, again and again.
    (local.set $i (call $alloc (i32.const 4000000)))
    (loop $again
      (global.set $top (i32.add (local.get $i) (i32.const 4000000)))
      (call $counts (i32.const 6) (i32.const 2) (local.get $i) (i32.const 1000000) (i32.add (local.get $list) (i32.const 64)))
      (br $again))
    (local.get $plan)
