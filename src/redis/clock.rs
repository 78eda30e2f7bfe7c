//! The system's wall clock.

/// Reads the time in nanoseconds since the Unix epoch: 0 to 2^63 - 1. A clock outside this range reads as its nearer
/// end.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: this writes `time`, and fails only for a clock that does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    let nanos = time.tv_sec.checked_mul(1_000_000_000).and_then(|nanos| nanos.checked_add(time.tv_nsec));
    match nanos {
        Some(nanos @ 0..) => nanos.cast_unsigned(),
        _ => nearer_end(time.tv_sec),
    }
}

#[cold]
fn nearer_end(seconds: i64) -> u64 {
    if seconds < 0 { 0 } else { i64::MAX.cast_unsigned() }
}
