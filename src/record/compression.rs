//! The codecs of record batches, bounded.
//!
//! Nothing is allocated by a length that a client claims: output grows as it is produced, up to the
//! caller's limit. Framing is what Kafka's Java client and librdkafka write: gzip members, snappy in
//! xerial's block framing or as one raw block, LZ4 frames, Zstandard frames.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::bufread::GzDecoder;

use super::RecordError;
use crate::types::Compression;

/// Most bytes that the records of one batch may decompress to unless its topic takes larger batches.
const DECOMPRESSED_BYTES: usize = 64 << 20;
/// How many times `max.message.bytes` the records of a batch may decompress to, if that is more.
const DECOMPRESSED_RATIO: usize = 8;
/// Largest window of a Zstandard frame: 128 MiB, which the highest levels ask for and Kafka accepts.
/// Only what the output reaches is ever touched.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Kafka's default level for LZ4, at which it takes the fast compressor, not the thorough one at 9.
const LZ4_LEVEL: i32 = 9;
/// The fast compressor of the LZ4 library, and the levels of its thorough one.
const LZ4_FAST: u32 = 0;
const LZ4_THOROUGH: std::ops::RangeInclusive<i32> = 3..=12;
/// Kafka's default level for Zstandard.
const ZSTD_LEVEL: i32 = 3;
/// How a gzip member starts: its magic and the only method, deflate.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// What xerial's snappy stream starts with: its magic, version 1, readable by version 1.
const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
const XERIAL_MAGIC_BYTES: usize = 8;
/// Bytes of a snappy block that we write, as xerial's stream does.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;
/// A snappy block cannot expand more: its densest element makes 64 bytes of 3.
const SNAPPY_RATIO_MAX: usize = 22;

/// How many bytes the records of a batch may decompress to on a topic with this `max.message.bytes`.
pub fn decompressed_bytes_max(max_message_bytes: i32) -> usize {
    let message = usize::try_from(max_message_bytes).unwrap_or(0);
    message
        .saturating_mul(DECOMPRESSED_RATIO)
        .max(DECOMPRESSED_BYTES)
}

/// Returns the decompressed payload; the payload itself if it is not compressed.
pub fn decompress(
    compression: Compression,
    payload: &Bytes,
    bytes_max: usize,
) -> Result<Bytes, RecordError> {
    if compression == Compression::None {
        return Ok(payload.clone());
    }
    let mut output = Vec::new();
    let limit = u64::try_from(bytes_max).map_or(u64::MAX, |bytes| bytes.saturating_add(1));
    Decompressor::new(compression, payload, bytes_max)?
        .take(limit)
        .read_to_end(&mut output)
        .map_err(|_| RecordError::Decompress)?;
    if output.len() > bytes_max {
        return Err(RecordError::TooLarge);
    }
    Ok(output.into())
}

/// How hard each codec tries where this broker compresses: `compression.<codec>.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionLevels {
    /// 1 to 9; −1: the library's choice.
    pub gzip: i32,
    /// 1 to 17.
    pub lz4: i32,
    pub zstd: i32,
}

impl Default for CompressionLevels {
    fn default() -> Self {
        Self {
            gzip: -1,
            lz4: LZ4_LEVEL,
            zstd: ZSTD_LEVEL,
        }
    }
}

/// Compresses a payload in the framing of Kafka's Java client, at the codec's default level.
pub fn compress(compression: Compression, payload: &[u8]) -> io::Result<Vec<u8>> {
    compress_at(compression, payload, CompressionLevels::default())
}

/// The same at a level of the caller's.
pub(crate) fn compress_at(
    compression: Compression,
    payload: &[u8],
    levels: CompressionLevels,
) -> io::Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(payload.to_vec()),
        Compression::Gzip => {
            let level = u32::try_from(levels.gzip).map(flate2::Compression::new);
            let level = level.unwrap_or_default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(payload)?;
            encoder.finish()
        }
        Compression::Snappy => compress_snappy(payload),
        Compression::Lz4 => {
            let mut encoder = lz4::EncoderBuilder::new()
                .block_size(lz4::BlockSize::Max64KB)
                .block_mode(lz4::BlockMode::Independent)
                .checksum(lz4::ContentChecksum::NoChecksum)
                .level(lz4_level(levels.lz4))
                .build(Vec::new())?;
            encoder.write_all(payload)?;
            let (output, result) = encoder.finish();
            result.map(|()| output)
        }
        Compression::Zstd => zstd::stream::encode_all(payload, levels.zstd),
    }
}

/// What the LZ4 library calls Kafka's level.
fn lz4_level(level: i32) -> u32 {
    if level == LZ4_LEVEL {
        return LZ4_FAST;
    }
    level
        .clamp(*LZ4_THOROUGH.start(), *LZ4_THOROUGH.end())
        .unsigned_abs()
}

fn compress_snappy(payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut output = XERIAL_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in payload.chunks(XERIAL_BLOCK_BYTES) {
        let block = encoder.compress_vec(block).map_err(io::Error::other)?;
        let length = u32::try_from(block.len()).map_err(io::Error::other)?;
        output.extend_from_slice(&length.to_be_bytes());
        output.extend_from_slice(&block);
    }
    Ok(output)
}

