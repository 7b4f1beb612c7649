;; The right names, other types.
(component
  (core module $m (func (export "answer") (result i32) (i32.const 42)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "answer")))
  (instance $allocator (export "describe" (func $f)) (export "begin" (func $f)) (export "decide" (func $f)))
  (export "rollout:allocation/allocator@0.1.0" (instance $allocator)))
