//! Pages of metrics.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::telemetry::names::{Family, Type};
use crate::telemetry::{ClientUse, GroupOffsetSample, GroupStateSample, LogSample, RequestTimes};
use crate::time::{Clock, ManualClock};
use crate::types::{BrokerId, ErrorCode, ListenerName};

#[derive(Debug)]
struct OneOfEach;

impl ScrapeSource for OneOfEach {
    fn cluster(&self) -> ClusterSample {
        ClusterSample {
            brokers: vec![(BrokerId(1), "127.0.0.1:9092".to_string())],
            controller: Some(BrokerId(1)),
            is_controller: true,
            topics: 1,
            ..ClusterSample::default()
        }
    }

    fn log_dirs(&self) -> Vec<LogDirSample> {
        let log_dir = |full, offline| LogDirSample {
            path: "/data".to_string(),
            full,
            offline,
        };
        vec![
            log_dir(false, false),
            log_dir(true, false),
            log_dir(false, true),
        ]
    }

    fn readiness(&self) -> Readiness {
        Readiness::default()
    }

    fn config(&self) -> String {
        String::new()
    }

    fn damage_found(&self) -> u64 {
        3
    }

    fn partitions(&self) -> Vec<PartitionSample> {
        let partition = |number: i32, in_sync_replicas: usize| PartitionSample {
            topic: "orders".into(),
            partition: number,
            leader: Some(BrokerId(1)),
            leader_is_preferred: true,
            replicas: 2,
            in_sync_replicas,
            min_insync_replicas: 2,
            led_here: true,
            reassigning: false,
            log: Some(LogSample {
                start_offset: 3,
                end_offset: 10,
                high_watermark: 9,
                size: 4_096,
                segments: 2,
                damaged_places: 1,
            }),
            offline_here: false,
        };
        vec![partition(0, 2), partition(1, 1)]
    }

    fn groups(&self) -> futures_util::future::BoxFuture<'_, Vec<GroupSample>> {
        let offset = |partition, offset, lag: Option<i64>| GroupOffsetSample {
            topic: "orders".into(),
            partition,
            offset,
            lag,
            lag_seconds: lag.map(|lag| lag as f64 * 1.5),
        };
        Box::pin(std::future::ready(vec![GroupSample {
            group: "a \"quoted\\\ngroup".to_string(),
            state: GroupStateSample::Stable,
            members: 3,
            offsets: vec![offset(0, 4, Some(5)), offset(1, 9, Some(0))],
        }]))
    }
}

fn options(format: Format) -> PageOptions {
    PageOptions {
        limits: PageLimits {
            series: 100_000,
            bytes: 8 << 20,
        },
        format,
        now: ManualClock::new(1_900_000_000_000).now(),
    }
}

fn write(source: &dyn ScrapeSource, metrics: &Arc<Metrics>, options: PageOptions) -> String {
    let scrape = Scrape::new(metrics, source, options);
    futures_util::FutureExt::now_or_never(scrape)
        .unwrap()
        .page()
}

/// A page with something in every family.
fn page_as(format: Format) -> String {
    let metrics = Arc::new(Metrics::new());
    let topic = metrics.topic(&"orders".into());
    topic.messages_in.add(7);
    metrics.topic(&"gone".into()).messages_in.add(2);
    metrics.remove_topic("gone");
    metrics.request(0).request(9);
    metrics.request(0).error(ErrorCode::NotLeaderOrFollower);
    metrics.request(0).times(RequestTimes {
        request_queue: Duration::from_millis(1),
        local: Duration::from_millis(2),
        remote: Duration::from_millis(3),
        ..RequestTimes::default()
    });
    metrics.fetch_follower().request(17);
    metrics.request(9_999).request(0);
    metrics.request(-1).request(-1);
    metrics.log_flush_time.record(Duration::from_millis(4));
    metrics.leader_elections.record(Duration::from_millis(4));
    let listener: ListenerName = "PLAINTEXT".into();
    metrics.listener(&listener).opened();
    let client = ClientUse::default();
    let radar = &metrics.radar;
    radar.told(&client, &listener, "apache-kafka-java", "4.4.0");
    radar.used(&client, 0, 9);
    radar.refused(&ClientUse::default(), Some("billing"), 1, 2);
    write(&OneOfEach, &metrics, options(format))
}

fn page() -> String {
    page_as(Format::TEXT)
}

