;; WASI preview 1 for modules of C's and Go's toolchains: as much of it as a quiet room has.
;;
;; It has no memory of its own and allocates none of the module's, for Go's allocator is not up when
;; the first calls come. What a guest prints goes on as a byte stream. All else ends here: a clock
;; that stands still but where the guest waits, chance that is the same in each instance, and no
;; arguments, environment, files or sockets. So all but printing can be asked for at any moment, even
;; from within `cabi_realloc`, where a component may not call out: Go's collector reads the clock.
;;
;; Of all this only what a module imports gets into its component.
(module
  (type $one (func (param i32) (result i32)))
  (type $two (func (param i32 i32) (result i32)))

  (import "env" "memory" (memory 0))
  (import "wasi:cli/stdout@0.2.0" "get-stdout" (func $get_stdout (result i32)))
  (import "wasi:cli/stderr@0.2.0" "get-stderr" (func $get_stderr (result i32)))
  ;; stream, bytes, how many (4096 at most), where the result goes
  (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush"
    (func $stream_write (param i32 i32 i32 i32)))

  ;; ── Words ────────────────────────────────────────────────────────────────────────────────

  ;; The streams, once they are asked for: -1 before, -2 once the host takes no more.
  (global $stdout (mut i32) (i32.const -1))
  (global $stderr (mut i32) (i32.const -1))

  ;; Sends up to 4096 bytes to a stream; whether the host takes more. The result needs 12 bytes of
  ;; memory. They are borrowed from address 16, where no language keeps anything, and given back.
  (func $send (param $stream i32) (param $bytes i32) (param $n i32) (result i32)
    (local $saved_16 i64) (local $saved_24 i32) (local $failed i32)
    (local.set $saved_16 (i64.load (i32.const 16)))
    (local.set $saved_24 (i32.load (i32.const 24)))
    (call $stream_write (local.get $stream) (local.get $bytes) (local.get $n) (i32.const 16))
    (local.set $failed (i32.load8_u (i32.const 16)))
    (i64.store (i32.const 16) (local.get $saved_16))
    (i32.store (i32.const 24) (local.get $saved_24))
    (i32.eqz (local.get $failed)))

  ;; Sends any number of bytes; gives what the stream's global is to be from now on.
  (func $send_all (param $stream i32) (param $bytes i32) (param $n i32) (result i32)
    (local $chunk i32)
    (loop $more
      (if (i32.eqz (local.get $n)) (then (return (local.get $stream))))
      (local.set $chunk
        (select (local.get $n) (i32.const 4096) (i32.lt_u (local.get $n) (i32.const 4096))))
      (if (i32.eqz (call $send (local.get $stream) (local.get $bytes) (local.get $chunk)))
        (then (return (i32.const -2))))
      (local.set $bytes (i32.add (local.get $bytes) (local.get $chunk)))
      (local.set $n (i32.sub (local.get $n) (local.get $chunk)))
      (br $more))
    (unreachable))

  (func $print (param $fd i32) (param $bytes i32) (param $n i32)
    (if (i32.eq (local.get $fd) (i32.const 1))
      (then
        (if (i32.eq (global.get $stdout) (i32.const -1))
          (then (global.set $stdout (call $get_stdout))))
        (if (i32.ne (global.get $stdout) (i32.const -2))
          (then (global.set $stdout
            (call $send_all (global.get $stdout) (local.get $bytes) (local.get $n))))))
      (else
        (if (i32.eq (global.get $stderr) (i32.const -1))
          (then (global.set $stderr (call $get_stderr))))
        (if (i32.ne (global.get $stderr) (i32.const -2))
          (then (global.set $stderr
            (call $send_all (global.get $stderr) (local.get $bytes) (local.get $n))))))))

  ;; What a guest prints past the host's patience is dropped, and the guest is none the wiser:
  ;; printing must not change what it decides.
  (func (export "fd_write")
    (param $fd i32) (param $parts i32) (param $n i32) (param $written i32) (result i32)
    (local $total i32) (local $len i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1))
      (then (return (i32.const 8)))) ;; badf
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $len (i32.load offset=4 (local.get $parts)))
        (call $print (local.get $fd) (i32.load (local.get $parts)) (local.get $len))
        (local.set $total (i32.add (local.get $total) (local.get $len)))
        (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $total))
    (i32.const 0))

  ;; A guest that leaves says so, as in "exit status 2". It is over: low memory is free for words.
  ;; Three digits end at 15; the text goes before the first that counts, over the others.
  (func (export "proc_exit") (param $status i32)
    (local $at i32)
    (call $digit (i32.const 12) (i32.div_u (local.get $status) (i32.const 100)))
    (call $digit (i32.const 13) (i32.div_u (local.get $status) (i32.const 10)))
    (call $digit (i32.const 14) (local.get $status))
    (i32.store8 (i32.const 15) (i32.const 10)) ;; end of line
    (local.set $at
      (i32.add (i32.lt_u (local.get $status) (i32.const 10)) (i32.lt_u (local.get $status) (i32.const 100))))
    (i64.store (local.get $at) (i64.const 0x6174732074697865)) ;; "exit sta"
    (i32.store offset=8 (local.get $at) (i32.const 0x20737574)) ;; "tus "
    (call $print (i32.const 2) (local.get $at) (i32.sub (i32.const 16) (local.get $at)))
    (unreachable))

  (func $digit (param $at i32) (param $number i32)
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10)))))

  (func (export "proc_raise") (type $one) (unreachable))

  ;; ── Time and chance ──────────────────────────────────────────────────────────────────────

  ;; Nanoseconds that the guest has waited. Time passes by nothing else.
  (global $waited (mut i64) (i64.const 0))

  ;; 0 is the clock on the wall; the others count from the start, and not from 0, on which Go's
  ;; runtime stops.
  (func $now (param $clock i32) (result i64)
    (i64.add (global.get $waited)
      (if (result i64) (local.get $clock)
        (then (i64.const 1_000_000))
        (else (i64.const 1_700_000_000_000_000_000)))))

  (func (export "clock_time_get")
    (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (if (i32.gt_u (local.get $clock) (i32.const 3)) (then (return (i32.const 28)))) ;; inval
    (i64.store (local.get $time) (call $now (local.get $clock)))
    (i32.const 0))

  (func (export "clock_res_get") (param $clock i32) (param $resolution i32) (result i32)
    (if (i32.gt_u (local.get $clock) (i32.const 3)) (then (return (i32.const 28)))) ;; inval
    (i64.store (local.get $resolution)
      (select (i64.const 1) (i64.const 1_000_000_000) (local.get $clock)))
    (i32.const 0))

  ;; Whatever is waited for has happened. After a wait for the clock, the clock has moved.
  (func (export "poll_oneoff")
    (param $wanted i32) (param $events i32) (param $n i32) (param $count i32) (result i32)
    (local $left i32) (local $wait i64) (local $longest i64)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 28)))) ;; inval
    (memory.fill (local.get $events) (i32.const 0) (i32.mul (local.get $n) (i32.const 32)))
    (local.set $left (local.get $n))
    (loop $next
      (i64.store (local.get $events) (i64.load (local.get $wanted))) ;; the caller's mark
      (i32.store8 offset=10 (local.get $events) (i32.load8_u offset=8 (local.get $wanted))) ;; of what
      (if (i32.eqz (i32.load8_u offset=8 (local.get $wanted)))
        (then
          (local.set $wait (i64.load offset=24 (local.get $wanted)))
          (if (i32.and (i32.load16_u offset=40 (local.get $wanted)) (i32.const 1))
            (then ;; until a time, not for one
              (local.set $wait
                (i64.sub (local.get $wait) (call $now (i32.load offset=16 (local.get $wanted)))))))
          (if (i64.gt_s (local.get $wait) (local.get $longest))
            (then (local.set $longest (local.get $wait))))))
      (local.set $wanted (i32.add (local.get $wanted) (i32.const 48)))
      (local.set $events (i32.add (local.get $events) (i32.const 32)))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (global.set $waited (i64.add (global.get $waited) (local.get $longest)))
    (i32.store (local.get $count) (local.get $n))
    (i32.const 0))

  (func (export "sched_yield") (result i32) (i32.const 0))

  ;; A linear congruential generator with Knuth's constants, a byte off the top at a time.
  (global $chance (mut i64) (i64.const 42))

  (func (export "random_get") (param $bytes i32) (param $n i32) (result i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (global.set $chance
          (i64.add (i64.mul (global.get $chance) (i64.const 6364136223846793005))
            (i64.const 1442695040888963407)))
        (i64.store8 (local.get $bytes) (i64.shr_u (global.get $chance) (i64.const 56)))
        (local.set $bytes (i32.add (local.get $bytes) (i32.const 1)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; ── No arguments, no environment ─────────────────────────────────────────────────────────

  (func $none (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))

  (func (export "args_get") (type $two) (i32.const 0))
  (func (export "args_sizes_get") (type $two) (call $none (local.get 0) (local.get 1)))
  (func (export "environ_get") (type $two) (i32.const 0))
  (func (export "environ_sizes_get") (type $two) (call $none (local.get 0) (local.get 1)))

  ;; ── No files but the three that every program has ────────────────────────────────────────

  ;; 0 for standard input, output and error; badf for all others.
  (func $known (param $fd i32) (result i32)
    (select (i32.const 8) (i32.const 0) (i32.gt_u (local.get $fd) (i32.const 2))))

  ;; spipe for those three, which can't be moved about in.
  (func $no_seek (param $fd i32) (result i32)
    (select (i32.const 8) (i32.const 70) (i32.gt_u (local.get $fd) (i32.const 2))))

  ;; Standard input is at its end.
  (func (export "fd_read") (param $fd i32) (param i32 i32) (param $read i32) (result i32)
    (if (local.get $fd) (then (return (i32.const 8)))) ;; badf
    (i32.store (local.get $read) (i32.const 0))
    (i32.const 0))

  ;; They are terminals: so C's library sends a line as soon as it is full, and none is lost in a
  ;; trap. A terminal is a character device (2) that can't seek.
  (func (export "fd_fdstat_get") (param $fd i32) (param $stat i32) (result i32)
    (if (call $known (local.get $fd)) (then (return (i32.const 8)))) ;; badf
    (memory.fill (local.get $stat) (i32.const 0) (i32.const 24))
    (i32.store8 (local.get $stat) (i32.const 2))
    (i64.store offset=8 (local.get $stat)
      (select (i64.const 0x40) (i64.const 0x2) (local.get $fd))) ;; may write; may read
    (i32.const 0))

  (func (export "fd_filestat_get") (param $fd i32) (param $stat i32) (result i32)
    (if (call $known (local.get $fd)) (then (return (i32.const 8)))) ;; badf
    (memory.fill (local.get $stat) (i32.const 0) (i32.const 64))
    (i32.store8 offset=16 (local.get $stat) (i32.const 2))
    (i32.const 0))

  (func (export "fd_close") (type $one) (call $known (local.get 0)))
  (func (export "fd_datasync") (type $one) (call $known (local.get 0)))
  (func (export "fd_sync") (type $one) (call $known (local.get 0)))
  (func (export "fd_fdstat_set_flags") (type $two) (call $known (local.get 0)))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (call $known (local.get 0)))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (call $no_seek (local.get 0)))
  (func (export "fd_tell") (type $two) (call $no_seek (local.get 0)))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (call $no_seek (local.get 0)))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (call $no_seek (local.get 0)))

  ;; No other file is open, and whatever a path leads to is not there.
  (func $badf (result i32) (i32.const 8))
  (func $noent (result i32) (i32.const 44))
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (call $badf))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (call $badf))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (call $badf))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (call $badf))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (call $badf))
  (func (export "fd_prestat_get") (type $two) (call $badf))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (call $badf))
  (func (export "fd_renumber") (type $two) (call $badf))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (call $noent))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (call $noent))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (call $noent))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (call $noent))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (call $noent))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (call $noent))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (call $noent))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (call $noent))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (call $noent))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (call $noent))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (call $badf))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (call $badf))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (call $badf))
  (func (export "sock_shutdown") (type $two) (call $badf)))
