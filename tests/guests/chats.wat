;; Logs without end: empty lines first, then its last words, then a trap.
(local.set $id (i32.const 300000))
(loop $again
  (call $log (i32.const 1) (i32.const 64) (i32.const 0))
  (local.set $id (i32.sub (local.get $id) (i32.const 1)))
  (br_if $again (local.get $id)))
(call $log (i32.const 3) (i32.const 64) (i32.const 22))
unreachable
