// sarama against a broker: sarama BOOTSTRAP
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

	"github.com/IBM/sarama"

	c "ottla.invalid/compat/check"
)

var (
	bootstrap = strings.Split(os.Args[1], ",")
	checks    = c.New("go/sarama")
	admin     sarama.ClusterAdmin
	client    sarama.Client
)

func config(change ...func(*sarama.Config)) *sarama.Config {
	k := sarama.NewConfig()
	k.Version = sarama.V4_1_0_0
	k.Producer.Return.Successes = true
	k.Producer.RequiredAcks = sarama.WaitForAll
	k.Producer.Partitioner = sarama.NewManualPartitioner
	k.Producer.Flush.Frequency = 5 * time.Millisecond
	k.Producer.Retry.Max = 300 // a restart of the broker may take a while
	k.Producer.Retry.Backoff = 200 * time.Millisecond
	k.Metadata.Retry.Max = 100
	k.Metadata.Retry.Backoff = 200 * time.Millisecond
	k.Consumer.MaxWaitTime = 100 * time.Millisecond
	k.Consumer.Offsets.Initial = sarama.OffsetOldest
	k.Consumer.Offsets.AutoCommit.Enable = false
	k.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	k.Consumer.Group.Session.Timeout = 10 * time.Second
	k.Consumer.Group.Rebalance.Retry.Max = 100
	k.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	for _, f := range change {
		f(k)
	}
	return k
}

func topic(what string, partitions int32, configs ...string) string {
	name := checks.Topic(what)
	m := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	c.Must(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: c.Replicas, ConfigEntries: m}, false), "creating a topic")
	c.Eventually("the topic's leaders", 20, func() bool {
		d, err := admin.DescribeTopics([]string{name})
		c.Must(err, "describing a topic")
		if d[0].Err != sarama.ErrNoError || len(d[0].Partitions) != int(partitions) {
			return false
		}
		for _, p := range d[0].Partitions {
			if p.Err != sarama.ErrNoError || p.Leader < 0 {
				return false
			}
		}
		return true
	})
	return name
}

type sender struct {
	producer     sarama.AsyncProducer
	topic        string
	partitions   int
	mutex        sync.Mutex
	acknowledged map[int]c.Place
	failed       error
	done         chan struct{}
}

func newSender(topic string, partitions int, change ...func(*sarama.Config)) *sender {
	producer, err := sarama.NewAsyncProducer(bootstrap, config(change...))
	c.Must(err, "a producer")
	s := &sender{producer: producer, topic: topic, partitions: partitions, acknowledged: map[int]c.Place{}, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		var wait sync.WaitGroup
		wait.Add(1)
		go func() {
			defer wait.Done()
			for e := range producer.Errors() {
				s.mutex.Lock()
				s.failed = e.Err
				s.mutex.Unlock()
			}
		}()
		for m := range producer.Successes() {
			s.mutex.Lock()
			s.acknowledged[m.Metadata.(int)] = c.Place{Partition: m.Partition, Offset: m.Offset}
			s.mutex.Unlock()
		}
		wait.Wait()
	}()
	return s
}

func (s *sender) send(from, to int) *sender {
	for i := from; i < to; i++ {
		m := &sarama.ProducerMessage{Topic: s.topic, Partition: int32(i % s.partitions), Timestamp: time.UnixMilli(c.Base + int64(i)), Metadata: i}
		if key := c.Key(i); key != nil {
			m.Key = sarama.ByteEncoder(key)
		}
		if value := c.Value(i); value != nil {
			m.Value = sarama.ByteEncoder(value)
		}
		for _, h := range c.Headers(i) {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		s.producer.Input() <- m
	}
	return s
}

// wait waits until this many records were acknowledged.
func (s *sender) wait(count int) *sender {
	c.Eventually(fmt.Sprintf("%d acknowledgements", count), 90, func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		c.Must(s.failed, "sending")
		return len(s.acknowledged) >= count
	})
	return s
}

func (s *sender) close() { s.producer.AsyncClose(); <-s.done }

func received(m *sarama.ConsumerMessage) c.Received {
	r := c.Received{Place: c.Place{Partition: m.Partition, Offset: m.Offset}, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp.UnixMilli()}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, c.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

// read reads count records from an offset on of each of the partitions.
func read(topic string, partitions, count int, from int64) []c.Received {
	consumer, err := sarama.NewConsumer(bootstrap, config())
	c.Must(err, "a consumer")
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	for p := range partitions {
		pc, err := consumer.ConsumePartition(topic, int32(p), from)
		c.Must(err, "consuming a partition")
		defer pc.AsyncClose()
		go func() {
			for m := range pc.Messages() {
				messages <- m
			}
		}()
	}
	defer func() {
		go func() {
			for range messages {
			}
		}()
	}()
	var records []c.Received
	timeout := time.After(30 * time.Second)
	for len(records) < count {
		select {
		case m := <-messages:
			records = append(records, received(m))
		case <-timeout:
			c.Fail("%d records of %d within 30 s", len(records), count)
		}
	}
	return records
}

func value(topic, key string) string {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key}})
	c.Must(err, "describing a config")
	for _, e := range entries {
		if e.Name == key {
			return e.Value
		}
	}
	return "no such config"
}

