package async

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/provider/async/broker"
	"github.com/faas-infer/faas-infer/provider/async/measure"
)

// gauge asks the streams how much lies in them, at most once a second.
type gauge struct {
	broker *broker.Broker

	mu    sync.Mutex
	at    time.Time
	found measure.Depth
}

func (g *gauge) depth() (measure.Depth, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < time.Second {
		return g.found, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	work, err := messages(ctx, g.broker.JetStream(), broker.WorkStream)
	if err != nil {
		return measure.Depth{}, err
	}
	letters, err := messages(ctx, g.broker.JetStream(), broker.DeadStream)
	if err != nil {
		return measure.Depth{}, err
	}
	g.at, g.found = time.Now(), measure.Depth{Queued: work, Dead: letters}
	return g.found, nil
}

func messages(ctx context.Context, js jetstream.JetStream, stream string) (uint64, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}
