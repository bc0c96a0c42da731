package queue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a broker for a test, edited.
func open(t testing.TB, edit func(o *BrokerOptions)) *Broker {
	t.Helper()
	o := BrokerOptions{Dir: t.TempDir(), Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel)}
	if edit != nil {
		edit(&o)
	}
	b, err := OpenBroker(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func publish(t testing.TB, b *Broker, text string) error {
	t.Helper()
	return publishWithin(b, text, time.Minute)
}

// publishWithin is publish with the time that the server may take.
func publishWithin(b *Broker, text string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := b.JetStream().Publish(ctx, WorkSubjects+"openfaas-fn.echo", []byte(text))
	return err
}

func queued(t testing.TB, b *Broker) uint64 {
	t.Helper()
	s, err := b.JetStream().Stream(context.Background(), WorkStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// The embedded server has no address: only this process connects to it.
func TestDoesNotListen(t *testing.T) {
	b := open(t, nil)
	if at := b.embedded.running.Load().Addr(); at != nil || b.Address() != "" {
		t.Errorf("it listens at %v, %q", at, b.Address())
	}
	if err := b.Usable(); err != nil {
		t.Error(err)
	}
	if err := publish(t, b, "x"); err != nil {
		t.Error(err)
	}
}

func TestKeepsOverARestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, func(o *BrokerOptions) { o.Dir = dir })
	for range 10 {
		if err := publish(t, b, "x"); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	b = open(t, func(o *BrokerOptions) { o.Dir = dir })
	if n := queued(t, b); n != 10 {
		t.Errorf("%d messages after a restart, want 10", n)
	}
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		edit func(o *BrokerOptions)
		want string
	}{
		{func(o *BrokerOptions) { o.URL = "127.0.0.1" }, "nats://"},
		{func(o *BrokerOptions) { o.URL = "http://127.0.0.1" }, "must begin with nats://"},
		{func(o *BrokerOptions) { o.URL = "nats://" }, "must name a host"},
		{func(o *BrokerOptions) { o.Dir = "/proc/none/such" }, "directory of the queue"},
	} {
		o := BrokerOptions{Dir: t.TempDir(), Logger: zerolog.Nop()}
		c.edit(&o)
		if b, err := OpenBroker(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v does not say %q", err, c.want)
			if b != nil {
				b.Close()
			}
		}
	}
}
