;; Never comes back.
(loop $again (br $again))
(local.get $plan)
