//! Parses and formats decimal integers. Long integers are processed eight digits at a time, because a call reads and
//! writes about sixty digits.
//!
//! With plain loops, an allowed call would take 6% more instructions. The itoa crate is as fast, but would add code
//! that can panic.

use std::num::NonZero;

/// The number of digits in a stored timestamp. Timestamps are in nanoseconds, up to 2^63 - 1, and those before
/// September 2001 have leading zeros.
pub const MOMENT_DIGITS: usize = 19;

/// The number of values that eight digits can represent.
const BLOCK: NonZero<u64> = NonZero::new(100_000_000).unwrap();

/// Eight zeros as ASCII text. XOR with this constant turns text into digits, and OR turns digits into text.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Parses the digits of a timestamp. Returns `None` if any byte is not a digit.
pub fn parse_moment(text: &[u8; MOMENT_DIGITS]) -> Option<u64> {
    let (first, rest) = text.split_first_chunk()?;
    let (second, _) = rest.split_first_chunk()?;
    // The last eight digits overlap the second block, so keep only the last three of them.
    let blocks = [digits(first), digits(second), digits(text.last_chunk()?) & !0 << 40];
    if not_digits(blocks) {
        return None;
    }
    let [first, second, third] = blocks.map(value);
    Some(first.wrapping_mul(BLOCK.get()).wrapping_add(second).wrapping_mul(1000).wrapping_add(third))
}

/// Formats a number below 10^19 as 19 digits, with leading zeros if necessary.
pub fn format(number: u64) -> [u8; MOMENT_DIGITS] {
    let blocks = [number / BLOCK / BLOCK, number / BLOCK % BLOCK, number % BLOCK];
    let mut text = [0; 24];
    for (slot, block) in text.as_chunks_mut().0.iter_mut().zip(blocks) {
        *slot = (digits_of(block) | ZEROS).to_le_bytes();
    }
    text.last_chunk().copied().unwrap_or_default()
}

/// Removes the leading zeros, which the server's commands do not accept. The last digit always stays.
pub fn without_zeros(text: &[u8; MOMENT_DIGITS]) -> &[u8] {
    let zeros = text.iter().take_while(|&&digit| digit == b'0').count();
    text.get(zeros.min(MOMENT_DIGITS - 1)..).unwrap_or_default()
}

/// Parses a number of 1 to 8 digits without leading zeros, as most arguments are. Returns `None` for any other text.
/// `inline(always)` makes each call of a command 1% cheaper.
#[inline(always)]
pub fn parse_small(text: &[u8]) -> Option<u32> {
    match text.len() {
        1 => digit(*text.first()?),
        2 => number_of::<2>(text),
        3 => number_of::<3>(text),
        4 => {
            let digits = four_digits(text.first_chunk()?);
            if text.starts_with(b"0") || not_digits([digits.into()]) { None } else { Some(value_of_four(digits)) }
        }
        5..=8 => {
            // The first four and the last four digits may overlap. Shift the digits that they share out of the first
            // four.
            let common = 64_u32.wrapping_sub(u32::try_from(text.len()).unwrap_or(8).wrapping_mul(8));
            let upper = four_digits(text.first_chunk()?).wrapping_shl(common);
            let lower = four_digits(text.last_chunk()?);
            if text.starts_with(b"0") || not_digits([upper.into(), lower.into()]) {
                return None;
            }
            Some(value_of_four(upper).wrapping_mul(10_000).wrapping_add(value_of_four(lower)))
        }
        _ => None,
    }
}

/// Parses a number of exactly `LENGTH` digits, without leading zeros. Uses a simple loop, which suits two or three
/// digits.
fn number_of<const LENGTH: usize>(text: &[u8]) -> Option<u32> {
    let text: &[u8; LENGTH] = text.try_into().ok()?;
    if text.starts_with(b"0") {
        return None;
    }
    text.iter().try_fold(0_u32, |number, &byte| Some(number.wrapping_mul(10).wrapping_add(digit(byte)?)))
}

fn digit(byte: u8) -> Option<u32> {
    let digit = u32::from(byte).wrapping_sub(u32::from(b'0'));
    (digit <= 9).then_some(digit)
}

/// Converts eight bytes of text to digits, with the first digit in the lowest byte.
fn digits(block: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*block) ^ ZEROS
}

/// Converts four bytes of text to digits, with the first digit in the lowest byte.
fn four_digits(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text) ^ u32::from_le_bytes([b'0'; 4])
}

/// Returns whether any byte in the blocks is not a digit.
fn not_digits<const BLOCKS: usize>(blocks: [u64; BLOCKS]) -> bool {
    // A byte above 9 has a bit set in its upper half, or gets one when 6 is added. A byte from 0 to 9 has no such bit,
    // gets none, and does not carry into the next byte.
    let bits = blocks.iter().fold(0, |bits, block| bits | block | block.wrapping_add(0x0606_0606_0606_0606));
    bits & 0xf0f0_f0f0_f0f0_f0f0 != 0
}

