// franz-go against a broker: franz-go BOOTSTRAP
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	c "ottla.invalid/compat/check"
)

var (
	bootstrap = os.Args[1]
	checks    = c.New("go/franz-go")
	admin     *kadm.Client
	ctx       = context.Background()
)

func client(options ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.FetchMaxWait(100 * time.Millisecond), kgo.SessionTimeout(10 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, options...)...)
	c.Must(err, "a client")
	return cl
}

func topic(what string, partitions int32, configs ...string) string {
	name := checks.Topic(what)
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	r, err := admin.CreateTopics(ctx, partitions, c.Replicas, m, name)
	c.Must(err, "creating a topic")
	c.Must(r[name].Err, "creating "+name)
	c.Eventually("the topic's leaders", 20, func() bool {
		d, err := admin.ListTopics(ctx, name)
		c.Must(err, "listing a topic")
		if d[name].Err != nil || len(d[name].Partitions) != int(partitions) {
			return false
		}
		for _, p := range d[name].Partitions {
			if p.Leader < 0 {
				return false
			}
		}
		return true
	})
	return name
}

type sender struct {
	cl           *kgo.Client
	topic        string
	partitions   int
	mutex        sync.Mutex
	acknowledged map[int]c.Place
	failed       error
}

func newSender(cl *kgo.Client, topic string, partitions int) *sender {
	return &sender{cl: cl, topic: topic, partitions: partitions, acknowledged: map[int]c.Place{}}
}

func (s *sender) send(from, to int) *sender {
	for i := from; i < to; i++ {
		record := &kgo.Record{Topic: s.topic, Partition: int32(i % s.partitions), Key: c.Key(i), Value: c.Value(i), Timestamp: time.UnixMilli(c.Base + int64(i))}
		for _, h := range c.Headers(i) {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		s.cl.Produce(ctx, record, func(r *kgo.Record, err error) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			if err != nil {
				s.failed = err
			} else {
				s.acknowledged[i] = c.Place{Partition: r.Partition, Offset: r.Offset}
			}
		})
	}
	return s
}

func (s *sender) flush() *sender {
	timeout, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	c.Must(s.cl.Flush(timeout), "the flush")
	c.Must(s.failed, "sending")
	return s
}

func received(r *kgo.Record) c.Received {
	got := c.Received{Place: c.Place{Partition: r.Partition, Offset: r.Offset}, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()}
	for _, h := range r.Headers {
		got.Headers = append(got.Headers, c.Header{Key: h.Key, Value: h.Value})
	}
	return got
}

func poll(cl *kgo.Client, count int) []c.Received {
	var records []c.Received
	c.Eventually(fmt.Sprintf("%d records", count), 30, func() bool {
		timeout, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		fetches := cl.PollFetches(timeout)
		for _, e := range fetches.Errors() {
			if timeout.Err() == nil {
				c.Must(e.Err, "a fetch")
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, received(r)) })
		return len(records) >= count
	})
	return records
}

func reader(topic string, partitions int, options ...kgo.Opt) *kgo.Client {
	offsets := map[int32]kgo.Offset{}
	for p := range partitions {
		offsets[int32(p)] = kgo.NewOffset().AtStart()
	}
	return client(append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))...)
}

func config(topic, key string) string {
	r, err := admin.DescribeTopicConfigs(ctx, topic)
	c.Must(err, "describing configs")
	for _, e := range r[0].Configs {
		if e.Key == key {
			return e.MaybeValue()
		}
	}
	return "no such config"
}

func alter(topic string, op kadm.IncrementalOp, key, value string) error {
	r, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: key, Value: &value}}, topic)
	c.Must(err, "altering a config")
	return r[0].Err
}

