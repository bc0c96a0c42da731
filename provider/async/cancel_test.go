package async

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// refuses makes a stream take nothing any more. It keeps what it has.
func (r *rig) refuses(t testing.TB, stream string) {
	t.Helper()
	js := r.broker.JetStream()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.Subjects = []string{"other." + stream}
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// instead stands in for a stream: take gets each message for it, and says whether it counts as stored.
func (r *rig) instead(t testing.TB, stream, subjects string, take func(data []byte) bool) {
	t.Helper()
	r.refuses(t, stream)
	n, connection := 0, r.broker.Settling()
	_, err := connection.Subscribe(subjects+">", func(m *nats.Msg) {
		if n++; take(m.Data) {
			_ = m.Respond(fmt.Appendf(nil, `{"stream":%q,"seq":%d}`, stream, n)) // The publisher may have given up.
		}
	})
	if err == nil {
		err = connection.FlushTimeout(time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isEmpty waits until the queue is empty.
func (r *rig) isEmpty(t testing.TB) {
	t.Helper()
	until(t, "an empty queue", func() bool {
		s, err := r.Status(t.Context())
		return err == nil && s.Queued+uint64(s.InFlight) == 0
	})
}

// A request that is cancelled while the record of its failed try is being stored is not executed again.
func TestCancelWhileATryIsRecorded(t *testing.T) {
	var tries atomic.Int32
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		tries.Add(1)
		return respond(503, ""), nil
	}, quickly)
	stored := make(chan Progress, 8)
	r.instead(t, queue.StateStream, queue.StateSubjects, func(data []byte) bool {
		var one record
		if err := json.Unmarshal(data, &one); err != nil {
			t.Error(err)
		}
		if one.State == Retrying {
			sequence, _ := r.broker.Sequence(one.ID)
			if p, ok := r.follower.hand.stop(sequence, time.Now()); !ok || p.State != Cancelled {
				t.Errorf("cancelled: %+v, %v", p, ok)
			}
		}
		stored <- one.Progress
		return true
	})
	r.send(t, "echo", "x")
	if p := <-stored; p.State != Retrying {
		t.Errorf("first: %+v", p)
	}
	if p := <-stored; p.State != Cancelled || p.Ended.IsZero() || !p.Next.IsZero() {
		t.Errorf("then: %+v", p)
	}
	r.isEmpty(t)
	if n := tries.Load(); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// A request is cancelled although the record of its failed try is stored only after the client's DELETE has
// read what was stored before.
func TestCancelBeforeATryIsRecorded(t *testing.T) {
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(503, ""), nil },
		func(o *Options) {
			o.Functions = &deployed{by: map[string]map[string]string{"echo.openfaas-fn": {retry.MinWait: "1h", retry.MaxWait: "1h"}}}
		})
	f, cancelled := r.follower, 0
	count := f.cancelled
	f.cancelled = func() {
		cancelled++
		count()
	}
	var late atomic.Bool
	// The replica asks the others after it has read what is stored.
	_, err := r.broker.Settling().Subscribe(controlSubject, func(m *nats.Msg) {
		var asked question
		if err := json.Unmarshal(m.Data, &asked); err != nil {
			t.Error(err)
		}
		one, err := f.states.get(t.Context(), f.broker.ID(asked.Sequence))
		if one.Attempts = 2; err == nil {
			err = f.states.put(t.Context(), one, jetstream.WithExpectLastSequencePerSubject(one.revision))
		}
		late.Store(err == nil)
		_ = m.Respond(nil) // Nobody has it in hand.
	})
	if err == nil {
		err = r.broker.Settling().FlushTimeout(time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // On a busy machine the question may have no answer in time, and the record comes too late.
		url := r.send(t, "echo", "x")
		r.reaches(t, url, Retrying)
		sequence, _ := r.broker.Sequence(strings.TrimPrefix(url, single))
		until(t, "nobody has it in hand", func() bool { _, ok := f.hand.look(sequence); return !ok })
		cancelled, f.several = 0, true
		p := r.progress(t, "DELETE", url)
		f.several = false
		if again := r.progress(t, "GET", url); p.State != Cancelled || again.State != Cancelled || !p.Next.IsZero() || cancelled != 1 {
			t.Errorf("%+v, then %+v, counted %d times", p, again, cancelled)
		}
		if p.Attempts == 2 {
			break
		}
	}
	r.isEmpty(t)
	if !late.Load() {
		t.Error("no record came late")
	}
}

// tracer samples all requests and gets the traces that end.
type tracer func(t *frame.Trace)

func (tracer) Begin(http.Header, time.Time) *frame.Trace      { return new(frame.Trace) }
func (tracer) Child(_ *frame.Trace, _ time.Time) *frame.Trace { return new(frame.Trace) }
func (f tracer) End(t *frame.Trace)                           { f(t) }

// A request whose callback has been taken has ended: a client that cancels it then is told so.
func TestCancelAfterTheCallback(t *testing.T) {
	var r *rig
	told := make(chan Progress, 1)
	to := recorder(t, func(http.ResponseWriter, *http.Request) {})
	r = start(t, echo, func(o *Options) {
		o.Tracer = tracer(func(one *frame.Trace) {
			if one.Step == frame.CalledBack {
				p, _ := r.follower.hand.stop(1, time.Now()) // The first message.
				told <- p
			}
		})
	})
	url := r.send(t, "echo", "x", "X-Callback-Url", to)
	if p := <-told; p.State != Done {
		t.Errorf("%+v", p)
	}
	r.isEmpty(t)
	if p := r.progress(t, "GET", url); p.State != Done {
		t.Errorf("at the end: %+v", p)
	}
}

// A request whose dead letter cannot be stored has not ended, and can be cancelled.
func TestCancelWithoutALetter(t *testing.T) {
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) { return respond(503, ""), nil }, quickly)
	r.refuses(t, queue.DeadStream)
	url := r.send(t, "echo", "x")
	var p Progress
	until(t, "its last try has failed", func() bool {
		p = r.progress(t, "GET", url)
		return p.State == Retrying && p.Attempts >= 3
	})
	if p.Reason != "" || !p.Ended.IsZero() {
		t.Errorf("%+v", p)
	}
	for _, method := range []string{"DELETE", "GET"} {
		if p := r.progress(t, method, url); p.State != Cancelled || p.Ended.IsZero() || !p.Next.IsZero() {
			t.Errorf("%s: %+v", method, p)
		}
	}
}

// An end that is taken back can be cancelled at once.
func TestReopened(t *testing.T) {
	h := newInHand()
	_, one := h.begin(t.Context(), 1, Progress{State: Running})
	if !h.commit(one, func(p *Progress) { p.State = Dead }) {
		t.Error("it is cancelled")
	}
	if p, _ := h.stop(1, time.Now()); p.State != Dead {
		t.Errorf("before: %+v", p)
	}
	h.reopen(one, func(p *Progress) { p.State = Retrying })
	if p, left := h.leave(1, one, Running); left || p.State != Retrying {
		t.Errorf("it has left as %s", p.State)
	}
	if p, _ := h.stop(1, time.Now()); p.State != Cancelled {
		t.Errorf("then: %+v", p)
	}
	if p, left := h.leave(1, one, Retrying); left || p.State != Cancelled {
		t.Errorf("it has left as %s", p.State)
	}
	if p, left := h.leave(1, one, Cancelled); !left || p.State != Cancelled {
		t.Errorf("it has not left: %+v", p)
	}
	if _, ok := h.look(1); ok {
		t.Error("it is still in hand")
	}
}
