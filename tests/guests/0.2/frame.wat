;; What all guests of contract 0.2 share, as ../frame.wat is for those of 0.1. A guest's own file is the body of
;; `decide`: it finds the call's arguments at $args, as the canonical ABI lays them out, and leaves the address of a
;; `result<plan, error>` on the stack.
;;
;;   $args +   8  run: prompts, steps, groups, rollouts, pool, max-age, lag; + 36 columns, + 44 parts: address, length
;;         +  52  temperature and max-tokens by default, at least, at most; + 76 mini-batch, passes
;;         +  96  view: step, round, seed; + 112 budget: rounds, step-rollouts, run-rollouts; + 128 run-tokens,
;;                + 136 run-flops
;;         + 144  pool: address, length; a prompt has 56 bytes: id, epoch, length, past (+ 12 whether, + 16 what)
;;         + 152  groups: address, length; a group has 80: prompt, epoch, ten lists
;;         + 160  unscored; + 168 under-way: address, length; a tally has 8: prompt, rollouts
;;
;; $plan is 76 zeroed bytes: an ok result with the plan "sample nothing".
;;
;;   + 0   0 ok, 1 error
;;   + 4   0 sample, 1 train
;;   + 8   requests or picks: address, length; a request has 36 bytes: prompt, count, until (+ 8 whether, + 12 what),
;;         sampling (+ 24 whether, + 28 what)
;;   + 16  hold: address, length; + 24 whether there is an update, + 28 its mini-batch and passes
;;   + 36  skip   + 44  defer   + 52  evict   + 60  state   + 68  metrics
;;
;; $list is 1024 zeroed bytes; the upper half takes metrics, by $tell.
(module
  (import "rollout:allocation/facts@0.2.0" "counts" (func $counts (param i32 i32 i32 i32 i32)))
  (import "rollout:allocation/facts@0.2.0" "measures" (func $measures (param i32 i32 i32 i32 i32)))
  (import "rollout:allocation/facts@0.2.0" "column" (func $column (param i32 i32 i32 i32 i32 i32)))
  (import "rollout:allocation/facts@0.2.0" "costs" (func $costs (param i32)))
  (import "rollout:allocation/log@0.2.0" "write" (func $log (param i32 i32 i32)))
  (memory (export "memory") 4)
  (global $top (mut i32) (i32.const 4096))
  (data (i32.const 16) "guest")
  (data (i32.const 24) "0.0.1")
  (data (i32.const 32) "does wrong")
  (data (i32.const 48) "level")
  (data (i32.const 64) "epoch length temperature max-tokens run-flops unscored visits std reading short width categories")

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

  ;; Adds a metric to a plan, its name at this address.
  (func $tell (param $plan i32) (param $list i32) (param $name i32) (param $length i32) (param $value f64)
    (local $at i32)
    (local.set $at (i32.add (local.get $list)
      (i32.add (i32.const 512) (i32.mul (i32.const 16) (i32.load offset=72 (local.get $plan))))))
    (i32.store (local.get $at) (local.get $name))
    (i32.store offset=4 (local.get $at) (local.get $length))
    (f64.store offset=8 (local.get $at) (local.get $value))
    (i32.store offset=68 (local.get $plan) (i32.add (local.get $list) (i32.const 512)))
    (i32.store offset=72 (local.get $plan) (i32.add (i32.const 1) (i32.load offset=72 (local.get $plan)))))

  (func (export "rollout:allocation/allocator@0.2.0#describe") (result i32)
    (local $d i32)
    (local.set $d (call $alloc (i32.const 256)))
    (i32.store (local.get $d) (i32.const 16)) (i32.store offset=4 (local.get $d) (i32.const 5))
    (i32.store offset=8 (local.get $d) (i32.const 24)) (i32.store offset=12 (local.get $d) (i32.const 5))
    (i32.store offset=16 (local.get $d) (i32.const 32)) (i32.store offset=20 (local.get $d) (i32.const 10))
    ;; DESCRIBE
    (local.get $d))

  (func (export "rollout:allocation/allocator@0.2.0#begin") (param i32) (result i32)
    ;; BEGIN
    (call $alloc (i32.const 32)))

  (func (export "rollout:allocation/allocator@0.2.0#decide") (param $args i32) (result i32)
    (local $plan i32) (local $list i32) (local $id i32) (local $i i32) (local $sum f64)
    (local.set $plan (call $alloc (i32.const 76)))
    (local.set $list (call $alloc (i32.const 1024)))
    ;; the first prompt of the pool, or of the groups where the pool is empty
    (local.set $id (i32.load (i32.load (i32.add (local.get $args)
      (select (i32.const 144) (i32.const 152) (i32.load offset=148 (local.get $args)))))))
    ;; DECIDE
  ))
