//! Whole numbers as decimal text, the long ones eight digits at a time. A call reads and writes some sixty digits; one at
//! a time, or by the machinery of `fmt`, they would cost more than the rule itself.

use std::num::NonZero;

/// The digits of 2^63 - 1.
const MAX_DIGITS: usize = 19;

/// Eight digits as a number of their own.
const BLOCK: NonZero<u64> = NonZero::new(100_000_000).unwrap();

/// The number that 1 to 19 digits spell, with no sign and no space, if it fits in 63 bits.
#[inline(always)]
pub fn parse(text: &[u8]) -> Option<u64> {
    let number = match text.len() {
        MAX_DIGITS => parse_longest(text)?,
        1..MAX_DIGITS => parse_one_by_one(text)?,
        _ => return None,
    };
    i64::try_from(number).ok().map(|_| number)
}

/// The number that `MAX_DIGITS` digits spell, which are those of any moment from 2001 to 2262.
#[inline(always)]
fn parse_longest(text: &[u8]) -> Option<u64> {
    let (first, rest) = text.split_first_chunk()?;
    let (second, _) = rest.split_first_chunk()?;
    // The last block holds three digits, after five that the second has already.
    let first = digits(first);
    let second = digits(second);
    let third = digits(text.last_chunk()?) & 0xffff_ff00_0000_0000;
    if not_digits(first) | not_digits(second) | not_digits(third) != 0 {
        return None;
    }
    let number = value(first)
        .wrapping_mul(BLOCK.get())
        .wrapping_add(value(second));
    Some(
        number
            .wrapping_mul(1000)
            .wrapping_add(value_of_last_four(third)),
    )
}

/// For fewer digits than `MAX_DIGITS`: their number fits in 64 bits, so nothing wraps.
#[cold]
fn parse_one_by_one(text: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for &byte in text {
        number = number.wrapping_mul(10).wrapping_add(digit(byte)?.into());
    }
    Some(number)
}

/// The number that 1 to 9 digits spell, of which the first is not 0. The usual argument of a call is such.
#[inline(always)]
pub fn parse_short(text: &[u8]) -> Option<u32> {
    let (&first, rest) = text.split_first()?;
    let first = u32::from(first).wrapping_sub(u32::from(b'1'));
    if first > 8 || rest.len() > 8 {
        return None;
    }
    let mut number = first.wrapping_add(1);
    for &byte in rest {
        number = number.wrapping_mul(10).wrapping_add(digit(byte)?);
    }
    Some(number)
}

#[inline(always)]
fn digit(byte: u8) -> Option<u32> {
    let digit = u32::from(byte).wrapping_sub(u32::from(b'0'));
    (digit <= 9).then_some(digit)
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

/// The digits of a block of text, the first in the lowest byte.
#[inline(always)]
fn digits(block: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*block) ^ 0x3030_3030_3030_3030
}

/// Not 0 if a byte is no digit.
#[inline(always)]
fn not_digits(digits: u64) -> u64 {
    // A byte above 9 has, itself or with 6 added, something in its upper half; a carry comes only out of such a byte.
    (digits | digits.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0
}

/// The number that eight digits spell.
///
/// Lanes of one word: eight digits become four numbers below 100, two below 10,000, one below 100,000,000, each step by
/// one multiplication that adds every second lane to ten, a hundred or ten thousand times its neighbour.
#[inline(always)]
fn value(digits: u64) -> u64 {
    let quads = (pairs(digits).wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    quads.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// The number that the last four of eight digits spell.
#[inline(always)]
fn value_of_last_four(digits: u64) -> u64 {
    pairs(digits).wrapping_mul(100 << 16 | 1) >> 48
}

#[inline(always)]
fn pairs(digits: u64) -> u64 {
    (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff
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
    fn a_short_number_is_read_or_left_to_the_server() {
        for number in (0..1_000_000_000).step_by(997).chain(numbers()) {
            let text = number.to_string();
            let expected = (1..1_000_000_000).contains(&number).then_some(number);
            assert_eq!(parse_short(text.as_bytes()).map(u64::from), expected);
        }
        for text in [
            "", "01", "-1", "+1", " 1", "1 ", "1/", "1:", "/1", ":1", "1\0",
        ] {
            assert_eq!(parse_short(text.as_bytes()), None, "{text}");
        }
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
