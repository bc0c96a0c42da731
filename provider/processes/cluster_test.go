package processes

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/fakecluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour says what one instance of the fake backend does.
type behaviour = fakecluster.Behaviour

// coldStart is how long the fake's instances take to be ready.
const coldStart = fakecluster.ColdStart

// fakeBackend is a cluster in memory. Its instances answer HTTP.
type fakeBackend struct{ *fakecluster.Backend }

func newFakeBackend(t testing.TB) *fakeBackend {
	b := fakecluster.New(t, 8<<30)
	b.Kind, b.Serve = cluster.Process, serve
	return &fakeBackend{b}
}

func (b *fakeBackend) living() []cluster.Instance                          { return b.Living() }
func (b *fakeBackend) asked() int                                          { return b.Asked() }
func (b *fakeBackend) crash(id cluster.InstanceID, reason string)          { b.Crash(id, reason) }
func (b *fakeBackend) becomes(f func(int, cluster.InstanceSpec) behaviour) { b.Becomes(f) }

// serve answers with the function's bundle and the body.
func serve(in *fakecluster.Instance, conn net.Conn) {
	one := &oneConn{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	one.conns <- conn
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(in, w, r) }),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				close(one.closed)
			}
		},
	}
	_ = server.Serve(one) // It ends with the connection.
}

func answer(in *fakecluster.Instance, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_/health" {
		return
	}
	body, _ := io.ReadAll(r.Body)
	select {
	case <-time.After(in.AnswerAfter):
	case <-in.Context.Done():
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%s:%s", in.Bundle, body)
}

// oneConn is a listener with one connection.
type oneConn struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }
