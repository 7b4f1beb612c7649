;; Does what Wasm forbids, after a last word.
(call $log (i32.const 3) (i32.const 64) (i32.const 22))
unreachable