func topics() {
	name := topic("topics", 3, "retention.ms", "7200000", "cleanup.policy", "compact")
	again, err := admin.CreateTopics(ctx, 1, 1, nil, name)
	c.Must(err, "creating it again")
	c.ErrorNames(again[name].Err, "TOPIC_ALREADY_EXISTS")
	bad, err := admin.CreateTopics(ctx, 1, 9, nil, name+"-rf")
	c.Must(err, "creating a topic with 9 replicas")
	c.ErrorNames(bad[name+"-rf"].Err, "INVALID_REPLICATION_FACTOR")
	c.Equal(config(name, "retention.ms")+" "+config(name, "cleanup.policy"), "7200000 compact", "configs")
	c.Must(alter(name, kadm.SetConfig, "retention.ms", "3600000"), "setting a config")
	c.Must(alter(name, kadm.AppendConfig, "cleanup.policy", "delete"), "appending to a config")
	c.Eventually("the altered configs", 20, func() bool { return config(name, "retention.ms")+" "+config(name, "cleanup.policy") == "3600000 compact,delete" })
	c.ErrorNames(alter(name, kadm.SetConfig, "retention.ms", "soon"), "INVALID_CONFIG")
	value := "1800000"
	all, err := admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, name)
	c.Must(err, "AlterConfigs")
	c.Must(all[0].Err, "AlterConfigs")
	c.Eventually("all configs to be replaced", 20, func() bool { return config(name, "retention.ms")+" "+config(name, "cleanup.policy") == "1800000 delete" })
	more, err := admin.UpdatePartitions(ctx, 5, name)
	c.Must(err, "adding partitions")
	c.Must(more[name].Err, "adding partitions")
	c.Eventually("5 partitions", 20, func() bool {
		d, err := admin.ListTopics(ctx, name)
		return err == nil && len(d[name].Partitions) == 5
	})
	cl := client()
	defer cl.Close()
	r, err := cl.ProduceSync(ctx, &kgo.Record{Topic: name, Partition: 4, Key: []byte("key"), Value: []byte("")}).First()
	c.Must(err, "a record to a new partition")
	c.Equal(r.Offset, 0, "its offset")
	deleted, err := admin.DeleteTopics(ctx, name)
	c.Must(err, "deleting")
	c.Must(deleted[name].Err, "deleting")
	c.Eventually("the topic to be gone", 20, func() bool {
		d, err := admin.ListTopics(ctx)
		return err == nil && !d.Has(name)
	})
	deleted, _ = admin.DeleteTopics(ctx, name)
	c.ErrorNames(deleted[name].Err, "UNKNOWN_TOPIC")
}

func cluster() {
	m, err := admin.BrokerMetadata(ctx)
	c.Must(err, "metadata")
	c.Equal(len(m.Brokers) >= 1 && m.Cluster != "" && m.Controller >= 0, true, "the cluster")
	name := topic("log-dirs", 1)
	cl := client()
	defer cl.Close()
	newSender(cl, name, 1).send(0, 100).flush()
	dirs, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{name: {0: {}}})
	c.Must(err, "log directories")
	size := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) { d.Topics.Each(func(p kadm.DescribedLogDirPartition) { size += p.Size }) })
	c.Equal(size > 2000, true, fmt.Sprintf("the size of the partition, %d", size))
	producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{name: {0: {}}})
	c.Must(err, "DescribeProducers")
	c.Equal(len(producers[name].Partitions[0].ActiveProducers), 1, "the partition's producers")
	versions, err := admin.ApiVersions(ctx)
	c.Must(err, "ApiVersions")
	c.Equal(len(versions) >= 1, true, "brokers' versions")
}

func produceConsume(codec kgo.CompressionCodec, name string) {
	name = topic(name, 3)
	count := 6000
	if c.Full {
		count *= 10
	}
	producer := client(kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	defer producer.Close()
	s := newSender(producer, name, 3).send(0, count).flush()
	cl := reader(name, 3)
	defer cl.Close()
	c.Verify(poll(cl, count), 0, count, 3, s.acknowledged)
	ends, err := admin.ListEndOffsets(ctx, name)
	c.Must(err, "end offsets")
	for p := range 3 {
		c.Equal(ends[name][int32(p)].Offset, count/3, "end offset")
	}
}

func idempotent() {
	name := topic("idempotent", 3)
	producer := client(kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchMaxBytes(4096))
	defer producer.Close()
	s := newSender(producer, name, 3).send(0, 3000).flush()
	cl := reader(name, 3, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer cl.Close()
	c.Verify(poll(cl, 3000), 0, 3000, 3, s.acknowledged)
}

func offsetsByTime() {
	name := topic("times", 1)
	producer := client(kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(2000))
	defer producer.Close()
	newSender(producer, name, 1).send(0, 500).flush()
	for _, i := range []int64{0, 1, 49, 50, 333, 499} {
		o, err := admin.ListOffsetsAfterMilli(ctx, c.Base+i, name)
		c.Must(err, "ListOffsets")
		c.Equal(fmt.Sprint(o[name][0].Offset, o[name][0].Timestamp), fmt.Sprint(i, c.Base+i), "the offset by time")
	}
	start, err := admin.ListStartOffsets(ctx, name)
	c.Must(err, "start offsets")
	end, err := admin.ListEndOffsets(ctx, name)
	c.Must(err, "end offsets")
	latest, err := admin.ListMaxTimestampOffsets(ctx, name)
	c.Must(err, "maximum timestamps")
	c.Equal(fmt.Sprint(start[name][0].Offset, end[name][0].Offset, latest[name][0].Offset, latest[name][0].Timestamp), fmt.Sprint(0, 500, 499, c.Base+499), "ends")
	// A consumer that starts at a time.
	cl := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: kgo.NewOffset().AfterMilli(c.Base + 490)}}))
	defer cl.Close()
	c.Equal(poll(cl, 10)[0].Offset, 490, "the first record after a time")
}

