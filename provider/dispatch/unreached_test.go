package dispatch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A machine dies with all instances of a function. A request tries each of them, and none
// executes it. Then it waits for a new instance like any request that finds none, far
// beyond its objective. The test runs in a bubble: in real time the objective might end
// before the last try.
func TestInstancesThatCannotBeReachedDoNotCostTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: &echo{}}
		go server.Serve(there)
		t.Cleanup(func() { server.Close() })
		gone := make(chan cluster.InstanceID, 3)
		const objective, coldWait = 50 * time.Millisecond, time.Minute
		d, _ := newDispatcher(t, batching.SharedName, Options{SLO: objective, ColdWait: coldWait,
			OnLost: func(id cluster.InstanceID, _ error) { gone <- id },
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				if address != "there" {
					return nil, errors.New("no such host")
				}
				ours, theirs := net.Pipe()
				there.conns <- theirs
				return ours, nil
			}})
		for _, id := range []string{"a", "b", "c"} {
			d.Up(instance(id, 4), "fake", "nobody")
		}
		answered := make(chan error, 1)
		go func() {
			_, err := d.Invoke(t.Context(), request("x"))
			answered <- err
		}()
		for range 3 {
			<-gone
		}
		time.Sleep(coldWait - objective)
		d.Up(instance("d", 4), "fake", "there")
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}
