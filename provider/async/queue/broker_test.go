package queue

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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

func TestWithoutListening(t *testing.T) {
	b := open(t, nil)
	if b.Address() != "" {
		t.Errorf("it listens at %q", b.Address())
	}
	if err := b.Usable(); err != nil {
		t.Error(err)
	}
	if err := publish(t, b, "x"); err != nil {
		t.Error(err)
	}
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = OpenBroker(t.Context(), BrokerOptions{Dir: t.TempDir(), Listen: l.Addr().String(), Logger: zerolog.Nop()})
	if err == nil || !strings.Contains(err.Error(), "set --nats-listen to another address or off") {
		t.Errorf("port taken: %v", err)
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

// Clients over the network cannot read or change the queue.
func TestGuestsPublishOnly(t *testing.T) {
	b := open(t, func(o *BrokerOptions) { o.Listen = "127.0.0.1:0" })
	if err := b.Listen(); err != nil {
		t.Fatal(err)
	}
	c, err := nats.Connect("nats://"+b.Address(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, subject := range []string{"$JS.API.STREAM.PURGE." + WorkStream, "$JS.API.INFO", WorkSubjects + "openfaas-fn.echo", "$JS.ACK.x"} {
		if _, err := c.Request(subject, nil, 200*time.Millisecond); err == nil {
			t.Errorf("a guest may use %s", subject)
		}
	}
	if _, err := c.SubscribeSync("_STAN.pub.>"); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil || c.LastError() == nil {
		t.Errorf("a guest may read what others publish: %v", err)
	}
	if n := queued(t, b); n != 0 {
		t.Errorf("a guest has put %d messages into the stream", n)
	}
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		edit func(o *BrokerOptions)
		want string
	}{
		{func(o *BrokerOptions) { o.Listen = "nonsense" }, "HOST:PORT"},
		{func(o *BrokerOptions) { o.Listen = "127.0.0.1:x" }, "port"},
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
