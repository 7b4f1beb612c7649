;; Returns a plan whose list lies outside its memory.
(i32.store offset=8 (local.get $plan) (i32.const 0x7fffff00)) (i32.store offset=12 (local.get $plan) (i32.const 9))
(local.get $plan)