#[test]
fn a_page_shows_what_was_counted_and_what_is() {
    let page = page();
    for line in [
        "kafka_server_brokertopicmetrics_messagesin_total 9",
        "kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"} 7",
        "kafka_network_requestmetrics_requests_total{request=\"Produce\",version=\"9\"} 1",
        "kafka_network_requestmetrics_requests_total{request=\"FetchFollower\",version=\"17\"} 1",
        "kafka_network_requestmetrics_requests_total{request=\"Unknown\",version=\"0\"} 2",
        "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"NOT_LEADER_OR_FOLLOWER\"} 1",
        "kafka_network_requestmetrics_totaltimems_count{request=\"Produce\"} 1",
        "kafka_network_requestmetrics_requestqueuetimems_sum{request=\"Produce\"} 1",
        "kafka_network_requestmetrics_totaltimems_sum{request=\"Produce\"} 6",
        "kafka_server_replicamanager_underminisrpartitioncount 1",
        "kafka_log_log_logendoffset{topic=\"orders\",partition=\"1\"} 10",
        "kafka_topic_partition_current_offset{topic=\"orders\",partition=\"0\"} 9",
        "kafka_consumergroup_lag{consumergroup=\"a \\\"quoted\\\\\\ngroup\",topic=\"orders\",partition=\"0\"} 5",
        "kafka_consumergroup_lag_sum{consumergroup=\"a \\\"quoted\\\\\\ngroup\",topic=\"orders\"} 5",
        "kafka_server_socket_server_metrics_connection_count{listener=\"PLAINTEXT\",network_processor=\"0\"} 1",
        "kafka_controller_kafkacontroller_activecontrollercount 1",
        "kafka_log_logflushstats_logflushrateandtimems_count 1",
        "ottla_log_damaged_places{topic=\"orders\",partition=\"1\"} 1",
        "ottla_log_damage_found_total 3",
        "ottla_consumergroup_lag_seconds{consumergroup=\"a \\\"quoted\\\\\\ngroup\",topic=\"orders\",partition=\"0\"} 7.5",
        "ottla_consumergroup_lag_seconds_max{consumergroup=\"a \\\"quoted\\\\\\ngroup\"} 7.5",
        "kafka_server_socket_server_metrics_connections_software{client_software_name=\"apache-kafka-java\",client_software_version=\"4.4.0\",listener=\"PLAINTEXT\",network_processor=\"0\"} 1",
        "ottla_client_connections_total{client_software_name=\"apache-kafka-java\",client_software_version=\"4.4.0\",request=\"Produce\",version=\"9\"} 1",
        "ottla_client_too_old_for_kafka_4_requests_total{client_id=\"billing\",client_software_name=\"unknown\",client_software_version=\"unknown\",request=\"FetchConsumer\",version=\"2\"} 1",
        "kafka_server_raftmetrics_current_state{current_state=\"leader\"} 1",
        "ottla_cluster_under_min_isr_partitions 1",
        "ottla_ready 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[test]
fn every_family_is_on_the_page_once() {
    let page = page();
    for family in n::FAMILIES {
        let help = format!("# HELP {} ", family.name);
        let count = page.lines().filter(|line| line.starts_with(&help)).count();
        assert_eq!(count, 1, "{}", family.name);
        assert_eq!(
            family.name.ends_with("_total"),
            family.kind == Type::Counter,
            "{}",
            family.name
        );
    }
}

#[test]
fn promtool_finds_nothing_to_say() {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        eprintln!("promtool is not installed (Debian: prometheus); not checked");
        return;
    };
    let mut input = tool.stdin.take().unwrap();
    input.write_all(page().as_bytes()).unwrap();
    drop(input);
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// What boards and alerts for Kafka ask for: type, name, labels; `|` stands between names that share the
/// rest. The spelling is that of the JMX exporter's example rules and Strimzi's, then of kafka_exporter.
const ASKED: &str = "
counter kafka_server_brokertopicmetrics_ messagesin_total|bytesin_total|bytesout_total|bytesrejected_total|failedproducerequests_total|failedfetchrequests_total|totalproducerequests_total|totalfetchrequests_total|replicationbytesin_total|replicationbytesout_total|producemessageconversions_total|fetchmessageconversions_total
counter kafka_server_brokertopicmetrics_ messagesin_total|bytesin_total|bytesout_total topic
gauge kafka_server_replicamanager_ partitioncount|leadercount|underreplicatedpartitions|underminisrpartitioncount|atminisrpartitioncount|offlinereplicacount|reassigningpartitions
counter kafka_server_replicamanager_ isrshrinks_total|isrexpands_total|failedisrupdates_total
gauge kafka_cluster_partition_ underminisr|atminisr|replicascount|insyncreplicascount|underreplicated topic,partition
gauge kafka_controller_kafkacontroller_ activecontrollercount|offlinepartitionscount|globaltopiccount|globalpartitioncount|preferredreplicaimbalancecount|activebrokercount|fencedbrokercount|metadataerrorcount
counter kafka_controller_controllerstats_ uncleanleaderelections_total
summary kafka_controller_controllerstats_ leaderelectionrateandtimems quantile
gauge kafka_log_log_ size|logstartoffset|logendoffset|numlogsegments topic,partition
gauge kafka_log_logmanager_ offlinelogdirectorycount
summary kafka_log_logflushstats_ logflushrateandtimems quantile
counter kafka_network_requestmetrics_ requests_total request,version
summary kafka_network_requestmetrics_ totaltimems|requestqueuetimems|localtimems|remotetimems|responsequeuetimems|responsesendtimems request,quantile
counter kafka_network_requestmetrics_ errors_total request,error
gauge kafka_network_ socketserver_networkprocessoravgidle_percent|requestchannel_requestqueuesize|requestchannel_responsequeuesize
gauge kafka_server_kafkarequesthandlerpool_ requesthandleravgidle_percent
untyped kafka_server_socket_server_metrics_ connection_count listener,networkProcessor
gauge kafka_server_socket_server_metrics_ connection_creation_rate|connection_close_rate listener,networkProcessor
gauge kafka_server_socket_server_metrics_ connections_software clientSoftwareName,clientSoftwareVersion,listener,networkProcessor
gauge kafka_server_kafkaserver_ brokerstate|linux_disk_read_bytes|linux_disk_write_bytes
gauge kafka_server_delayedoperationpurgatory_ purgatorysize delayedOperation
gauge kafka_server_fetchsessioncache_ numincrementalfetchsessions|numincrementalfetchpartitionscached
counter kafka_server_fetchsessioncache_ incrementalfetchsessionevictions_total
gauge kafka_coordinator_group_groupmetadatamanager_ numgroups|numoffsets|numgroupsstable|numgroupsempty|numgroupsdead|numgroupspreparingrebalance|numgroupscompletingrebalance
gauge kafka_server_replicafetchermanager_ maxlag|minfetchrate clientId
gauge kafka_server_raftmetrics_ current_state current_state
gauge kafka_server_raftmetrics_ current_leader|current_epoch|high_watermark|log_end_offset
counter process_ cpu_seconds_total
gauge process_ resident_memory_bytes|virtual_memory_bytes|open_fds|max_fds|start_time_seconds
gauge jvm_ memory_used_bytes area
gauge jvm_ threads_current
gauge kafka_ brokers
gauge kafka_ broker_info id,address
gauge kafka_topic_ partitions topic
gauge kafka_topic_partition_ current_offset|oldest_offset|leader|leader_is_preferred|replicas|in_sync_replica|under_replicated_partition topic,partition
gauge kafka_consumergroup_ current_offset|lag consumergroup,topic,partition
untyped kafka_consumergroup_ current_offset_sum|lag_sum consumergroup,topic
gauge kafka_consumergroup_ members consumergroup
";

/// The names of the labels of a line of a page.
fn labels_of(line: &str) -> Vec<&str> {
    let Some((_, rest)) = line.split_once('{') else {
        return Vec::new();
    };
    let mut names: Vec<&str> = rest
        .split("=\"")
        .filter_map(|part| part.rsplit(['{', ',', '"']).next())
        .collect();
    names.pop();
    names
}

#[test]
fn boards_and_alerts_for_kafka_find_every_name_with_its_type_and_labels() {
    let page = page_as(Format {
        kafka_labels: true,
        ..Format::TEXT
    });
    let mut types = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            types.insert(name, kind);
        }
    }
    let mut asked = 0;
    for line in ASKED.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (kind, prefix) = (words.next().unwrap(), words.next().unwrap());
        let names = words.next().unwrap();
        let labels: Vec<&str> = words.next().unwrap_or("").split_terminator(',').collect();
        for name in names.split('|') {
            let name = format!("{prefix}{name}");
            assert_eq!(types.get(name.as_str()), Some(&kind), "{name}");
            let series = |line: &&str| {
                line.strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            let found = page
                .lines()
                .filter(series)
                .any(|line| labels_of(line) == labels);
            assert!(found, "{name} {labels:?}\n{page}");
            asked += 1;
        }
    }
    assert!(asked > 90, "{asked}");
}

