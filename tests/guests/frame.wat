;; What all guests here share: memory, an allocator that only moves forward, `describe` and `begin`.
;; A guest's own file is the body of `decide`: it finds the call's arguments at $args, as the
;; canonical ABI lays them out, and leaves the address of a `result<plan, error>` on the stack.
;;
;;   $args + 80, 84   pool: address, length; a prompt begins with its id
;;   $args + 88, 92   groups: address, length; a group begins with its prompt's id
;;
;; $plan is 64 zeroed bytes: an ok result with the plan "sample nothing".
;;
;;   + 0   0 ok, 1 error (then + 4: which error, + 8, 12: its words)
;;   + 4   0 sample, 1 train
;;   + 8   requests (or picks): address, length
;;   + 16  hold: address, length
;;   + 24  skip   + 32  evict   + 40  state   + 48  metrics
(module
  (import "rollout:allocation/log@0.1.0" "write" (func $log (param i32 i32 i32)))
  (memory (export "memory") 4)
  (global $top (mut i32) (i32.const 4096))
  (data (i32.const 16) "guest")
  (data (i32.const 24) "0.0.1")
  (data (i32.const 32) "does wrong")
  (data (i32.const 64) "the words of the guest")

  (func $alloc (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $top) (i32.const 15)) (i32.const -16)))
    (global.set $top (i32.add (local.get $at) (local.get $size)))
    (block $fits (loop $more
      (br_if $fits (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
      (drop (memory.grow (i32.const 16)))
      (br $more)))
    (local.get $at))

  (func (export "cabi_realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (call $alloc (local.get $size)))
    (memory.copy (local.get $at) (local.get $old) (local.get $was))
    (local.get $at))

  (func (export "rollout:allocation/allocator@0.1.0#describe") (result i32)
    (local $d i32)
    (local.set $d (call $alloc (i32.const 40)))
    (i32.store (local.get $d) (i32.const 16)) (i32.store offset=4 (local.get $d) (i32.const 5))
    (i32.store offset=8 (local.get $d) (i32.const 24)) (i32.store offset=12 (local.get $d) (i32.const 5))
    (i32.store offset=16 (local.get $d) (i32.const 32)) (i32.store offset=20 (local.get $d) (i32.const 10))
    (local.get $d))

  (func (export "rollout:allocation/allocator@0.1.0#begin")
    (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $alloc (i32.const 32)))

  (func (export "rollout:allocation/allocator@0.1.0#decide") (param $args i32) (result i32)
    (local $plan i32) (local $list i32) (local $id i32)
    (local.set $plan (call $alloc (i32.const 64)))
    (local.set $list (call $alloc (i32.const 256)))
    ;; the first prompt of the pool, or of the groups where the pool is empty
    (local.set $id (i32.load (i32.load (i32.add (local.get $args)
      (select (i32.const 80) (i32.const 88) (i32.load offset=84 (local.get $args)))))))
    ;; DECIDE
  ))
