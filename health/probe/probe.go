// Package probe asks targets whether they live: instances, workers of sets and replicas of the
// provider. It does not judge the answers; package health does. Begin with [Watch].
package probe

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Times are those of the questions to one target.
type Times struct {
	// Within bounds the time to an answer, Pause is the time between two questions.
	Within, Pause time.Duration
}

// Watch asks until judge is done or ended is closed. judge gets the question's error, nil for an
// answer, and the time since the last answer or the first question. A question says nothing if this
// process itself was held back meanwhile, by SIGSTOP or a pause of its machine.
func Watch(ended <-chan struct{}, t Times, ask func(within time.Duration) error, judge func(err error, silence time.Duration) (done bool)) {
	for heard := time.Now(); ; {
		asked := time.Now()
		err := ask(t.Within)
		now := time.Now()
		held := now.Sub(asked) > 2*t.Within
		if err == nil || held {
			heard = now
		}
		if (err == nil || !held) && judge(err, now.Sub(heard)) {
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(t.Pause):
		}
	}
}

// Notices calls a function for one notice after another, in a goroutine of its own while there are
// some. It is safe for concurrent use, and Send may be called with a lock held.
type Notices[T any] struct {
	call func(T)

	mu    sync.Mutex
	queue []T
}

// NewNotices returns Notices that call a function.
func NewNotices[T any](call func(T)) *Notices[T] { return &Notices[T]{call: call} }

// Send makes the function be called for a notice after those before it. It does not wait.
func (n *Notices[T]) Send(notice T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queue = append(n.queue, notice); len(n.queue) == 1 {
		go n.deliver()
	}
}

func (n *Notices[T]) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.queue) > 0 {
		first := n.queue[0]
		n.mu.Unlock()
		n.call(first)
		n.mu.Lock()
		n.queue = n.queue[1:]
	}
}

// CloseNow closes a connection at once. With TLS, Close first sends a notice, and waits up to 5 s for
// a stopped target to take it.
func CloseNow(c net.Conn) error {
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	return c.Close()
}

// Dial connects to a target, as net.Dialer's DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Alive asks for a target's health on a new connection. Any answer within the time counts;
// otherwise it returns why there was none.
func Alive(dial Dial, network, address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := dial(ctx, network, address)
	if err != nil {
		return err
	}
	defer CloseNow(conn)
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("GET /_/health HTTP/1.1\r\nHost: instance\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
