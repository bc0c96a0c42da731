package async

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// A queue that drains takes nothing more, keeps what the provider refuses because it shuts
// down, whatever try it is, and stores what is still in at Accept.
func TestDrain(t *testing.T) {
	t.Parallel()
	dir, begun, release := t.TempDir(), make(chan struct{}), make(chan struct{})
	once := &deployed{by: map[string]map[string]string{"echo.openfaas-fn": {retry.Attempts: "1"}}}
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		close(begun)
		<-release
		return nil, statusError(503)
	}, func(o *Options) { o.Dir, o.Functions = dir, once })
	g := gateway(t, "nats://"+r.Address(), 5*time.Second)
	r.enqueue(t, "echo", "in hand")
	<-begun
	drained := r.Drain(t.Context())
	if err := g.Publish("faas-request", request("echo", "gateway")); err == nil || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("a gateway is told %v", err)
	}
	r.enqueue(t, "echo", "still in")
	select {
	case <-drained:
		t.Error("it is drained, and one request is executed")
	default:
	}
	close(release)
	<-drained
	r.letters(t, 0)
	r.stop()
	var done counts
	start(t, func(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
		done.add(string(r.Body))
		return respond(200, ""), nil
	}, func(o *Options) { o.Dir, o.Functions, o.AckWait = dir, once, time.Second })
	until(t, "both are executed", func() bool { return done.different() == 2 })
}

// Requests that do not end are given back when the time to drain is over.
func TestDrainEnds(t *testing.T) {
	begun := make(chan struct{})
	r := start(t, func(ctx context.Context, _ string, _ *frame.Request) (*frame.Response, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}, nil)
	r.enqueue(t, "echo", "x")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	drained := r.Drain(ctx)
	cancel()
	<-drained
	s, err := r.Status(t.Context())
	if err != nil || s.Queued+uint64(s.InFlight) != 1 || s.Dead != 0 {
		t.Errorf("%+v %v", s, err)
	}
}

// storing is a message that is being stored.
type storing struct {
	jetstream.PubAckFuture
	ok  chan *jetstream.PubAck
	err chan error
}

func (s storing) Ok() <-chan *jetstream.PubAck { return s.ok }
func (s storing) Err() <-chan error            { return s.err }

// A queue that drains acknowledges the gateways' messages that are being stored, and only
// then is drained.
func TestDrainAcknowledges(t *testing.T) {
	r := start(t, nil, nil)
	future, answers := storing{ok: make(chan *jetstream.PubAck), err: make(chan error)}, make(chan error, 2)
	for range 2 {
		if !r.enter() {
			t.Fatal("messages are refused")
		}
		r.accepted <- publication{destination{name: "echo.openfaas-fn"}, future, func(err error) { answers <- err }}
	}
	drained := r.Drain(t.Context())
	if r.enter() {
		t.Error("a queue that drains takes another message")
	}
	future.ok <- &jetstream.PubAck{}
	if err := <-answers; err != nil {
		t.Error(err)
	}
	select {
	case <-drained:
		t.Error("it is drained, and one message has no answer")
	default:
	}
	future.err <- errors.New("no room")
	if err := <-answers; err == nil || !strings.Contains(err.Error(), "no room") {
		t.Error(err)
	}
	<-drained
}

// A queue that closes answers what is still being stored.
func TestCloseAnswersWhatIsStored(t *testing.T) {
	r := start(t, nil, nil)
	answers := make(chan error, 2)
	for range 2 {
		r.enter()
		r.accepted <- publication{destination{name: "echo.openfaas-fn"}, storing{}, func(err error) { answers <- err }}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.Close(over)
	for range 2 {
		if err := <-answers; err == nil || !strings.Contains(err.Error(), errUnknown.Error()) {
			t.Error(err)
		}
	}
}

// A message whose server is in trouble gets its answer soon: the server says nothing of what
// it could not write.
func TestTroubleAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := awaitAck(nil, storing{}, func() error {
			if time.Since(began) < time.Second {
				return nil
			}
			return errors.New("the disk is full")
		})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "the disk is full") || took > time.Second+troublePause {
			t.Errorf("%v after %v", err, took)
		}
	})
}