func seek() {
	name := topic("seek", 1)
	producer := client()
	defer producer.Close()
	s := newSender(producer, name, 1).send(0, 1000).flush()
	cl := reader(name, 1)
	defer cl.Close()
	c.Verify(poll(cl, 1000), 0, 1000, 1, s.acknowledged)
	for _, start := range []int{900, 0, 517, 999} {
		cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{name: {0: {Epoch: -1, Offset: int64(start)}}})
		c.Verify(poll(cl, 1000-start), start, 1000, 1, s.acknowledged)
	}
	cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{name: {0: {Epoch: -1, Offset: 5000}}}) // out of range: ConsumeResetOffset
	c.Verify(poll(cl, 1000), 0, 1000, 1, s.acknowledged)
}

// member is a group member that consumes and commits until it is told to leave.
type member struct {
	cl       *kgo.Client
	mutex    sync.Mutex
	received []c.Received
	assigned map[int32]bool
	failed   error
	leaving  atomic.Bool
	commit   atomic.Bool
	lost     atomic.Bool
	done     chan struct{}
}

func join(group, topic string, options ...kgo.Opt) *member {
	m := &member{assigned: map[int32]bool{}, done: make(chan struct{})}
	gone := func(commit bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, cl *kgo.Client, lost map[string][]int32) {
			if !commit {
				m.lost.Store(true)
			} else if err := cl.CommitUncommittedOffsets(ctx); err != nil {
				m.failed = err
			}
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, p := range lost[topic] {
				delete(m.assigned, p)
			}
		}
	}
	m.cl = client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, p := range added[topic] {
				m.assigned[p] = true
			}
		}),
		kgo.OnPartitionsRevoked(gone(true)), kgo.OnPartitionsLost(gone(false)),
	}, options...)...)
	go func() {
		defer close(m.done)
		for !m.leaving.Load() {
			timeout, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := m.cl.PollFetches(timeout)
			cancel()
			m.mutex.Lock()
			fetches.EachRecord(func(r *kgo.Record) { m.received = append(m.received, received(r)) })
			m.mutex.Unlock()
			if m.commit.Load() {
				if err := m.cl.CommitUncommittedOffsets(ctx); err != nil {
					m.failed = err
				}
				m.commit.Store(false)
			}
			m.cl.AllowRebalance()
		}
		if err := m.cl.CommitUncommittedOffsets(ctx); err != nil {
			m.failed = err
		}
		m.cl.CloseAllowingRebalance()
	}()
	return m
}

func (m *member) count() int { m.mutex.Lock(); defer m.mutex.Unlock(); return len(m.received) }
func (m *member) owned() int { m.mutex.Lock(); defer m.mutex.Unlock(); return len(m.assigned) }
func (m *member) different() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(different(m.received))
}
func (m *member) leave() []c.Received {
	m.leaving.Store(true)
	select {
	case <-m.done:
	case <-time.After(30 * time.Second):
		c.Fail("a member does not leave")
	}
	c.Must(m.failed, "a member")
	return m.received
}

// different leaves out what came a second time.
func different(all []c.Received) []c.Received {
	var records []c.Received
	seen := map[c.Place]bool{}
	for _, r := range all {
		if !seen[r.Place] {
			seen[r.Place] = true
			records = append(records, r)
		}
	}
	return records
}