/// Returns the value of eight digits.
///
/// The function works on lanes of one word: eight digits become four numbers below 100, then two below 10,000, then one
/// below 10^8. Each step joins pairs of lanes with one multiplication: the first lane of a pair times 10, 100 or 10,000
/// (in steps 1, 2 and 3), plus the second. The bytes below are in the order of the text, with the lowest byte first:
///
/// ```text
/// the text "12345678"       '1' '2' '3' '4' '5' '6' '7' '8'
/// digits (xor '0')           1   2   3   4   5   6   7   8
/// pairs, lanes of 2 bytes    12      34      56      78
/// quads, lanes of 4 bytes    1234            5678
/// the number                 12345678
/// ```
fn value(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    quads.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// Returns the value of four digits.
fn value_of_four(digits: u32) -> u32 {
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff;
    pairs.wrapping_mul(100 << 16 | 1) >> 16
}

/// Returns the eight digits of a number below 100,000,000. Reverses the steps of `value`.
///
/// `n * 10486 >> 20` is `n / 100` for every n below 10,000, and `n * 103 >> 10` is `n / 10` for every n below 100. The
/// quotient, `upper`, stays in its lane, and the remainder goes into the lane above. Together, they are
/// `upper + ((n - 100 * upper) << 16)`, which equals `(n << 16) - upper * ((100 << 16) - 1)`. Each step therefore needs
/// only one multiplication and one subtraction.
fn digits_of(number: u64) -> u64 {
    let upper = number / 10_000;
    let quads = (number << 32).wrapping_sub(upper.wrapping_mul((10_000 << 32) - 1));
    let upper = (quads.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = (quads << 16).wrapping_sub(upper.wrapping_mul((100 << 16) - 1));
    let upper = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    (pairs << 8).wrapping_sub(upper.wrapping_mul((10 << 8) - 1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Returns every power of ten with its two neighbours, and the largest numbers of 19 digits, 63 bits and 64 bits.
    fn numbers() -> impl Iterator<Item = u64> {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        powers.flat_map(|power| [power.saturating_sub(1), power, power.saturating_add(1)]).chain([
            9_999_999_999_999_999_999,
            i64::MAX.cast_unsigned(),
            u64::MAX,
        ])
    }

    /// Returns every 997th number below `end`, so that all digits vary. Under Miri, which is thousands of times slower,
    /// there are fewer numbers.
    fn some_below(end: u64) -> impl Iterator<Item = u64> {
        (0..end).step_by(if cfg!(miri) { 9_999_991 } else { 997 })
    }

    #[test]
    fn a_number_without_leading_zeros_is_written_as_the_standard_library_writes_it() {
        for number in some_below(100_000_000).chain(numbers().filter(|&number| number < 10_u64.pow(19))) {
            assert_eq!(without_zeros(&format(number)), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_moment_is_written_and_read_with_all_its_digits() {
        for number in some_below(100_000_000).chain(numbers()) {
            let text = format!("{number:019}");
            let Ok(digits) = text.as_bytes().try_into() else { continue };
            assert_eq!(parse_moment(digits), Some(number), "{text}");
            assert_eq!(format(number), *digits);
        }
    }

    #[test]
    fn a_small_number_is_read_and_any_other_is_left_to_the_server() {
        for number in some_below(1_000_000_000).chain(numbers()) {
            let text = number.to_string();
            let expected = (number < 100_000_000).then_some(number);
            assert_eq!(parse_small(text.as_bytes()).map(u64::from), expected);
        }
        for text in [
            "", "00", "01", "012", "0123", "01234", "01234567", "-0", "-1", "+1", " 1", "1 ", "1/", "1:", "/1", ":1",
            "1\0",
        ] {
            assert_eq!(parse_small(text.as_bytes()), None, "{text}");
        }
    }

    /// Puts a wrong byte at one index or two: two wrong bytes must not cancel each other out.
    #[test]
    fn a_small_number_is_left_to_the_server_if_any_byte_is_not_a_digit() {
        for length in 1..=8 {
            for index in 0..length {
                for other in 0..=index {
                    let bytes = (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit());
                    for byte in bytes.step_by(if cfg!(miri) { 47 } else { 1 }) {
                        let mut text = vec![b'1'; length];
                        *text.get_mut(index).unwrap() = byte;
                        *text.get_mut(other).unwrap() = byte;
                        assert_eq!(parse_small(&text), None, "{text:?}");
                    }
                }
            }
        }
    }

    /// Puts a wrong byte at one index or two: two wrong bytes must not cancel each other out.
    #[test]
    fn a_moment_is_refused_if_any_byte_is_not_a_digit() {
        for index in 0..MOMENT_DIGITS {
            for other in 0..=index {
                let bytes = (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit());
                for byte in bytes.step_by(if cfg!(miri) { 47 } else { 1 }) {
                    let mut text = [b'1'; MOMENT_DIGITS];
                    *text.get_mut(index).unwrap() = byte;
                    *text.get_mut(other).unwrap() = byte;
                    assert_eq!(parse_moment(&text), None, "{text:?}");
                }
            }
        }
    }
}
