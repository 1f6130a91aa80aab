//! The checksum of batches: CRC-32C (Castagnoli), which `crc-fast` calls iSCSI.

/// The checksum of one piece.
pub fn of(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of `head` followed by `tail`, without putting them together.
pub fn of_parts(head: &[u8], tail: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(tail);
    u32::try_from(digest.finalize()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of_parts(b"1234", b"56789"), 0xe306_9283);
        assert_eq!(of_parts(b"", b"123456789"), 0xe306_9283);
        assert_eq!(of(b""), 0);
    }
}
