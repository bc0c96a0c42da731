package stan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pendingBytes is the most bytes of messages that may wait for Take. Further messages are
// dropped, and their publishers time out.
const pendingBytes = 256 << 20

// group is the queue group of all replicas that share a NATS server: each message goes to
// one of them.
const group = "faas-infer"

// Bus answers clients on a NATS server that they share with this process, until Close.
type Bus struct {
	*service
	conn          *nats.Conn
	subscriptions []*nats.Subscription
	once          sync.Once
}

// Serve begins to answer clients on a connection. The server's own permissions must keep
// other clients from reading the queue.
func Serve(conn *nats.Conn, o Options) (*Bus, error) {
	s, err := newService(o)
	if err != nil {
		return nil, err
	}
	b := &Bus{service: s, conn: conn}
	subjects := []string{s.subject("discover"), s.subject("pub") + ".>", s.subject("ping"), s.subject("close")}
	for _, kind := range refused {
		subjects = append(subjects, s.subject(kind))
	}
	for _, subject := range subjects {
		sub, err := conn.QueueSubscribe(subject, group, b.handle)
		if err == nil {
			b.subscriptions = append(b.subscriptions, sub)
			err = sub.SetPendingLimits(-1, pendingBytes)
		}
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("answer NATS Streaming at %s: %w", subject, err)
		}
	}
	return b, nil
}

// handle answers a message. The connection buffers writes in short succession, so many
// acknowledgements go out together.
func (b *Bus) handle(m *nats.Msg) {
	reply := m.Reply
	b.answer(m.Subject, m.Data, func(answer []byte) {
		if answer == nil || reply == "" {
			return
		}
		err := b.conn.Publish(reply, answer)
		// While the connection is away there is no way to answer; the client times out.
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrReconnectBufExceeded) {
			b.log.Warn().Err(err).Msg("a NATS Streaming client was not answered")
		}
	})
}

// Close stops answering.
func (b *Bus) Close() {
	b.once.Do(func() {
		for _, sub := range b.subscriptions {
			// It fails if the connection is closed, which has the same effect.
			_ = sub.Unsubscribe()
		}
	})
}

// Leave lets the other replicas of the group take all further messages. It returns when
// the messages that have come are handled, or when ctx ends. Call it before Close.
func (b *Bus) Leave(ctx context.Context) {
	for _, sub := range b.subscriptions {
		// It fails if the connection is closed, and then no message comes any more.
		_ = sub.Drain()
	}
	ticks := time.Tick(leavePause)
	for slices.ContainsFunc(b.subscriptions, (*nats.Subscription).IsValid) && b.conn.IsConnected() {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// leavePause is the time between two checks of Leave.
const leavePause = 10 * time.Millisecond
