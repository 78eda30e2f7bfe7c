//! The system's wall clock.

/// The latest second that `now` can return, counted from the Unix epoch. All its nanoseconds fit in 63 bits.
const LAST_SECOND: i64 = i64::MAX / 1_000_000_000 - 1;

/// Returns the time in nanoseconds since the Unix epoch: 0 to 2^63 - 1. If the clock is outside this range, its seconds
/// are clamped to the range, and its nanoseconds within the second are kept.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to `time`, and fails only for a clock that does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    let seconds = time.tv_sec.clamp(0, LAST_SECOND).cast_unsigned();
    seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}
