;; What all graders here share: memory, an allocator that only moves forward, `describe`, `begin`, and a list of verdicts.
;; A grader's own text is done for each question: it finds the question at $question and 20 zeroed bytes for the verdict at
;; $verdict, which says "right" unless the text says otherwise.
;;
;;   $question + 0 prompt   + 8 source   + 16 gold   + 24, 28 answer: address, length
;;   $verdict  + 0 0 judged, 1 unscorable (then + 4, 8: its words)
;;             + 4 0 nobody said whether it is correct, 1 somebody did, at + 5
;;             + 8 0 by correctness, 1 the number at + 12, 2 the parts at + 12, 16
(module
  (import "rollout:reward/log@0.1.0" "write" (func $log (param i32 i32 i32)))
  (memory (export "memory") 4)
  (global $top (mut i32) (i32.const 8192))
  (global $calls (mut i32) (i32.const 0))
  (data (i32.const 16) "hostile")
  (data (i32.const 24) "0.0.1")
  (data (i32.const 32) "does wrong")
  (data (i32.const 48) "format")
  (data (i32.const 56) "extra")
  (data (i32.const 64) "the words of the grader")
  (data (i32.const 96) "\1b[2J\c2\9b2J\e2\80\ae\0aerror: forged")
  (data (i32.const 128) "\ff\fe\fd")
  ;; A list of one part, `format`.
  (data (i32.const 160) "\30\00\00\00\06\00\00\00")

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

  (func (export "rollout:reward/grader@0.1.0#describe") (result i32)
    (local $d i32)
    (local.set $d (call $alloc (i32.const 40)))
    (i32.store (local.get $d) (i32.const 16)) (i32.store offset=4 (local.get $d) (i32.const 7))
    (i32.store offset=8 (local.get $d) (i32.const 24)) (i32.store offset=12 (local.get $d) (i32.const 5))
    (i32.store offset=16 (local.get $d) (i32.const 32)) (i32.store offset=20 (local.get $d) (i32.const 10))
    ;; DESCRIBE
    (local.get $d))

  (func (export "rollout:reward/grader@0.1.0#begin") (param i32 i32) (result i32)
    (call $alloc (i32.const 32)))

  (func $one (param $question i32) (param $verdict i32)
    (local $n i32)
    (i32.store8 offset=4 (local.get $verdict) (i32.const 1))
    (i32.store8 offset=5 (local.get $verdict) (i32.const 1))
    ;; GRADE
  )

  (func (export "rollout:reward/grader@0.1.0#grade") (param $questions i32) (param $n i32) (result i32)
    (local $verdicts i32) (local $i i32) (local $result i32)
    (local.set $result (call $alloc (i32.const 8)))
    (local.set $verdicts (call $alloc (i32.mul (i32.add (local.get $n) (i32.const 1)) (i32.const 20))))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
      (call $one
        (i32.add (local.get $questions) (i32.mul (local.get $i) (i32.const 32)))
        (i32.add (local.get $verdicts) (i32.mul (local.get $i) (i32.const 20))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (i32.store (local.get $result) (local.get $verdicts))
    (i32.store offset=4 (local.get $result) (local.get $n))
    ;; RETURN
    (local.get $result)))
