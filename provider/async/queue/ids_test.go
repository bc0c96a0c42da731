package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// limitStreams sets how many streams the server's account may have, -1 for any number.
func limitStreams(t *testing.T, s *server.Server, most int) {
	t.Helper()
	limits := server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: most, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
	if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": limits}); err != nil {
		t.Fatal(err)
	}
}

// eventually lets the broker check its server until a condition holds.
func eventually(t *testing.T, what string, b *Broker, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if b.Check(); time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// The queue works without the streams of states and results, and gets each of them when its server lets it.
func TestWorksWithoutStreamsThatMayBeLost(t *testing.T) {
	s, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30 })
	limitStreams(t, s, 2)
	b := open(t, func(o *BrokerOptions) { o.URL, o.MaxResults = url, 1<<20 })
	if err := b.Usable(); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, b, "x"); err != nil || b.ID(1) != "" || !b.Settled() {
		t.Errorf("%v, ID %q, settled %v", err, b.ID(1), b.Settled())
	}
	has := func(name string) bool {
		_, err := b.JetStream().Stream(t.Context(), name)
		return err == nil
	}
	limitStreams(t, s, 3)
	eventually(t, "IDs", b, func() bool { return b.ID(1) != "" })
	if has(ResultStream) {
		t.Error("there is a fourth stream")
	}
	limitStreams(t, s, -1)
	eventually(t, "results", b, func() bool { return has(ResultStream) })
	if err := publish(t, b, "y"); err != nil || b.Usable() != nil {
		t.Errorf("%v, %v", err, b.Usable())
	}
}

// A stream of states or results that exists takes a new size, replicas that are given, and what its server
// did not know when it was made.
func TestAdaptsStreamsThatMayBeLost(t *testing.T) {
	is := jetstream.StreamConfig{Name: ResultStream, MaxBytes: 1 << 20, MaxMsgs: -1, Replicas: 1, Description: "the team's", MaxAge: MaxKeep}
	want := jetstream.StreamConfig{Name: ResultStream, MaxBytes: 1 << 20}
	if to, differs := adapted(is, want); differs {
		t.Errorf("the same differs: %+v", to)
	}
	for _, c := range []struct {
		name string
		edit func(s *jetstream.StreamConfig)
	}{
		{"size", func(s *jetstream.StreamConfig) { s.MaxBytes = 2 << 20 }},
		{"number", func(s *jetstream.StreamConfig) { s.MaxMsgs = 7 }},
		{"replicas", func(s *jetstream.StreamConfig) { s.Replicas = 3 }},
		{"time of messages", func(s *jetstream.StreamConfig) { s.AllowMsgTTL = true }},
	} {
		wanted := want
		c.edit(&wanted)
		to, differs := adapted(is, wanted)
		if !differs || to.Description != "the team's" || to.MaxAge != MaxKeep || to.Name != ResultStream {
			t.Errorf("%s: %v, %+v", c.name, differs, to)
		}
		if again, differs := adapted(to, wanted); differs {
			t.Errorf("%s: the second time: %+v", c.name, again)
		}
	}
}

// Results expire by themselves in a stream that a NATS server from before 2.11 has made.
func TestResultsOfAnOlderServer(t *testing.T) {
	_, url := external(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 30 })
	edit := func(o *BrokerOptions) { o.URL, o.MaxResults = url, 1<<20 }
	b := open(t, edit)
	s, err := b.JetStream().Stream(t.Context(), ResultStream)
	if err != nil {
		t.Fatal(err)
	}
	older := s.CachedInfo().Config
	if err := b.JetStream().DeleteStream(t.Context(), ResultStream); err != nil {
		t.Fatal(err)
	}
	older.AllowMsgTTL, older.Metadata = false, nil // The metadata say what the server must be able to do.
	if _, err := b.JetStream().CreateStream(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b = open(t, edit)
	if _, err := b.JetStream().Publish(t.Context(), ResultSubjects+"x", nil, jetstream.WithMsgTTL(time.Hour)); err != nil {
		t.Error(err)
	}
}

// Requests wait for the key of the IDs for a while, unless the server says that there is no room for it.
func TestHopelessKey(t *testing.T) {
	for _, c := range []struct {
		err   error
		since time.Duration
		want  bool
	}{
		{nil, 0, true},
		{context.DeadlineExceeded, time.Second, false},
		{context.DeadlineExceeded, keyPatience + time.Second, true},
		{errors.Join(&jetstream.APIError{Code: 400, ErrorCode: 10027}), 0, true},
		{&jetstream.APIError{Code: 500, ErrorCode: codeStorage}, 0, true},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008}, 0, false},
	} {
		if got := hopeless(c.err, c.since); got != c.want {
			t.Errorf("%v for %v: %v", c.err, c.since, got)
		}
	}
}
