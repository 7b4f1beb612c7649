;; Picks one prompt a thousand times, each time with the same million positions: a megabyte that is four gigabytes.
(i32.store8 offset=4 (local.get $plan) (i32.const 1))
(local.set $list (call $alloc (i32.const 32000)))
(i32.store offset=8 (local.get $plan) (local.get $list))
(i32.store offset=12 (local.get $plan) (i32.const 1000))
(local.set $id (call $alloc (i32.const 4000000)))
(loop $again
  (i32.store8 offset=4 (local.get $list) (i32.const 1))
  (i32.store offset=8 (local.get $list) (local.get $id))
  (i32.store offset=12 (local.get $list) (i32.const 1000000))
  (local.set $list (i32.add (local.get $list) (i32.const 32)))
  (br_if $again (i32.lt_u (local.get $list)
    (i32.add (i32.load offset=8 (local.get $plan)) (i32.const 32000)))))
(local.get $plan)