func merge(all ...[]c.Received) []c.Received {
	var records []c.Received
	for _, r := range all {
		records = append(records, r...)
	}
	sort.SliceStable(records, func(a, b int) bool { return records[a].Offset < records[b].Offset })
	return records
}

func rebalance(name string, balancer kgo.GroupBalancer) {
	name = topic(name, 4)
	producer := client()
	defer producer.Close()
	s := newSender(producer, name, 4).send(0, 1000).flush()
	first := join(name, name, kgo.Balancers(balancer))
	c.Eventually("the first 1000 records", 20, func() bool { return first.owned() == 4 && first.count() >= 1000 })
	second := join(name, name, kgo.Balancers(balancer))
	c.Eventually("two partitions each", 20, func() bool { return first.owned() == 2 && second.owned() == 2 })
	s.send(1000, 2000).flush()
	c.Eventually("2000 records", 20, func() bool { return first.count()+second.count() >= 2000 })
	c.Equal(second.count(), 500, "records of the second member")
	described, err := admin.DescribeGroups(ctx, name)
	c.Must(err, "DescribeGroups")
	c.Equal(fmt.Sprintln(described[name].State, len(described[name].Members), described[name].ProtocolType), "Stable 2 consumer\n", "the described group")
	two := second.leave()
	c.Eventually("all partitions to be with the first again", 20, func() bool { return first.owned() == 4 })
	s.send(2000, 3000).flush()
	c.Eventually("3000 records", 20, func() bool { return first.count()+len(two) >= 3000 })
	c.Verify(merge(first.leave(), two), 0, 3000, 4, s.acknowledged)
	// What was committed is where the next member starts.
	s.send(3000, 3100).flush()
	third := join(name, name, kgo.Balancers(balancer))
	c.Eventually("the last 100 records", 20, func() bool { return third.count() >= 100 })
	c.Verify(third.leave(), 3000, 3100, 4, s.acknowledged)
}

func staticMembers() {
	name := topic("static", 2)
	producer := client()
	defer producer.Close()
	s := newSender(producer, name, 2).send(0, 100).flush()
	one, two := join(name, name, kgo.InstanceID("one")), join(name, name, kgo.InstanceID("two"))
	c.Eventually("100 records", 20, func() bool { return one.owned() == 1 && two.owned() == 1 && one.count()+two.count() >= 100 })
	before := one.leave() // a static member that closes does not leave the group
	s.send(100, 200).flush()
	again := join(name, name, kgo.InstanceID("one"))
	c.Eventually("50 records of the returned member", 20, func() bool { return again.count() >= 50 })
	left, right := again.leave(), two.leave()
	c.Verify(merge(before, left, right), 0, 200, 2, s.acknowledged)
	gone, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(name).InstanceIDs("one", "two"))
	c.Must(err, "LeaveGroup")
	c.Must(gone.Error(), "LeaveGroup")
	described, err := admin.DescribeGroups(ctx, name)
	c.Must(err, "DescribeGroups")
	c.Equal(described[name].State, "Empty", "the group's state")
}

func commits() {
	name := topic("commits", 2)
	producer := client()
	defer producer.Close()
	newSender(producer, name, 2).send(0, 100).flush()
	offsets := kadm.Offsets{}
	offsets.AddOffset(name, 0, 20, -1)
	offsets.AddOffset(name, 1, 30, -1)
	c.Must(admin.CommitAllOffsets(ctx, name, offsets), "committing")
	m := join(name, name)
	c.Eventually("the rest", 20, func() bool { return m.count() >= 50 })
	r, err := admin.DeleteGroup(ctx, name)
	if err == nil {
		err = r.Err
	}
	c.ErrorNames(err, "NON_EMPTY_GROUP")
	first := map[int32]int64{0: 1000, 1: 1000}
	for _, r := range m.leave() {
		first[r.Partition] = min(first[r.Partition], r.Offset)
	}
	c.Equal(first, map[int32]int64{0: 20, 1: 30}, "resumed at")
	listed, err := admin.ListGroups(ctx)
	c.Must(err, "ListGroups")
	c.Equal(listed[name].State, "Empty", "the listed group")
	_, err = admin.DeleteOffsets(ctx, name, kadm.TopicsSet{name: {1: {}}})
	c.Must(err, "OffsetDelete")
	many := admin.FetchManyOffsets(ctx, name)
	c.Must(many.Error(), "OffsetFetch")
	o := many[name].Fetched
	_, both := o.Lookup(name, 1)
	zero, _ := o.Lookup(name, 0)
	c.Equal(fmt.Sprint(zero.At, both), "50 false", "offsets")
	_, err = admin.DeleteGroup(ctx, name)
	c.Must(err, "DeleteGroups")
	r, err = admin.DeleteGroup(ctx, name)
	if err == nil {
		err = r.Err
	}
	c.Equal(err == kerr.GroupIDNotFound || strings.Contains(fmt.Sprint(err), "GROUP_ID_NOT_FOUND"), true, fmt.Sprintf("deleting it again: %v", err))
}

