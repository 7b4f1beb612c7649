;; Takes memory until there is no more.
(loop $again
  (drop (memory.grow (i32.const 160)))
  (br $again))
(local.get $plan)
