;; A component that would like a thing that no policy is given.
(component
  (import "acme:gpu/device@1.0.0" (instance (export "count" (func (result u32)))))
  (core module $m (func (export "answer") (result i32) (i32.const 42)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "answer")))
  (instance $allocator (export "describe" (func $f)))
  (export "rollout:allocation/allocator@0.1.0" (instance $allocator)))
