;; Samples nothing, skips nothing, evicts nothing.
(local.get $plan)
