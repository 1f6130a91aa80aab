//! The answer of DescribeLogDirs v5, which the codec does not have: v4 with one boolean more.

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::DescribeLogDirsResponse;
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;

use super::wire::Writer;

/// The version that is written here.
pub const DESCRIBE_LOG_DIRS_VERSION: i16 = 5;

/// The body as version 5 has it. No directory is cordoned (KIP-1066).
pub fn encode_describe_log_dirs(response: &DescribeLogDirsResponse) -> Bytes {
    let mut writer = Writer::new(64, true);
    writer.buffer.put_i32(response.throttle_time_ms);
    writer.buffer.put_i16(response.error_code);
    writer.count(response.results.len());
    for result in &response.results {
        directory(&mut writer, result);
    }
    writer.no_tags();
    writer.buffer.freeze()
}

fn directory(writer: &mut Writer, result: &DescribeLogDirsResult) {
    writer.buffer.put_i16(result.error_code);
    writer.string(&result.log_dir);
    writer.count(result.topics.len());
    for topic in &result.topics {
        writer.string(&topic.name);
        writer.count(topic.partitions.len());
        for partition in &topic.partitions {
            writer.buffer.put_i32(partition.partition_index);
            writer.buffer.put_i64(partition.partition_size);
            writer.buffer.put_i64(partition.offset_lag);
            writer.buffer.put_u8(u8::from(partition.is_future_key));
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.buffer.put_i64(result.total_bytes);
    writer.buffer.put_i64(result.usable_bytes);
    writer.buffer.put_u8(0); // isCordoned
    writer.no_tags();
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::messages::describe_log_dirs_response::{
        DescribeLogDirsPartition, DescribeLogDirsTopic,
    };
    use kafka_protocol::protocol::{Encodable, StrBytes};

    use super::*;

    #[test]
    fn it_is_the_codecs_version_4_with_a_boolean_more_in_each_result() {
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(3)
            .with_partition_size(1 << 40)
            .with_offset_lag(7);
        let topic = DescribeLogDirsTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("t")))
            .with_partitions(vec![partition; 130]);
        let full = DescribeLogDirsResult::default()
            .with_log_dir(StrBytes::from_static_str("/data"))
            .with_topics(vec![topic])
            .with_total_bytes(5)
            .with_usable_bytes(4);
        let failed = DescribeLogDirsResult::default()
            .with_error_code(56)
            .with_log_dir(StrBytes::from_static_str("/broken"));
        for results in [vec![], vec![failed.clone()], vec![full, failed]] {
            let response = DescribeLogDirsResponse::default()
                .with_throttle_time_ms(9)
                .with_results(results.clone());
            let mut expected = BytesMut::new();
            expected.put_i32(9);
            expected.put_i16(0);
            expected.put_u8(u8::try_from(results.len() + 1).unwrap());
            for result in &results {
                let mut as_4 = BytesMut::new();
                result.encode(&mut as_4, 4).unwrap();
                let tags = as_4.len() - 1;
                expected.put_slice(&as_4[..tags]);
                expected.put_slice(&[0, 0]);
            }
            expected.put_u8(0);
            assert_eq!(encode_describe_log_dirs(&response), expected);
        }
    }
}
