// Testcontainers for Go with the image in Kafka's place. Argument: the image.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
)

var failed bool

func check(what string, body func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := body(ctx); err != nil {
		failed = true
		reason := strings.Join(strings.Fields(err.Error()), " ")
		fmt.Printf("FAIL go %s: %.300s\n", what, reason)
		return
	}
	fmt.Println("ok  go", what)
}

// reader is a member of a group that ends with the first record.
type reader struct{ found chan *sarama.ConsumerMessage }

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		select {
		case r.found <- message:
		default:
		}
		return nil
	}
	return nil
}

// messagesPass does what the module's own test does: a group reads what a producer sends.
func messagesPass(ctx context.Context, brokers []string) error {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	sent := &sarama.ProducerMessage{Topic: "some-topic", Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value")}
	if _, _, err = producer.SendMessage(sent); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(brokers, "groupName", config)
	if err != nil {
		return err
	}
	defer group.Close()
	found := make(chan *sarama.ConsumerMessage, 1)
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(ctx, []string{"some-topic"}, reader{found}) }()
	select {
	case message := <-found:
		if string(message.Key) != "key" || string(message.Value) != "value" {
			return fmt.Errorf("read %q: %q", message.Key, message.Value)
		}
		return nil
	case err := <-ended:
		return fmt.Errorf("the group ended: %v", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func main() {
	image := os.Args[1]
	run := func(options ...testcontainers.ContainerCustomizer) func(context.Context) error {
		return func(ctx context.Context) error {
			container, err := kafka.Run(ctx, image, options...)
			defer func() { _ = testcontainers.TerminateContainer(container) }()
			if err != nil {
				return err
			}
			brokers, err := container.Brokers(ctx)
			if err != nil {
				return err
			}
			return messagesPass(ctx, brokers)
		}
	}
	check("kafka.Run with a cluster id", run(kafka.WithClusterID("kraftCluster")))
	check("kafka.Run without one", run())
	if failed {
		os.Exit(1)
	}
}
