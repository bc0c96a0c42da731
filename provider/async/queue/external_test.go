package queue

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// external runs a NATS server beside the broker until the test ends.
func external(t *testing.T, edit func(o *server.Options)) (s *server.Server, url string) {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, StoreDir: t.TempDir(), JetStream: true}
	edit(o)
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	return s, s.ClientURL()
}

// becomesUsable waits until messages are accepted.
func becomesUsable(t *testing.T, b *Broker) {
	t.Helper()
	for end := time.Now().Add(time.Minute); b.Usable() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("messages are still refused: %v", b.Usable())
		}
	}
}

// size returns the maximum size of a stream in bytes.
func size(t *testing.T, b *Broker, name string) int64 {
	t.Helper()
	s, err := b.JetStream().Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config.MaxBytes
}

// A server on a volume of 10 GiB, as yaml/options/nats has it, gives streams three quarters
// of it. The streams take what there is.
func TestSmallServer(t *testing.T) {
	const room = 10 << 30 / 4 * 3
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = room })
	b := open(t, func(o *BrokerOptions) { o.URL = url })
	if err := b.Usable(); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, b, "x"); err != nil {
		t.Error(err)
	}
	if work, dead := size(t, b, WorkStream), size(t, b, DeadStream); work+dead > room || work != DefaultMaxQueued/2 || dead != DefaultMaxDead/2 {
		t.Errorf("the streams take %d and %d bytes of %d", work, dead, int64(room))
	}
}

// Streams that exist keep their size: a smaller one would drop accepted requests.
func TestSmallServerKeepsStreams(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 7 << 30 })
	b := open(t, func(o *BrokerOptions) { o.URL, o.MaxQueued, o.MaxDead = url, 6<<30, 1<<30 })
	if err := publish(t, b, "x"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b = open(t, func(o *BrokerOptions) { o.URL = url })
	if err := b.Usable(); err != nil {
		t.Error(err)
	}
	if work, dead := size(t, b, WorkStream), size(t, b, DeadStream); work != 6<<30 || dead != 1<<30 || queued(t, b) != 1 {
		t.Errorf("the streams take %d and %d bytes, with %d messages", work, dead, queued(t, b))
	}
	// There is no room for states, so requests have no IDs.
	if id := b.ID(1); id != "" {
		t.Errorf("the ID %q", id)
	}
}

// An administrator's changes of the streams stay, and what the queue needs comes back.
func TestKeepsAnAdministratorsSettings(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30 })
	b := open(t, func(o *BrokerOptions) { o.URL = url })
	changed := map[string]jetstream.StreamConfig{}
	for name, most := range map[string]int64{WorkStream: 20 << 30, DeadStream: -1} {
		s, err := b.JetStream().Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		c.MaxBytes, c.Description, c.MaxMsgSize, c.Compression, c.Metadata = most, "the team's", 1<<20, jetstream.S2Compression, map[string]string{"owner": "team"}
		c.Duplicates, c.Discard = time.Minute, jetstream.DiscardOld
		if s, err = b.JetStream().UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c = s.CachedInfo().Config
		c.Duplicates, c.Discard = duplicates, jetstream.DiscardNew
		changed[name] = c
	}
	b.Close()
	b = open(t, func(o *BrokerOptions) { o.URL = url })
	for name, want := range changed {
		s, err := b.JetStream().Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().Config; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	is := jetstream.StreamConfig{Subjects: []string{BestEffortSubjects + ">", "later.>"}, Replicas: 3, MaxBytes: 20 << 30, Placement: &jetstream.Placement{Tags: []string{"ssd"}}}
	if got := updated(is, streams(b.options)[0]); got.Replicas != 3 || got.MaxBytes != 20<<30 || got.Placement == nil {
		t.Errorf("of three replicas: %+v", got)
	} else if slices.Sort(got.Subjects); !slices.Equal(got.Subjects, []string{BestEffortSubjects + ">", WorkSubjects + ">", UrgentSubjects + ">", "later.>"}) {
		t.Errorf("subjects %v", got.Subjects)
	}
}

// A server that cannot keep the streams yet stops nobody: requests are refused with the
// reason until it can.
func TestServerThatCannotYet(t *testing.T) {
	t.Run("no JetStream", func(t *testing.T) {
		s, url := external(t, func(o *server.Options) { o.JetStream = false })
		b := open(t, func(o *BrokerOptions) { o.URL = url })
		if err := b.Usable(); err == nil || !strings.Contains(err.Error(), "nats-server -js") {
			t.Errorf("the reason is %v", err)
		}
		if err := s.EnableJetStream(&server.JetStreamConfig{StoreDir: t.TempDir(), MaxStore: 1 << 40, MaxMemory: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		becomesUsable(t, b)
	})
	t.Run("no room", func(t *testing.T) {
		_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
		b := open(t, func(o *BrokerOptions) { o.URL = url })
		if err := b.Usable(); err == nil || !strings.Contains(err.Error(), "storage") {
			t.Errorf("the reason is %v", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		var door door
		_, url := external(t, func(o *server.Options) { o.CustomClientAuthentication = &door })
		b := open(t, func(o *BrokerOptions) { o.URL = strings.Replace(url, "nats://", "nats://faas-infer:hunter2@", 1) })
		if err := b.Usable(); err == nil || !strings.Contains(err.Error(), "refuses the credentials") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the reason is %v", err)
		}
		// The client may not give up after several refusals.
		for door.refused.Load() < 8 {
			time.Sleep(10 * time.Millisecond)
		}
		door.open.Store(true)
		becomesUsable(t, b)
	})
}

// door lets clients into a server once it is open.
type door struct {
	open    atomic.Bool
	refused atomic.Int32
}

// Check implements [server.Authentication].
func (d *door) Check(server.ClientAuthentication) bool {
	if !d.open.Load() {
		d.refused.Add(1)
	}
	return d.open.Load()
}

// All replicas make the same IDs, at once and after a restart, and another queue makes others.
func TestIDs(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30 })
	const n = 4
	var made [n]string
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() {
			b := open(t, func(o *BrokerOptions) { o.URL, o.MaxResults = url, 1<<20 })
			becomesUsable(t, b)
			made[i] = b.ID(1000)
		})
	}
	opening.Wait()
	b := open(t, func(o *BrokerOptions) { o.URL, o.MaxResults, o.MaxResultCount = url, 2<<20, 7 })
	for i, id := range made {
		if sequence, ok := b.Sequence(id); !ok || sequence != 1000 || id != made[0] || len(id) < 26 {
			t.Errorf("replica %d made %q, the first one %q: %d, %v", i, id, made[0], sequence, ok)
		}
	}
	if got := size(t, b, ResultStream); got != 2<<20 {
		t.Errorf("the results take %d bytes", got)
	}
	if _, ok := b.Sequence(made[0][:len(made[0])-1]); ok {
		t.Error("a part of an ID is one")
	}
	if err := b.JetStream().DeleteStream(t.Context(), WorkStream); err != nil {
		t.Fatal(err)
	}
	if b = open(t, func(o *BrokerOptions) { o.URL = url }); b.ID(1000) == made[0] || b.ID(1000) == "" {
		t.Error("another stream of requests has the same IDs")
	}
	if b = open(t, nil); b.ID(1000) == made[0] || b.ID(1000) == "" {
		t.Error("another queue has the same IDs")
	}
}