func topics() {
	name := topic("topics", 3, "retention.ms", "7200000", "cleanup.policy", "compact")
	c.ErrorNames(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false), "already exists")
	c.ErrorNames(admin.CreateTopic(name+"-rf", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 9}, false), "eplication")
	c.Equal(value(name, "retention.ms")+" "+value(name, "cleanup.policy"), "7200000 compact", "configs")
	hour := "3600000"
	c.Must(admin.IncrementalAlterConfig(sarama.TopicResource, name, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour}}, false), "IncrementalAlterConfigs")
	c.Eventually("the altered config", 20, func() bool { return value(name, "retention.ms")+" "+value(name, "cleanup.policy") == "3600000 compact" })
	half := "1800000"
	c.Must(admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"retention.ms": &half}, false), "AlterConfigs")
	c.Eventually("all configs to be replaced", 20, func() bool { return value(name, "retention.ms")+" "+value(name, "cleanup.policy") == "1800000 delete" })
	c.Must(admin.CreatePartitions(name, 5, nil, false), "adding partitions")
	c.Eventually("5 partitions", 20, func() bool {
		d, err := admin.DescribeTopics([]string{name})
		return err == nil && len(d[0].Partitions) == 5
	})
	list, err := admin.ListTopics()
	c.Must(err, "listing topics")
	c.Equal(list[name].NumPartitions, 5, "partitions in the list")
	s := newSender(name, 5)
	s.send(0, 20).wait(20).close()
	c.Must(admin.DeleteTopic(name), "deleting")
	c.Eventually("the topic to be gone", 20, func() bool {
		list, err := admin.ListTopics()
		_, there := list[name]
		return err == nil && !there
	})
	c.ErrorNames(admin.DeleteTopic(name), "topic or partition")
}

func cluster() {
	brokers, controller, err := admin.DescribeCluster()
	c.Must(err, "DescribeCluster")
	c.Equal(len(brokers) >= 1 && controller >= 0, true, "the cluster")
	name := topic("log-dirs", 1)
	newSender(name, 1).send(0, 100).wait(100).close()
	c.Eventually("the size of the partition", 10, func() bool { // this broker may be a follower
		dirs, err := admin.DescribeLogDirs([]int32{brokers[0].ID()})
		c.Must(err, "DescribeLogDirs")
		size := int64(0)
		for _, d := range dirs[brokers[0].ID()] {
			for _, t := range d.Topics {
				if t.Topic == name {
					size += t.Partitions[0].Size
				}
			}
		}
		return size > 2000
	})
}

func produceConsume(codec sarama.CompressionCodec) {
	name := topic(codec.String(), 3)
	count := 6000
	if c.Full {
		count *= 10
	}
	s := newSender(name, 3, func(k *sarama.Config) {
		k.Producer.Compression = codec
		k.Producer.RequiredAcks = sarama.WaitForLocal
	})
	defer s.close()
	s.send(0, count).wait(count)
	c.Verify(read(name, 3, count, sarama.OffsetOldest), 0, count, 3, s.acknowledged)
	for p := range int32(3) {
		oldest, err := client.GetOffset(name, p, sarama.OffsetOldest)
		c.Must(err, "ListOffsets")
		newest, err := client.GetOffset(name, p, sarama.OffsetNewest)
		c.Must(err, "ListOffsets")
		c.Equal([]int64{oldest, newest}, []int{0, count / 3}, "offsets")
	}
}

// versions: what clients of older Kafka releases speak.
func versions() {
	for _, v := range []sarama.KafkaVersion{sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0} {
		name := topic("version-"+v.String(), 2)
		s := newSender(name, 2, func(k *sarama.Config) { k.Version = v })
		s.send(0, 200).wait(200).close()
		c.Verify(read(name, 2, 200, sarama.OffsetOldest), 0, 200, 2, s.acknowledged)
	}
}

func idempotent() {
	name := topic("idempotent", 3)
	s := newSender(name, 3, func(k *sarama.Config) {
		k.Producer.Idempotent = true
		k.Net.MaxOpenRequests = 1
		k.Producer.Compression = sarama.CompressionLZ4
	})
	defer s.close()
	s.send(0, 3000).wait(3000)
	c.Verify(read(name, 3, 3000, sarama.OffsetOldest), 0, 3000, 3, s.acknowledged)
}