#[test]
fn what_only_the_controller_knows_the_others_do_not_repeat() {
    #[derive(Debug)]
    struct Other;
    impl ScrapeSource for Other {
        fn cluster(&self) -> ClusterSample {
            ClusterSample {
                is_controller: false,
                ..OneOfEach.cluster()
            }
        }
        fn readiness(&self) -> Readiness {
            let missing = vec!["registration".to_string()];
            Readiness { missing }
        }
        fn config(&self) -> String {
            String::new()
        }
        fn log_dirs(&self) -> Vec<LogDirSample> {
            Vec::new()
        }
        fn damage_found(&self) -> u64 {
            0
        }
        fn partitions(&self) -> Vec<PartitionSample> {
            let mut partitions = OneOfEach.partitions();
            partitions[0].leader = None;
            partitions[0].led_here = false;
            partitions
        }
        fn groups(&self) -> futures_util::future::BoxFuture<'_, Vec<GroupSample>> {
            Box::pin(std::future::ready(Vec::new()))
        }
    }
    let metrics = Arc::new(Metrics::new());
    let page = write(&Other, &metrics, options(Format::TEXT));
    for line in [
        "kafka_controller_kafkacontroller_activecontrollercount 0",
        "kafka_controller_kafkacontroller_offlinepartitionscount 0",
        "kafka_controller_kafkacontroller_globalpartitioncount 0",
        "ottla_ready 0",
        "kafka_server_raftmetrics_current_state{current_state=\"follower\"} 1",
        "kafka_topic_partition_replicas{topic=\"orders\",partition=\"1\"} 2",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert!(!page.contains("kafka_topic_partition_replicas{topic=\"orders\",partition=\"0\"}"));
    assert!(!page.contains("\nkafka_brokers ") && !page.contains("\nkafka_broker_info{"));
}

