package dispatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// speaker is an instance that answers in parts: in each step it sends one to each member that takes them. It receives
// from step before each, true for another one.
type speaker struct {
	address string
	step    chan bool
	// batches has the members of each batch that came, gone is closed when a dispatcher has hung up.
	batches chan int
	gone    chan struct{}
	// broken makes it hang up instead of the end.
	broken atomic.Bool
}

func newSpeaker(t *testing.T) *speaker {
	t.Helper()
	s := &speaker{address: filepath.Join(t.TempDir(), "s"), step: make(chan bool), batches: make(chan int, 16), gone: make(chan struct{})}
	listener, err := net.Listen("unix", s.address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return s
}

func (s *speaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	requests, _ := frame.DecodeRequests(body)
	takers, err := frame.ParseParts(r.Header.Get(frame.PartsHeader), len(requests))
	if err != nil {
		panic(err)
	}
	s.batches <- len(requests)
	responses := make([]frame.Response, len(requests))
	for i, q := range requests {
		responses[i] = frame.Response{Status: http.StatusOK, Body: q.Body}
	}
	for _, at := range takers {
		responses[at].Body = nil
	}
	end, _ := frame.EncodeResponses(responses)
	if len(takers) == 0 {
		whole := bytes.Join(end, nil)
		w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
		w.Write(whole)
		return
	}
	w.Header().Set(frame.PartsHeader, "1")
	w.Header().Set("Transfer-Encoding", "identity")
	for {
		select {
		case <-r.Context().Done():
			close(s.gone)
			return
		case another := <-s.step:
			if !another && s.broken.Load() {
				panic(http.ErrAbortHandler)
			}
			if !another {
				w.Write(frame.AppendPart(nil, frame.Part{Member: -1, Header: http.Header{frame.ExecHeader: {"1000"}}, Body: bytes.Join(end, nil)}))
				return
			}
		}
		for _, at := range takers {
			w.Write(frame.AppendPart(nil, frame.Part{Member: at, Body: requests[at].Body}))
		}
		http.NewResponseController(w).Flush()
	}
}

// listener is a request that takes its answer in parts.
type listener struct {
	parts chan string
	ended chan error
	last  *frame.Response
}

func listen(ctx context.Context, d *Dispatcher, body string) *listener {
	l := &listener{parts: make(chan string, 64), ended: make(chan error, 1)}
	r := request(body)
	r.Parts = func(part []byte) error {
		l.parts <- string(part)
		return nil
	}
	go func() {
		var err error
		l.last, err = d.Invoke(ctx, r)
		l.ended <- err
	}()
	return l
}

// Each part is handed on when it comes, and the answer ends with the last one.
func TestPartsAreHandedOn(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	s := newSpeaker(t)
	d.Up(instance("a", 4), "unix", s.address)
	l := listen(t.Context(), d, "x")
	for range 3 {
		s.step <- true
		if got := <-l.parts; got != "x" {
			t.Errorf("a part is %q", got)
		}
	}
	if len(l.ended) > 0 {
		t.Error("the answer has ended before its last part")
	}
	s.step <- false
	if err := <-l.ended; err != nil || l.last.Status != http.StatusOK || len(l.last.Body) > 0 || l.last.Instance != "a" {
		t.Errorf("%+v, %v", l.last, err)
	}
	if n := d.Stats().InTime; n != 1 {
		t.Errorf("%d answers in time", n)
	}
}

// Members of a batch that take their answers as a whole do not wait for the parts of the others. These share an
// exchange.
func TestWholeAnswersDoNotWaitForParts(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	s := newSpeaker(t)
	d.Up(instance("a", 8), "unix", s.address)
	first := listen(t.Context(), d, "first") // The others wait for the instance, and then are a batch.
	if n := <-s.batches; n != 1 {
		t.Fatalf("a batch of %d", n)
	}
	var takers []*listener
	whole := make(chan error, 2)
	for i := range 2 {
		takers = append(takers, listen(t.Context(), d, "parts"))
		waitFor(t, func() bool { return d.Stats().Waiting == 2*i+1 })
		go func() {
			got, err := d.Invoke(t.Context(), request("whole"))
			if err == nil && string(got.Body) != "whole" {
				err = errors.New(string(got.Body))
			}
			whole <- err
		}()
		waitFor(t, func() bool { return d.Stats().Waiting == 2*i+2 })
	}
	s.step <- false
	if err := <-first.ended; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-whole; err != nil {
			t.Error(err)
		}
	}
	if a, b := <-s.batches, <-s.batches; a != 2 || b != 2 {
		t.Errorf("exchanges of %d and %d", a, b)
	}
	s.step <- true
	s.step <- false
	for _, l := range takers {
		if got, err := <-l.parts, <-l.ended; got != "parts" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A request with a part of its answer does not run again when its instance is lost.
func TestPartsAreNotRepeated(t *testing.T) {
	lost := make(chan error, 1)
	d, r := newDispatcher(t, batching.SharedName, Options{SLO: patience, OnLost: func(_ cluster.InstanceID, err error) { lost <- err }})
	s, other := newSpeaker(t), newSpeaker(t)
	d.Up(instance("a", 4), "unix", s.address)
	l := listen(t.Context(), d, "x")
	s.step <- true
	<-l.parts
	d.Up(instance("other", 4), "unix", other.address)
	s.broken.Store(true)
	s.step <- false
	if err := <-l.ended; !errors.Is(err, ErrInstanceLost) || r.drops.Load() != 1 {
		t.Errorf("%v, %d drops", err, r.drops.Load())
	}
	<-lost
	if len(other.batches) > 0 {
		t.Error("it ran again")
	}
}

// When the last client of an exchange has left, the instance learns it. It is not lost.
func TestPartsAreAbandoned(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience, OnLost: func(id cluster.InstanceID, err error) { t.Errorf("%s is lost: %v", id, err) }})
	s := newSpeaker(t)
	d.Up(instance("a", 4), "unix", s.address)
	ctx, leave := context.WithCancel(t.Context())
	l := listen(ctx, d, "x")
	s.step <- true
	<-l.parts
	leave()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-s.gone
	waitFor(t, func() bool { return idle(d, "a") })
}

// An instance that breaks the rules is lost, and nobody waits.
func TestWrongParts(t *testing.T) {
	for name, wire := range map[string]string{
		"another member": string(frame.AppendPart(nil, frame.Part{Member: 1})),
		"no end":         string(frame.AppendPart(nil, frame.Part{Member: 0})),
		"garbage":        strings.Repeat("x", 100),
	} {
		lost := make(chan error, 1)
		d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience, Once: true, OnLost: func(_ cluster.InstanceID, err error) { lost <- err }})
		address := filepath.Join(t.TempDir(), "s")
		socket, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set(frame.PartsHeader, "1")
			w.Header().Set("Transfer-Encoding", "identity")
			io.WriteString(w, wire)
		})}
		go server.Serve(socket)
		d.Up(instance("a", 4), "unix", address)
		if err := <-listen(t.Context(), d, "x").ended; !errors.Is(err, ErrInstanceLost) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v", name, <-lost)
		server.Close()
	}
}
