//! Which partition a key belongs to, as Kafka's Java client has it. Pure.

/// Kafka's murmur2 of a key's bytes.
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a key, of so many.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    let positive = i32::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    positive % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of Kafka's own UtilsTest.
    #[test]
    fn murmur2_is_that_of_kafka() {
        let signed = |text: &[u8]| murmur2(text).cast_signed();
        assert_eq!(signed(b"21"), -973_932_308);
        assert_eq!(signed(b"foobar"), -790_332_482);
        assert_eq!(signed(b"a-little-bit-long-string"), -985_981_536);
        assert_eq!(signed(b"a-little-bit-longer-string"), -1_486_304_829);
        assert_eq!(
            signed(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"),
            -58_897_971
        );
        assert_eq!(signed(b"abc"), 479_470_107);
        assert!((0..7).contains(&partition_of(b"21", 7)));
        assert_eq!(partition_of(b"x", 0), 0);
    }
}
