// Package check is what both Go programs share: check lines, the records they send, the restart of the broker.
package check

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Full asks for longer runs.
var Full = os.Getenv("COMPAT_FULL") != ""

// Replicas is how many replicas the topics have: --cluster asks for 3.
var Replicas = replicas()

func replicas() int16 {
	n, err := strconv.ParseInt(os.Getenv("COMPAT_REPLICAS"), 10, 16)
	if err != nil {
		return 1
	}
	return int16(n)
}

// Base is the timestamp of record 0, in milliseconds.
var Base = (time.Now().Unix() - 3600) * 1000

// Checks runs checks and prints a line for each.
type Checks struct {
	Name   string
	RunID  string
	failed bool
}

// New starts the checks of the program called name.
func New(name string) *Checks {
	return &Checks{Name: name, RunID: fmt.Sprintf("%06x", rand.Intn(1<<24))}
}

// Topic is a topic name (or group id) of this run.
func (c *Checks) Topic(what string) string {
	return strings.ReplaceAll(c.Name, "/", "-") + "-" + what + "-" + c.RunID
}

// Failure is what Fail panics with.
type Failure struct{ Text string }

// Fail ends the check.
func Fail(format string, arguments ...any) { panic(Failure{fmt.Sprintf(format, arguments...)}) }

// Must ends the check when there was an error.
func Must(err error, what string) {
	if err != nil {
		Fail("%s: %v", what, err)
	}
}

// Equal compares by the values' printed form.
func Equal(got, wanted any, what string) {
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", wanted); g != w {
		Fail("%s: got %.200s, wanted %.200s", what, g, w)
	}
}

// ErrorNames wants an error whose text has this word.
func ErrorNames(err error, word string) {
	if err == nil || !strings.Contains(err.Error(), word) {
		Fail("failed with %v, wanted %s", err, word)
	}
}

// Eventually calls f until it returns true.
func Eventually(what string, seconds int, f func() bool) {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for !f() {
		if time.Now().After(end) {
			Fail("%s: not within %d s", what, seconds)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// Check runs one check and prints its line.
func (c *Checks) Check(what string, f func()) {
	if !strings.Contains(what, os.Getenv("COMPAT_ONLY")) {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			text := fmt.Sprint(r)
			if f, ok := r.(Failure); ok {
				text = f.Text
			}
			text = regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
			fmt.Printf("FAIL %s %s: %.300s\n", c.Name, what, text)
			c.failed = true
			return
		}
		fmt.Printf("ok  %s %s\n", c.Name, what)
	}()
	f()
}

// CheckWithRestart is Check for an f that restarts the broker.
func (c *Checks) CheckWithRestart(what string, f func()) {
	if os.Getenv("OTTLA_RESTART") == "" {
		fmt.Printf("skip %s %s: OTTLA_RESTART names no command that restarts the broker\n", c.Name, what)
		return
	}
	c.Check(what, f)
}

// Restart restarts the broker with SIGTERM (term) or kill -9 (kill).
func Restart(how string) {
	command := exec.Command(os.Getenv("OTTLA_RESTART"), how)
	command.Stderr = os.Stderr
	Must(command.Run(), "the restart")
}

// Exit ends the process.
func (c *Checks) Exit() {
	if c.failed {
		os.Exit(1)
	}
	os.Exit(0)
}

// Key of record i.
func Key(i int) []byte {
	if i%10 == 3 {
		return nil
	}
	return []byte("key-" + strconv.Itoa(i))
}

// Value of record i.
func Value(i int) []byte {
	if i%10 == 7 {
		return nil
	}
	return []byte("value-" + strconv.Itoa(i) + "-" + strings.Repeat("x", i*37%500))
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Headers of record i.
func Headers(i int) []Header {
	if i%3 != 0 {
		return nil
	}
	return []Header{{"n", []byte(strconv.Itoa(i))}, {"n", []byte("again")}, {"empty", []byte{}}}
}

// Place is where a record was acknowledged.
type Place struct {
	Partition int32
	Offset    int64
}

// Received is a record as it came back.
type Received struct {
	Place
	Key, Value []byte
	Headers    []Header
	Timestamp  int64
}

// Verify wants exactly the records from..to, each at its acknowledged place, in offset order per partition, unchanged.
func Verify(records []Received, from, to, partitions int, acknowledged map[int]Place) {
	wanted := map[Place]int{}
	for i := from; i < to; i++ {
		place, ok := acknowledged[i]
		if !ok {
			Fail("record %d was not acknowledged", i)
		}
		wanted[place] = i
	}
	last := map[int32]int64{}
	for _, r := range records {
		i, ok := wanted[r.Place]
		if !ok {
			Fail("a record at %v that nobody was acknowledged, or twice", r.Place)
		}
		delete(wanted, r.Place)
		text := func(key, value []byte, headers []Header, timestamp int64) string {
			return fmt.Sprintf("%t %q %t %q %q %d", key == nil, key, value == nil, value, headers, timestamp)
		}
		Equal(text(r.Key, r.Value, r.Headers, r.Timestamp), text(Key(i), Value(i), Headers(i), Base+int64(i)), "record "+strconv.Itoa(i))
		Equal(int(r.Partition), i%partitions, "partition")
		if before, ok := last[r.Partition]; ok && before >= r.Offset {
			Fail("offset %d after %d in partition %d", r.Offset, before, r.Partition)
		}
		last[r.Partition] = r.Offset
	}
	if len(wanted) > 0 {
		Fail("%d records were not received", len(wanted))
	}
}
