;; Trains on nothing, after thirty million turns of a loop.
(local.set $id (i32.const 30000000))
(loop $again (br_if $again (local.tee $id (i32.sub (local.get $id) (i32.const 1)))))
(i32.store8 offset=4 (local.get $plan) (i32.const 1))
(local.get $plan)