func deleteRecords() {
	name := topic("delete-records", 1)
	producer := client()
	defer producer.Close()
	s := newSender(producer, name, 1).send(0, 100).flush()
	offsets := kadm.Offsets{}
	offsets.AddOffset(name, 0, 40, -1)
	r, err := admin.DeleteRecords(ctx, offsets)
	c.Must(err, "DeleteRecords")
	c.Equal(r[name][0].LowWatermark, 40, "the low watermark")
	cl := reader(name, 1)
	defer cl.Close()
	c.Verify(poll(cl, 60), 40, 100, 1, s.acknowledged)
}

// restart: the broker restarts under an idempotent producer and a group member; nothing is lost or duplicated.
func restart(how string) {
	name := topic("restart-"+how, 3)
	producer := client(kgo.RequiredAcks(kgo.AllISRAcks()))
	defer producer.Close()
	s := newSender(producer, name, 3).send(0, 1000).flush()
	m := join(name, name, kgo.SessionTimeout(45*time.Second))
	c.Eventually("1000 records before the restart", 20, func() bool { return m.count() >= 1000 })
	m.commit.Store(true)
	c.Eventually("the commit", 20, func() bool { return !m.commit.Load() })
	stop, total := make(chan struct{}), make(chan int)
	go func() {
		for sent := 1000; ; sent += 10 {
			select {
			case <-stop:
				total <- sent
				return
			case <-time.After(5 * time.Millisecond):
				s.send(sent, sent+10)
			}
		}
	}()
	c.Restart(how)
	time.Sleep(300 * time.Millisecond)
	close(stop)
	sent := <-total
	s.flush()
	c.Eventually("the records after the restart", 60, func() bool { return m.different() >= sent })
	records := m.leave()
	if m.lost.Load() { // its session ran out meanwhile: from the last commit on it may see records again
		fmt.Fprintln(os.Stderr, "the member lost its partitions")
		records = different(records)
	}
	c.Verify(records, 0, sent, 3, s.acknowledged)
	cl := reader(name, 3)
	defer cl.Close()
	c.Verify(poll(cl, sent), 0, sent, 3, s.acknowledged)
	var o kadm.OffsetResponses
	c.Eventually("OffsetFetch", 10, func() bool { // the first finds the old connection closed
		var err error
		o, err = admin.FetchOffsets(ctx, name)
		return err == nil
	})
	committed := int64(0)
	o.Each(func(r kadm.OffsetResponse) { committed += r.At })
	c.Equal(committed, sent, "committed offsets")
}

func main() {
	admin = kadm.NewClient(client())
	checks.Check("topics", topics)
	checks.Check("cluster", cluster)
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		checks.Check("produce-consume "+name, func() { produceConsume(codec, name) })
	}
	checks.Check("idempotent", idempotent)
	checks.Check("offsets-by-time", offsetsByTime)
	checks.Check("seek", seek)
	checks.Check("rebalance eager", func() { rebalance("eager", kgo.RangeBalancer()) })
	checks.Check("rebalance cooperative", func() { rebalance("cooperative", kgo.CooperativeStickyBalancer()) })
	checks.Check("static-members", staticMembers)
	checks.Check("commits-and-groups", commits)
	checks.Check("delete-records", deleteRecords)
	for _, how := range []string{"term", "kill"} {
		checks.CheckWithRestart("restart "+how, func() { restart(how) })
	}
	checks.Exit()
}
