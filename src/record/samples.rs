//! Batches as real clients sent them: taken from the log of an Apache Kafka 4.4 to which they produced,
//! base offset set back to 0.

use bytes::Bytes;

use crate::types::Compression;

/// Records of each sample: `key<i>` and [`value`], from librdkafka with two headers of the same key.
pub(crate) const RECORDS: usize = 3;

pub(crate) fn value(index: usize) -> String {
    format!("value value value {index}")
}

/// A batch, who made it and with what.
pub(crate) struct Sample {
    pub(crate) client: &'static str,
    pub(crate) compression: Compression,
    hex: &'static str,
}

impl Sample {
    pub(crate) fn bytes(&self) -> Bytes {
        unhex(self.hex)
    }
}

pub(crate) fn unhex(hex: &str) -> Bytes {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

pub(crate) const SAMPLES: &[Sample] = &[
    Sample {
        client: "librdkafka",
        compression: Compression::Gzip,
        hex: "0000000000000000000000750000000002ba335f1d000100000002000001a228693c49000001a228\
              693c49ffffffffffffffffffffffffffff000000031f8b0800000000000003f3626060e0c84ead34\
              502b4bcc294d5540260d589812990c81d8c88b818109a4ca108b2a4364552c205546585419c15501\
              00ec9b31ea72000000",
    },
    Sample {
        client: "librdkafka",
        compression: Compression::Snappy,
        hex: "00000000000000000000007500000000027313321a000200000002000001a2286b6dd4000001a228\
              6b6dd4ffffffffffffffffffffffffffff00000003723c4a000000086b6579302676616c7565202e\
              060034300402610231026102324a000002012600314a260000312e26000004012600324a26002432\
              040261023102610232",
    },
    Sample {
        client: "librdkafka",
        compression: Compression::Lz4,
        hex: "000000000000000000000082000000000245a8e662000300000002000001a228694442000001a228\
              694442ffffffffffffffffffffffffffff0000000304224d1860408242000000f8014a000000086b\
              6579302676616c7565200600e0300402610231026102324a00000226001f31260000183126001004\
              26001f32260000a03204026102310261023200000000",
    },
    Sample {
        client: "librdkafka",
        compression: Compression::Zstd,
        hex: "0000000000000000000000720000000002545d577b000400000002000001a228694862000001a228\
              694862ffffffffffffffffffffffffffff0000000328b52ffd0058c5010074024a000000086b6579\
              302676616c756520300402610231026102324a000002086b657931310432320600a0109007020638\
              31a9240857c0",
    },
    Sample {
        client: "kafka-clients",
        compression: Compression::Gzip,
        hex: "00000000000000000000006c00000000023d1b8087000100000002000001a2286951c3000001a228\
              6951cc0000000000000000000000000000000000031f8b08000000000000ffb3626060e0c84ead34\
              502b4bcc294d5540260d18ac18849840b28658640d41b22c2059232cb2460c00fc40933c5a000000",
    },
    Sample {
        client: "kafka-clients",
        compression: Compression::Snappy,
        hex: "0000000000000000000000780000000002cd5b6bdb000200000002000001a22869586b000001a228\
              69589800000000000000010000000000000000000382534e41505059000000000100000001000000\
              335a3c3a000000086b6579302676616c7565202e06001430003a005a02011e00314a1e000031011e\
              0004011e00324a1e00043200",
    },
    Sample {
        client: "kafka-clients",
        compression: Compression::Lz4,
        hex: "000000000000000000000075000000000287aa063e000300000002000001a228696024000001a228\
              69606900000000000000020000000000000000000304224d1860408235000000f8013a000000086b\
              6579302676616c75652006007030003c008a01021f001f311f000011311f0010041f001c321f0050\
              756520320000000000",
    },
    Sample {
        client: "kafka-clients",
        compression: Compression::Zstd,
        hex: "00000000000000000000006d000000000234769309000400000002000001a22869675f000001a228\
              6967a500000000000000030000000000000000000328b52ffd005884010014023a000000086b6579\
              302676616c75652030003c008c0102086b657931310432320005002005c4818b099550e10a180100\
              00",
    },
];
