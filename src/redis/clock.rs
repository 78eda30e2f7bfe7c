//! The system's wall clock.

/// Reads the time in nanoseconds since the Unix epoch: 0 to 2^63 - 1. A clock outside this range reads as its nearer
/// end.
pub fn now() -> u64 {
    /// The last second that fits in 63 bits of nanoseconds together with all of its nanoseconds.
    const LAST_SECOND: i64 = i64::MAX / 1_000_000_000 - 1;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: this writes `time`, and fails only for a clock that does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    let seconds = time.tv_sec.clamp(0, LAST_SECOND).cast_unsigned();
    // The system keeps `tv_nsec` between 0 and a second.
    seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}
