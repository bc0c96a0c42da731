package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// speaking is a dispatcher that answers in two parts. It receives from step before the second one.
type speaking struct {
	provider.Dispatcher
	step chan struct{}
	fail error
}

func (s *speaking) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	if req.Parts == nil {
		return &frame.Response{Status: http.StatusOK, Header: http.Header{}, Body: []byte("whole")}, nil
	}
	_ = req.Parts([]byte("one"))
	select {
	case <-s.step:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	_ = req.Parts([]byte("two"))
	return &frame.Response{Status: http.StatusOK, Header: http.Header{}, Late: true}, s.fail
}

// Each part of the owner's answer comes through another replica at once, and then its end.
func TestPartsComeThroughAnotherReplica(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	for _, fail := range []error{nil, web.Refuse(http.StatusBadGateway, "it died")} {
		s := &speaking{step: make(chan struct{}), fail: fail}
		owner.Group.own.Store(name, s)
		if got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}}); err != nil || string(got.Body) != "whole" {
			t.Errorf("as a whole: %+v, %v", got, err)
		}
		var parts []string
		got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func(part []byte) error {
			if parts = append(parts, string(part)); len(parts) == 1 {
				close(s.step)
			}
			return nil
		}})
		if err != nil || !slices.Equal(parts, []string{"one", "two"}) {
			t.Fatalf("%q, %v", parts, err)
		}
		if fail == nil && (got.Status != http.StatusOK || !got.Late || len(got.Body) > 0) || fail != nil && (got.Status != http.StatusBadGateway || !strings.Contains(string(got.Body), "it died")) {
			t.Errorf("%v: the end is %+v %s", fail, got, got.Body)
		}
	}
}

// An answer whose client has lost parts does not end as a whole one, whatever its dispatcher says.
func TestLostPartsEndTheAnswer(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	full := make(chan struct{})
	owner.Group.own.Store(name, dispatcherFunc(func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		for req.Parts(make([]byte, web.MaxUnsentParts)) == nil {
		}
		close(full)
		return &frame.Response{Status: http.StatusOK, Header: http.Header{}}, nil
	}))
	got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func([]byte) error {
		<-full
		return nil
	}})
	if err != nil || got.Status != http.StatusRequestTimeout || !strings.Contains(string(got.Body), "more slowly than its parts come") {
		t.Errorf("%+v, %v", got, err)
	}
}

// dispatcherFunc is a dispatcher that is its Invoke.
type dispatcherFunc func(ctx context.Context, req *frame.Request) (*frame.Response, error)

func (f dispatcherFunc) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return f(ctx, req)
}

// An answer in parts ends with an error if its replica falls silent, also if the request must not run twice.
func TestPartsOfASilentReplicaEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kept := make(chan net.Conn, 1)
	go func() { // It takes one request, sends a part, and then is stopped.
		c, err := l.Accept()
		if err != nil {
			return
		}
		kept <- c
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		answer := "HTTP/1.1 200 OK\r\nConnection: close\r\n" + frame.PartsHeader + ": 1\r\n\r\n"
		_, _ = c.Write(frame.AppendPart([]byte(answer), frame.Part{Body: []byte("one")}))
	}()
	where, own := &place{}, &answering{id: "me"}
	g := New(Options{Membership: seat{where, "me"}, ColdWait: time.Hour, Logger: zerolog.Nop()})
	defer g.client.CloseIdleConnections()
	members := []Member{{ID: "me", URL: "http://127.0.0.1:1"}, {ID: "stopped", URL: "http://" + l.Addr().String()}}
	n := 0
	for Rank(fmt.Sprintf("f%d", n), members)[0].ID != "stopped" {
		n++
	}
	where.set(members...)
	f := function()
	f.Name, f.Inference.Once = fmt.Sprintf("f%d", n), true
	q, parts := post("x"), 0
	q.Parts = func([]byte) error {
		parts++
		return nil
	}
	_, err = g.Share(f, own).Invoke(t.Context(), q)
	if !errors.Is(err, errDied) || parts != 1 || own.requests.Load() > 0 {
		t.Errorf("%v, %d parts, %d requests run again", err, parts, own.requests.Load())
	}
	(<-kept).Close()
}

// A request with a part of its answer does not run again when the owner dies.
func TestPartsAreNotRepeatedElsewhere(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	owner.Group.own.Store(name, &speaking{step: make(chan struct{})})
	// A client that leaves ends the owner's run, and says nothing about the owner.
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	_, err := other.shared.Invoke(ctx, &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func([]byte) error {
		leave()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n := 0
	_, err = other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Parts: func([]byte) error {
		if n++; n == 1 {
			owner.server.CloseClientConnections()
		}
		return nil
	}})
	if !errors.Is(err, errDied) || n != 1 || other.own.requests.Load() > 0 {
		t.Errorf("%v, %d parts, %d requests run again", err, n, other.own.requests.Load())
	}
}
