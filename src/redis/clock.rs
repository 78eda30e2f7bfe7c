//! The system's wall clock.

use std::mem::MaybeUninit;

/// Reads the time in nanoseconds since the Unix epoch: 0 to 2^64 - 1, which is in the year 2554. An earlier clock reads
/// as 0. No system keeps a later one.
pub fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: this writes `time`, and fails only for a clock that does not exist.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, time.as_mut_ptr());
        time.assume_init()
    };
    let seconds = time.tv_sec.max(0).cast_unsigned();
    // The system keeps `tv_nsec` between 0 and a second.
    seconds.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}
