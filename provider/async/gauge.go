package async

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// gauge counts the messages in the streams, at most once a second.
type gauge struct {
	broker *queue.Broker
	// begun counts the best-effort requests in hand that do not wait for room.
	begun func() int

	mu    sync.Mutex
	at    time.Time
	found Depth
}

func (g *gauge) depth() (Depth, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < time.Second {
		return g.found, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	work, err := g.broker.JetStream().Stream(ctx, queue.WorkStream)
	if err != nil {
		return Depth{}, err
	}
	info, err := work.Info(ctx, jetstream.WithSubjectFilter(queue.BestEffortSubjects+">"))
	if err != nil {
		return Depth{}, err
	}
	letters, err := messages(ctx, g.broker.JetStream(), queue.DeadStream)
	if err != nil {
		return Depth{}, err
	}
	g.at, g.found = time.Now(), Depth{Queued: info.State.Msgs, Dead: letters}
	for _, n := range info.State.Subjects {
		g.found.BestEffort += n
	}
	g.found.BestEffort -= min(g.found.BestEffort, uint64(g.begun()))
	return g.found, nil
}

// messages returns the number of messages in a stream.
func messages(ctx context.Context, js jetstream.JetStream, stream string) (uint64, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}
