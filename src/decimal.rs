//! Whole numbers as decimal text, eight digits at a time. A call reads and writes some sixty digits; one at a time, or
//! by the machinery of `fmt`, they would cost more than the rule itself.

use std::num::NonZero;

/// The digits of 2^63 - 1.
const MAX_DIGITS: usize = 19;

/// Eight digits as a number of their own.
const BLOCK: NonZero<u64> = NonZero::new(100_000_000).unwrap();

/// The number that 1 to 19 digits spell, with no sign and no space, if it fits in 63 bits.
pub fn parse(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > MAX_DIGITS {
        return None;
    }
    // 19 digits fit in 64 bits, so nothing wraps.
    let mut number: u64 = 0;
    let mut rest = text;
    while let Some((block, after)) = rest.split_first_chunk() {
        number = number
            .wrapping_mul(BLOCK.get())
            .wrapping_add(parse_block(*block)?);
        rest = after;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(digit.into());
    }
    i64::try_from(number).ok().map(|_| number)
}

/// So many digits, and their sum in the loop below, fit in any integer with room to spare.
pub const SHORT: usize = 9;

/// The number that up to `SHORT` digits spell, one by one: for few of them that is quicker.
#[inline(always)]
pub fn parse_short(text: &[u8]) -> Option<i64> {
    let mut number: i64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(digit.into());
    }
    Some(number)
}

/// The digits of a number.
pub struct Decimal {
    /// Three blocks are more than the 20 digits of 2^64 - 1.
    text: [u8; 24],
    length: usize,
}

impl Decimal {
    pub fn new(number: u64) -> Self {
        let mut text = [0; 24];
        let mut rest = number;
        for block in text.rchunks_exact_mut(8) {
            block.copy_from_slice(&format_block(rest % BLOCK));
            rest /= BLOCK;
            if rest == 0 {
                break;
            }
        }
        let length = number
            .checked_ilog10()
            .map_or(1, |log| log.saturating_add(1) as usize);
        Self { text, length }
    }

    pub fn as_bytes(&self) -> &[u8] {
        let unused = self.text.len().saturating_sub(self.length);
        self.text.get(unused..).unwrap_or_default()
    }
}

/// The number that eight digits spell.
///
/// Lanes of one word: eight digits become four numbers below 100, two below 10,000, one below 100,000,000, each step by
/// one multiplication that adds every second lane to ten, a hundred or ten thousand times its neighbour.
fn parse_block(block: [u8; 8]) -> Option<u64> {
    let text = u64::from_le_bytes(block);
    let digits = text ^ 0x3030_3030_3030_3030;
    // A byte above 9 has, itself or with 6 added, something in its upper half; a carry comes only out of such a byte.
    if (digits | digits.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some(quads.wrapping_mul(10_000 << 32 | 1) >> 32)
}

/// The eight digits of a number below 100,000,000, by the same lanes in the other direction.
///
/// `n * 10486 >> 20` is `n / 100` for every n below 10,000, and `n * 103 >> 10` is `n / 10` for every n below 100.
fn format_block(number: u64) -> [u8; 8] {
    let upper = number / 10_000;
    let quads = upper | number.wrapping_sub(upper.wrapping_mul(10_000)) << 32;
    let upper = (quads.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = upper | quads.wrapping_sub(upper.wrapping_mul(100)) << 16;
    let upper = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    let digits = upper | pairs.wrapping_sub(upper.wrapping_mul(10)) << 8;
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Every power of ten and its neighbours, and the numbers that all blocks meet.
    fn numbers() -> impl Iterator<Item = u64> {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        powers
            .flat_map(|power| [power.saturating_sub(1), power, power.saturating_add(1)])
            .chain([
                9_999_999_999_999_999_999,
                i64::MAX.cast_unsigned(),
                u64::MAX,
            ])
    }

    #[test]
    fn what_is_written_is_what_fmt_writes() {
        for number in (0..100_000_000).step_by(997).chain(numbers()) {
            assert_eq!(
                Decimal::new(number).as_bytes(),
                number.to_string().as_bytes()
            );
        }
    }

    #[test]
    fn what_is_read_is_what_the_standard_library_reads() {
        for number in (0..100_000_000).step_by(997).chain(numbers()) {
            let text = number.to_string();
            let expected = text.parse::<i64>().ok().map(i64::cast_unsigned);
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(parse(b"0000000000000000007"), Some(7));
        assert_eq!(parse(b"00000000000000000007"), None, "20 digits");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn no_byte_but_a_digit_is_read_wherever_it_stands() {
        for length in 1..=MAX_DIGITS {
            for place in 0..length {
                for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                    let mut text = vec![b'1'; length];
                    *text.get_mut(place).unwrap() = byte;
                    assert_eq!(parse(&text), None, "{text:?}");
                }
            }
        }
    }
}
