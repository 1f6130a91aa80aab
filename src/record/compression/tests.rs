use proptest::prelude::*;

use super::*;
use crate::record::samples::{RECORDS, SAMPLES, unhex, value};
use crate::record::{BATCH_HEADER_BYTES, BatchHeader, Records, scan};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn inflate(compression: Compression, payload: &[u8], max: usize) -> Result<Bytes, RecordError> {
    decompress(compression, &Bytes::copy_from_slice(payload), max)
}

#[test]
fn what_clients_compressed_is_read() {
    for sample in SAMPLES {
        let batch = sample.bytes();
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!(header.compression(), Some(sample.compression));
        let payload = batch.slice(BATCH_HEADER_BYTES..);
        assert_eq!(header.compute_crc(&payload), header.crc);
        let plain = decompress(sample.compression, &payload, 1 << 20).unwrap();
        let records: Vec<_> = Records::new(&plain, header.record_count)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(records.len(), RECORDS);
        for (index, record) in records.iter().enumerate() {
            assert_eq!(record.key, Some(format!("key{index}").as_bytes()));
            assert_eq!(record.value, Some(value(index).as_bytes()));
            let headers: Vec<_> = record.headers.collect();
            match sample.client {
                "librdkafka" => assert_eq!(
                    headers,
                    [(&b"a"[..], Some(&b"1"[..])), (&b"a"[..], Some(&b"2"[..]))]
                ),
                _ => assert_eq!(headers, []),
            }
        }
        let mut stamps = Vec::new();
        scan(&header, &payload, 1 << 20, |stamp| {
            stamps.push((stamp.offset_delta, stamp.key_bytes, stamp.value_bytes));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(
            stamps,
            [
                (0, Some(4), Some(19)),
                (1, Some(4), Some(19)),
                (2, Some(4), Some(19))
            ],
            "{}",
            sample.client
        );
    }
}

#[test]
fn output_stops_at_the_limit() {
    let zeros = vec![0; 1 << 20];
    for codec in CODECS {
        let compressed = compress(codec, &zeros).unwrap();
        assert_eq!(
            inflate(codec, &compressed, 1 << 20),
            Ok(zeros.clone().into())
        );
        if codec != Compression::None {
            assert_eq!(
                inflate(codec, &compressed, (1 << 20) - 1),
                Err(RecordError::TooLarge),
                "{codec:?}"
            );
        }
    }
}

#[test]
fn a_level_that_tries_harder_makes_less_of_it() {
    // Words in a fixed disorder: something to find, and more of it for who looks longer.
    let mut word = 1u32;
    let text: Vec<u8> = std::iter::repeat_with(|| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("word-{} ", (word >> 16) % 1_000)
    })
    .take(20_000)
    .flat_map(String::into_bytes)
    .collect();
    let bytes = |codec, change: fn(&mut CompressionLevels)| {
        let mut levels = CompressionLevels::default();
        change(&mut levels);
        let compressed = compress_at(codec, &text, levels).unwrap();
        assert_eq!(inflate(codec, &compressed, text.len()).unwrap(), text);
        compressed.len()
    };
    let gzip = |level: fn(&mut CompressionLevels)| bytes(Compression::Gzip, level);
    assert!(gzip(|l| l.gzip = 9) < gzip(|l| l.gzip = 1));
    assert_eq!(gzip(|l| l.gzip = 6), gzip(|_| ()));
    let lz4 = |level: fn(&mut CompressionLevels)| bytes(Compression::Lz4, level);
    assert!(lz4(|l| l.lz4 = 17) < lz4(|l| l.lz4 = 1));
    assert!(lz4(|l| l.lz4 = 1) < lz4(|_| ()), "the default is fast");
    let zstd = |level: fn(&mut CompressionLevels)| bytes(Compression::Zstd, level);
    assert!(zstd(|l| l.zstd = 19) < zstd(|_| ()));
    assert!(zstd(|_| ()) < zstd(|l| l.zstd = -100));
}

#[test]
fn a_stream_that_is_cut_off_is_refused() {
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let compressed = compress(codec, b"some bytes and some bytes").unwrap();
        for end in 0..compressed.len() {
            let result = inflate(codec, &compressed[..end], 1 << 20);
            assert!(result.is_err() || end == 0, "{codec:?} cut at {end}");
        }
    }
}

#[test]
fn gzip_members_follow_each_other_and_garbage_is_ignored() {
    let mut payload = compress(Compression::Gzip, b"one").unwrap();
    payload.extend(compress(Compression::Gzip, b"two").unwrap());
    payload.extend(b"garbage");
    assert_eq!(
        inflate(Compression::Gzip, &payload, 100),
        Ok(Bytes::from_static(b"onetwo"))
    );
}

#[test]
fn snappy_blocks_that_lie_are_refused_before_they_are_believed() {
    let header = "82534e415050590000000001000000 01".replace(' ', "");
    // A raw block, and xerial ones, that claim 4 GiB, ~2 GiB and nothing.
    let claim = "ffffffff0f00000000";
    for hex in [
        claim.to_owned(),
        format!("{header}00000009{claim}"),
        format!("{header}7fffffff{claim}"),
        format!("{header}ffffffff{claim}"),
        format!("{header}00000000"),
        format!("{header}0000"),
        header[..20].to_owned(),
        // The first block is good, the second is not.
        format!("{header}0000000301006100000009{claim}"),
    ] {
        assert_eq!(
            inflate(Compression::Snappy, &unhex(&hex), 1 << 30),
            Err(RecordError::Decompress),
            "{hex}"
        );
    }
    assert_eq!(
        inflate(Compression::Snappy, &unhex(&header), 100),
        Ok(Bytes::new())
    );
    let twice = format!("{header}00000003010061{header}00000003010062");
    assert_eq!(
        inflate(Compression::Snappy, &unhex(&twice), 100),
        Ok(Bytes::from_static(b"ab"))
    );
}

#[test]
fn headers_of_other_streams_are_refused() {
    for (codec, hex) in [
        // A wrong header checksum; a version that does not exist.
        (Compression::Lz4, "04224d1860408300000000"),
        (Compression::Lz4, "04224d18a0408200000000"),
        // A window of 256 MiB; a dictionary.
        (Compression::Zstd, "28b52ffd0090010000"),
        (Compression::Zstd, "28b52ffd2301020304"),
        (Compression::Gzip, "1f8b0900000000000003"),
    ] {
        assert_eq!(
            inflate(codec, &unhex(hex), 1 << 20),
            Err(RecordError::Decompress),
            "{hex}"
        );
    }
}

#[test]
fn a_batch_may_grow_eightfold_or_to_64_mebibytes() {
    assert_eq!(decompressed_bytes_max(1_048_588), 64 << 20);
    assert_eq!(decompressed_bytes_max(100 << 20), 800 << 20);
    assert_eq!(decompressed_bytes_max(-1), 64 << 20);
}

proptest! {
    #[test]
    fn decompression_undoes_compression(bytes in proptest::collection::vec(0u8..4, 0..9_000)) {
        for codec in CODECS {
            let compressed = compress(codec, &bytes).unwrap();
            prop_assert_eq!(&inflate(codec, &compressed, bytes.len()).unwrap()[..], &bytes[..]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for codec in CODECS {
            let _ = inflate(codec, &bytes, 1 << 16);
        }
    }
}