func offsetsByTime() {
	name := topic("times", 1)
	newSender(name, 1, func(k *sarama.Config) { k.Producer.Compression = sarama.CompressionGZIP; k.Producer.Flush.MaxMessages = 50 }).send(0, 500).wait(500).close()
	for _, i := range []int64{0, 1, 49, 50, 333, 499} {
		o, err := client.GetOffset(name, 0, c.Base+i)
		c.Must(err, "ListOffsets")
		c.Equal(o, i, "the offset by time")
	}
	o, err := client.GetOffset(name, 0, c.Base+9999)
	c.Must(err, "ListOffsets")
	c.Equal(o, -1, "after the last")
}

func seek() {
	name := topic("seek", 1)
	s := newSender(name, 1)
	defer s.close()
	s.send(0, 1000).wait(1000)
	for _, start := range []int{900, 0, 517, 999} {
		c.Verify(read(name, 1, 1000-start, int64(start)), start, 1000, 1, s.acknowledged)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	c.Must(err, "a consumer")
	_, err = consumer.ConsumePartition(name, 0, 5000)
	c.ErrorNames(err, "outside the range of offsets")
}

// member is a group member that consumes and commits until it is told to leave.
type member struct {
	group    sarama.ConsumerGroup
	mutex    sync.Mutex
	received []c.Received
	assigned atomic.Int32
	failed   atomic.Value
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{}
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	total := 0
	for _, p := range s.Claims() {
		total += len(p)
	}
	m.assigned.Store(int32(total))
	return nil
}
func (m *member) Cleanup(s sarama.ConsumerGroupSession) error { s.Commit(); return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.mutex.Lock()
			m.received = append(m.received, received(message))
			m.mutex.Unlock()
			s.MarkMessage(message, "")
			if message.Offset%50 == 49 || message.Offset+1 == claim.HighWaterMarkOffset() {
				s.Commit()
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func join(group, topic string, change ...func(*sarama.Config)) *member {
	g, err := sarama.NewConsumerGroup(bootstrap, group, config(change...))
	c.Must(err, "a group member")
	m := &member{group: g, done: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.done)
		for m.ctx.Err() == nil {
			if err := g.Consume(m.ctx, []string{topic}, m); err != nil && m.ctx.Err() == nil {
				m.failed.Store(err)
				time.Sleep(200 * time.Millisecond)
			}
			m.assigned.Store(0)
		}
	}()
	return m
}

func (m *member) count() int { m.mutex.Lock(); defer m.mutex.Unlock(); return len(m.received) }
func (m *member) different() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(different(m.received))
}
func (m *member) owned() int { return int(m.assigned.Load()) }
func (m *member) leave() []c.Received {
	m.cancel()
	select {
	case <-m.done:
	case <-time.After(30 * time.Second):
		c.Fail("a member does not leave")
	}
	c.Must(m.group.Close(), "closing a member")
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

func rebalance(name string, strategy sarama.BalanceStrategy) {
	name = topic(name, 4)
	balance := func(k *sarama.Config) { k.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy} }
	s := newSender(name, 4)
	defer s.close()
	s.send(0, 1000).wait(1000)
	first := join(name, name, balance)
	c.Eventually("the first 1000 records", 20, func() bool { return first.owned() == 4 && first.count() >= 1000 })
	second := join(name, name, balance)
	c.Eventually("two partitions each", 20, func() bool { return first.owned() == 2 && second.owned() == 2 })
	s.send(1000, 2000).wait(2000)
	c.Eventually("2000 records", 20, func() bool { return first.count()+second.count() >= 2000 })
	c.Equal(second.count(), 500, "records of the second member")
	described, err := admin.DescribeConsumerGroups([]string{name})
	c.Must(err, "DescribeGroups")
	c.Equal([]any{described[0].State, len(described[0].Members), described[0].ProtocolType}, []any{"Stable", 2, "consumer"}, "the described group")
	two := second.leave()
	c.Eventually("all partitions to be with the first again", 20, func() bool { return first.owned() == 4 })
	s.send(2000, 3000).wait(3000)
	c.Eventually("3000 records", 20, func() bool { return first.count()+len(two) >= 3000 })
	c.Verify(merge(first.leave(), two), 0, 3000, 4, s.acknowledged)
	// What was committed is where the next member starts.
	s.send(3000, 3100).wait(3100)
	third := join(name, name, balance)
	c.Eventually("the last 100 records", 20, func() bool { return third.count() >= 100 })
	c.Verify(third.leave(), 3000, 3100, 4, s.acknowledged)
}

func commits() {
	name := topic("commits", 2)
	newSender(name, 2).send(0, 100).wait(100).close()
	manager, err := sarama.NewOffsetManagerFromClient(name, client)
	c.Must(err, "an offset manager")
	for p, o := range map[int32]int64{0: 20, 1: 30} {
		pm, err := manager.ManagePartition(name, p)
		c.Must(err, "a partition's offset manager")
		pm.MarkOffset(o, "some metadata")
		defer pm.AsyncClose()
	}
	manager.Commit()
	r, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{name: {0, 1}})
	c.Must(err, "OffsetFetch")
	c.Equal([]any{r.Blocks[name][0].Offset, r.Blocks[name][0].Metadata, r.Blocks[name][1].Offset}, []any{20, "some metadata", 30}, "committed offsets")
	m := join(name, name)
	c.Eventually("the rest", 20, func() bool { return m.count() >= 50 })
	first := map[int32]int64{0: 1000, 1: 1000}
	for _, r := range m.leave() {
		first[r.Partition] = min(first[r.Partition], r.Offset)
	}
	c.Equal(first, map[int32]int64{0: 20, 1: 30}, "resumed at")
	groups, err := admin.ListConsumerGroups()
	c.Must(err, "ListGroups")
	c.Equal(groups[name], "consumer", "the listed group")
	c.Must(admin.DeleteConsumerGroupOffset(name, name, 1), "OffsetDelete")
	r, err = admin.ListConsumerGroupOffsets(name, map[string][]int32{name: {0, 1}})
	c.Must(err, "OffsetFetch")
	c.Equal([]any{r.Blocks[name][0].Offset, r.Blocks[name][1].Offset}, []any{50, -1}, "offsets")
	c.Must(admin.DeleteConsumerGroup(name), "DeleteGroups")
	groups, err = admin.ListConsumerGroups()
	c.Must(err, "ListGroups")
	_, there := groups[name]
	c.Equal(there, false, "the deleted group in the list")
}