/// A broker that leads that many partitions.
#[derive(Debug)]
struct Many(i32);

impl ScrapeSource for Many {
    fn cluster(&self) -> ClusterSample {
        OneOfEach.cluster()
    }
    fn readiness(&self) -> Readiness {
        Readiness::default()
    }
    fn config(&self) -> String {
        String::new()
    }
    fn log_dirs(&self) -> Vec<LogDirSample> {
        Vec::new()
    }
    fn damage_found(&self) -> u64 {
        0
    }
    fn partitions(&self) -> Vec<PartitionSample> {
        let one = OneOfEach.partitions().remove(0);
        let partition = |number: i32| PartitionSample {
            topic: format!("a-topic-with-a-long-name-{}", number / 100).into(),
            partition: number % 100,
            log: one.log.map(|log| LogSample {
                end_offset: 1_234_567_890,
                high_watermark: 1_234_567_890,
                ..log
            }),
            ..one.clone()
        };
        (0..self.0).map(partition).collect()
    }
    fn groups(&self) -> futures_util::future::BoxFuture<'_, Vec<GroupSample>> {
        OneOfEach.groups()
    }
}

/// The number of series of a family, and what the page says that it has left out.
fn found_and_left_out(page: &str, family: Family) -> (usize, usize) {
    let series = format!("{}{{", family.name);
    let told = format!("{}{{family=\"{}\"}} ", n::LEFT_OUT.name, family.name);
    let left_out = page.lines().find_map(|line| line.strip_prefix(&told));
    (
        page.lines()
            .filter(|line| line.starts_with(&series))
            .count(),
        left_out.map_or(0, |count| count.parse().unwrap()),
    )
}

#[test]
fn a_page_of_ten_thousand_partitions_stays_below_eight_mebibytes() {
    let metrics = Arc::new(Metrics::new());
    let begun = crate::time::SystemClock.now();
    let page = write(&Many(10_000), &metrics, options(Format::TEXT));
    let took = crate::time::SystemClock.now() - begun;
    println!("{} bytes in {took:?}", page.len());
    assert!(page.len() <= (8 << 20) + (64 << 10), "{}", page.len());
    assert!(page.len() > 6 << 20, "{}", page.len());
    for (family, rows) in BOUNDED {
        if matches!(rows, bounded::Rows::Led(_) | bounded::Rows::Log(_)) {
            let (found, left_out) = found_and_left_out(&page, *family);
            assert_eq!(found + left_out, 10_000, "{}", family.name);
            assert!(found == 0 || left_out == 0, "{}", family.name);
        }
    }
    // The most wanted are there.
    for family in [n::LOG_SIZE, n::EXPORTER_CURRENT_OFFSET, n::EXPORTER_IN_SYNC] {
        assert_eq!(found_and_left_out(&page, family), (10_000, 0));
    }
    // So are all at a tenth of that.
    let page = write(&Many(1_000), &metrics, options(Format::TEXT));
    assert!(!page.contains(&format!("\n{}{{", n::LEFT_OUT.name)));
}

#[test]
fn the_number_of_series_is_bounded_too() {
    let metrics = Arc::new(Metrics::new());
    for number in 0..300 {
        metrics.topic(&format!("t{number}").into()).bytes_in.add(1);
    }
    let mut options = options(Format::TEXT);
    options.limits.series = 1_000;
    let page = write(&Many(500), &metrics, options);
    let labelled = page.lines().filter(|line| line.contains('{')).count();
    assert!((800..=1_060).contains(&labelled), "{labelled}");
    assert_eq!(found_and_left_out(&page, n::MESSAGES_IN), (300, 0));
    assert_eq!(found_and_left_out(&page, n::BYTES_REJECTED).1, 300);
    // The sum over all topics stays.
    assert!(page.contains("\nkafka_server_brokertopicmetrics_bytesrejected_total 0\n"));
    assert_eq!(found_and_left_out(&page, n::GROUP_LAG), (2, 0));
}
