package instance

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// pipes is a listener without sockets: a test runs in virtual time.
type pipes struct{ accepted, ended chan net.Conn }

func newPipes() pipes { return pipes{make(chan net.Conn), make(chan net.Conn)} }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.ended)
	return nil
}

func (pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// kept is a connection that a client keeps between its requests.
type kept struct {
	net.Conn
	reader *bufio.Reader
}

func (p pipes) dial() kept {
	client, server := net.Pipe()
	p.accepted <- server
	return kept{client, bufio.NewReader(client)}
}

func (k kept) post(t *testing.T) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://instance/", strings.NewReader(`{"instances":[[1]]}`))
	if err == nil {
		err = r.Write(k)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(k.reader, r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	if _, err := bufio.NewReader(a.Body).WriteTo(new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	return a
}

// A request that comes on a kept connection after SIGTERM, before the client knows that the
// instance leaves, is answered. The instance does not wait for a client longer than that takes.
func TestLeavingInstanceAnswersOnKeptConnections(t *testing.T) {
	for name, c := range map[string]struct {
		closes bool
		cause  error
		want   time.Duration
	}{
		"a client that closes its connections": {true, nil, 0},
		"one that does not":                    {false, nil, leaveTime},
		"a broken instance":                    {false, ErrBroken, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, listener := newTestServer(t, &doubler{maxBatch: 4, width: 1}), newPipes()
				ctx, terminate := context.WithCancelCause(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- Serve(ctx, s, []net.Listener{listener}, nil, zerolog.Nop(), func() error { return nil })
				}()
				one, two := listener.dial(), listener.dial()
				defer one.Close()
				defer two.Close()
				if one.post(t).Close || two.post(t).Close {
					t.Error("a connection is not kept")
				}
				synctest.Wait() // The server knows that both connections are idle.
				began := time.Now()
				terminate(c.cause)
				synctest.Wait()
				if c.cause == nil && !one.post(t).Close {
					t.Error("the client is not told that the instance leaves")
				}
				synctest.Wait()
				if c.closes {
					two.Close()
				}
				if err := <-served; err != nil || time.Since(began) != c.want {
					t.Errorf("it ended after %v, want %v: %v", time.Since(began), c.want, err)
				}
			})
		})
	}
}

// brokenGPU is an engine whose GPU fails.
type brokenGPU struct{ failed chan error }

func (brokenGPU) Close() error           { return nil }
func (b brokenGPU) Failed() <-chan error { return b.failed }

// An instance whose GPU has failed ends with the reason. Another engine never ends it.
func TestEndsWithGPU(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	EndWithGPU(ctx, io.NopCloser(nil), end)
	b := brokenGPU{make(chan error, 1)}
	EndWithGPU(ctx, b, end)
	b.failed <- errors.New("cuEventSynchronize: 700")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "700") {
		t.Errorf("%v", err)
	}
}
