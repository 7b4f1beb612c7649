;; A component of a contract that is not out yet.
(component
  (core module $m (func (export "answer") (result i32) (i32.const 42)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "answer")))
  (instance $allocator (export "describe" (func $f)))
  (export "rollout:allocation/allocator@0.4.0" (instance $allocator)))