/// A compressed payload as a stream of its decompressed bytes.
pub(crate) enum Decompressor<'a> {
    None(&'a [u8]),
    /// `None` once the last member has ended.
    Gzip(Option<Box<GzDecoder<&'a [u8]>>>),
    Snappy(Box<SnappyReader<'a>>),
    /// `None` once the frame has ended.
    Lz4(Option<Box<lz4::Decoder<&'a [u8]>>>),
    Zstd(zstd::stream::read::Decoder<'static, &'a [u8]>),
}

impl<'a> Decompressor<'a> {
    /// No block of the stream may decompress to more than `block_bytes_max`.
    pub(crate) fn new(
        compression: Compression,
        payload: &'a [u8],
        block_bytes_max: usize,
    ) -> Result<Self, RecordError> {
        Ok(match compression {
            Compression::None => Self::None(payload),
            Compression::Gzip => Self::Gzip(Some(Box::new(GzDecoder::new(payload)))),
            Compression::Snappy => {
                Self::Snappy(Box::new(SnappyReader::new(payload, block_bytes_max)?))
            }
            Compression::Lz4 => Self::Lz4(Some(Box::new(
                lz4::Decoder::new(payload).map_err(|_| RecordError::Decompress)?,
            ))),
            Compression::Zstd => {
                Self::Zstd(zstd_reader(payload).map_err(|_| RecordError::Decompress)?)
            }
        })
    }
}

fn zstd_reader(payload: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(payload)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

impl Read for Decompressor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(bytes) => bytes.read(buffer),
            Self::Gzip(reader) => read_gzip(reader, buffer),
            Self::Snappy(reader) => reader.read(buffer),
            Self::Lz4(reader) => read_lz4(reader, buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// Reads on, through all members. Bytes behind the last one are ignored, as Java's reader does.
fn read_gzip(reader: &mut Option<Box<GzDecoder<&[u8]>>>, buffer: &mut [u8]) -> io::Result<usize> {
    while let Some(decoder) = reader {
        let bytes = decoder.read(buffer)?;
        if bytes > 0 || buffer.is_empty() {
            return Ok(bytes);
        }
        let rest = *decoder.get_ref();
        *reader = rest
            .starts_with(&GZIP_MAGIC)
            .then(|| Box::new(GzDecoder::new(rest)));
    }
    Ok(0)
}

/// Reads on, and at the end of the input checks that it was the end of the frame too.
fn read_lz4(reader: &mut Option<Box<lz4::Decoder<&[u8]>>>, buffer: &mut [u8]) -> io::Result<usize> {
    let Some(decoder) = reader else {
        return Ok(0);
    };
    let bytes = decoder.read(buffer)?;
    if bytes == 0
        && !buffer.is_empty()
        && let Some(decoder) = reader.take()
    {
        // An interrupted read would be tried again.
        decoder.finish().1.map_err(|_| malformed())?;
    }
    Ok(bytes)
}

/// Reads xerial's block framing, or one raw block if the payload does not start as that does.
pub(crate) struct SnappyReader<'a> {
    input: &'a [u8],
    block: Vec<u8>,
    position: usize,
    raw: bool,
    block_bytes_max: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(payload: &'a [u8], block_bytes_max: usize) -> Result<Self, RecordError> {
        let xerial = payload.starts_with(&XERIAL_HEADER[..XERIAL_MAGIC_BYTES]);
        let input = if xerial {
            payload
                .get(XERIAL_HEADER.len()..)
                .ok_or(RecordError::Decompress)?
        } else {
            payload
        };
        Ok(Self {
            input,
            block: Vec::new(),
            position: 0,
            raw: !xerial,
            block_bytes_max,
        })
    }

    /// Decompresses the next block. Returns false if there is none.
    fn next_block(&mut self) -> io::Result<bool> {
        // Streams that were put together carry the header again.
        while !self.raw && self.input.starts_with(&XERIAL_HEADER[..XERIAL_MAGIC_BYTES]) {
            self.input = self.input.get(XERIAL_HEADER.len()..).unwrap_or_default();
        }
        if self.input.is_empty() {
            return Ok(false);
        }
        let block = if self.raw {
            std::mem::take(&mut self.input)
        } else {
            let (length, rest) = self.input.split_first_chunk().ok_or_else(malformed)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| malformed())?;
            let (block, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
            self.input = rest;
            block
        };
        let length = snap::raw::decompress_len(block).map_err(|_| malformed())?;
        let length_max = block.len() * SNAPPY_RATIO_MAX;
        if block.is_empty() || length > length_max.min(self.block_bytes_max) {
            return Err(malformed());
        }
        self.block.resize(length, 0);
        self.position = 0;
        let written = snap::raw::Decoder::new()
            .decompress(block, &mut self.block)
            .map_err(|_| malformed())?;
        self.block.truncate(written);
        Ok(true)
    }
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let bytes = (&self.block[self.position..]).read(buffer)?;
        self.position += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
