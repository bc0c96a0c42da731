package stan

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/stan.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a Door for a test and returns its URL.
func open(t testing.TB, take func(data []byte, done func(error))) (url string, d *Door) {
	t.Helper()
	d, err := Listen("127.0.0.1:0", Options{Take: take, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return "nats://" + d.Address(), d
}

// The gateway's library publishes at a Door and over a NATS server.
func TestPublish(t *testing.T) {
	for name, start := range map[string]func(take func(data []byte, done func(error))) string{
		"door": func(take func(data []byte, done func(error))) string { url, _ := open(t, take); return url },
		"bus":  func(take func(data []byte, done func(error))) string { url, _ := serve(t, take); return url },
	} {
		t.Run(name, func(t *testing.T) { testPublish(t, start) })
	}
}

func testPublish(t *testing.T, start func(take func(data []byte, done func(error))) string) {
	var mu sync.Mutex
	var got []string
	url := start(func(data []byte, done func(error)) {
		mu.Lock()
		got = append(got, string(data))
		mu.Unlock()
		if string(data) == "bad" {
			done(errors.New("cannot be taken"))
			return
		}
		go done(nil)
	})
	c, err := client.Connect(DefaultCluster, "gateway", client.NatsURL(url), client.ConnectWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large := strings.Repeat("x", maxPayload-1000)
	for _, s := range []string{"one", "two", large} {
		if err := c.Publish(DefaultChannel, []byte(s)); err != nil {
			t.Error(err)
		}
	}
	if err := c.Publish(DefaultChannel, []byte("bad")); err == nil || err.Error() != "cannot be taken" {
		t.Errorf("a refused message: %v", err)
	}
	if err := c.Publish("other", nil); err == nil || !strings.Contains(err.Error(), "channel") {
		t.Errorf("another channel: %v", err)
	}
	if _, err := c.Subscribe(DefaultChannel, func(*client.Msg) {}); err == nil || !strings.Contains(err.Error(), "no subscriptions") {
		t.Errorf("subscribing: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 4 || got[2] != large {
		t.Errorf("got %d messages", len(got))
	}
	if _, err := client.Connect("another-cluster", "gateway", client.NatsURL(url), client.ConnectWait(200*time.Millisecond)); err == nil {
		t.Error("connected to another cluster")
	}
}
