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
        _ => nearer_end(time.tv_sec, time.tv_nsec),
    }
}

/// Returns the moment that is `nanos` after the beginning of the range's first or last whole second.
#[cold]
fn nearer_end(seconds: i64, nanos: i64) -> u64 {
    const LAST_SECOND: u64 = i64::MAX.cast_unsigned() / 1_000_000_000 - 1;
    let second = if seconds < 0 { 0 } else { LAST_SECOND };
    // The system keeps `nanos` between 0 and a second. The bound shows the compiler that a caller needs no other.
    second.wrapping_mul(1_000_000_000).wrapping_add(nanos.cast_unsigned()).min(i64::MAX.cast_unsigned())
}