func deleteRecords() {
	name := topic("delete-records", 1)
	s := newSender(name, 1)
	defer s.close()
	s.send(0, 100).wait(100)
	c.Must(admin.DeleteRecords(name, map[int32]int64{0: 40}), "DeleteRecords")
	c.Verify(read(name, 1, 60, sarama.OffsetOldest), 40, 100, 1, s.acknowledged)
	oldest, err := client.GetOffset(name, 0, sarama.OffsetOldest)
	c.Must(err, "ListOffsets")
	c.Equal(oldest, 40, "the log's start")
}

// restart: the broker restarts under an idempotent producer and a group member; nothing is lost or duplicated in the log.
func restart(how string) {
	name := topic("restart-"+how, 3)
	s := newSender(name, 3, func(k *sarama.Config) {
		k.Producer.Idempotent = true
		k.Net.MaxOpenRequests = 1
	})
	s.send(0, 1000).wait(1000)
	m := join(name, name, func(k *sarama.Config) { k.Consumer.Group.Session.Timeout = 45 * time.Second })
	c.Eventually("1000 records before the restart", 20, func() bool { return m.count() >= 1000 })
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
	s.wait(sent)
	// sarama leaves and joins again when its connection breaks, so from its last commit on it may see records a second time.
	c.Eventually("the records after the restart", 60, func() bool { return m.different() >= sent })
	records := m.leave()
	repeated := len(records) - sent
	fmt.Fprintln(os.Stderr, "seen twice:", repeated)
	c.Verify(merge(different(records)), 0, sent, 3, s.acknowledged)
	c.Verify(read(name, 3, sent, sarama.OffsetOldest), 0, sent, 3, s.acknowledged)
	s.close()
}

func main() {
	var err error
	if admin, err = sarama.NewClusterAdmin(bootstrap, config()); err == nil {
		client, err = sarama.NewClient(bootstrap, config())
	}
	if err != nil {
		fmt.Println("FAIL go/sarama connects:", err)
		os.Exit(1)
	}
	checks.Check("topics", topics)
	checks.Check("cluster", cluster)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		checks.Check("produce-consume "+codec.String(), func() { produceConsume(codec) })
	}
	checks.Check("versions 2.1 2.8 3.6", versions)
	checks.Check("idempotent", idempotent)
	checks.Check("offsets-by-time", offsetsByTime)
	checks.Check("seek", seek)
	checks.Check("rebalance range", func() { rebalance("range", sarama.NewBalanceStrategyRange()) })
	checks.Check("rebalance sticky", func() { rebalance("sticky", sarama.NewBalanceStrategySticky()) })
	checks.Check("commits-and-groups", commits)
	checks.Check("delete-records", deleteRecords)
	for _, how := range []string{"term", "kill"} {
		checks.CheckWithRestart("restart "+how, func() { restart(how) })
	}
	checks.Exit()
}
