package dispatch

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// holding is a connection whose process is held back, as by SIGSTOP, while it waits for the first
// answer: it goes on long after its deadline, and the answer has come meanwhile.
type holding struct {
	net.Conn
	hold  time.Duration
	first sync.Once
}

func (h *holding) Read(b []byte) (n int, err error) {
	h.first.Do(func() {
		time.Sleep(h.hold)
		err = os.ErrDeadlineExceeded
	})
	if err != nil {
		return 0, err
	}
	return h.Conn.Read(b)
}

// The provider is held back for longer than an exchange may take, while a batch is on an instance that is
// well. It takes the answer, and keeps the instance.
func TestAnswerThatCameWhileTheProviderWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 2 * time.Second})
		dial, once := r.options.Dial, sync.Once{}
		a := r.serve("a")
		r.options.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
			c, err = dial(ctx, network, address)
			once.Do(func() { c = &holding{Conn: c, hold: 11 * time.Second} })
			return c, err
		}
		r.Up(instance("a", 4), "fake", "a")
		if err := <-r.send(); err != nil || a.batches.Load() != 1 {
			t.Errorf("%v; it was executed %d times", err, a.batches.Load())
		}
		if err := <-r.send(); err != nil || len(r.lost) > 0 || len(r.suspects) > 0 {
			t.Errorf("the next request: %v; lost %d times", err, len(r.lost))
		}
	})
}
