package async

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// A result is not kept on what is left of a full disk.
func TestFullDiskKeepsNoResult(t *testing.T) {
	dir := smallDisk(t, 64)
	if dir == "" {
		return
	}
	release := make(chan struct{})
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		<-release
		return respond(200, "x"), nil
	}, func(o *Options) { roomForResults(o); o.Dir = filepath.Join(dir, "nats") })
	url := r.send(t, "echo", "x", keepHeader, "10m")
	r.reaches(t, url, Running)
	fill(t, filepath.Join(dir, "ballast"), 3<<20)
	until(t, "the disk is full", func() bool { return r.broker.Usable() != nil })
	close(release)
	if p := r.reaches(t, url, Done); p.Result == nil || !strings.Contains(p.Result.Problem, "the disk of the queue is full") {
		t.Errorf("%+v", p.Result)
	}
}

// A state or result that the server gives no answer for ends when the server is known to be in trouble, and
// none is sent to it then.
func TestStoresNothingWithoutAServer(t *testing.T) {
	address := freeAddress(t)
	server := spawn(t, "nats", "CHILD_DIR="+t.TempDir(), "CHILD_LISTEN="+address)
	until(t, "NATS listens", func() bool { return listening(address) })
	r := start(t, echo, func(o *Options) { o.URL = "nats://" + address })
	r.instead(t, queue.StateStream, queue.StateSubjects, func([]byte) bool {
		server.kill()
		return false
	})
	if err := r.follower.states.put(t.Context(), record{Progress: Progress{ID: "x"}}); !errors.Is(err, errUnknown) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("on the way: %v", err)
	}
	if err := r.follower.states.put(t.Context(), record{Progress: Progress{ID: "x"}}); err == nil || errors.Is(err, errUnknown) {
		t.Errorf("after that: %v", err)
	}
	if kept := r.follower.states.keep(t.Context(), "x", &CallbackResult{}, &answer{}, queue.MaxKeep); !strings.Contains(kept.Problem, "cannot be reached") {
		t.Errorf("%+v", kept)
	}
}

// A request whose result is being stored does not hold a place of execution.
func TestKeepingAResultHoldsNoPlace(t *testing.T) {
	r := start(t, echo, func(o *Options) { roomForResults(o); o.Concurrency = 1 })
	const key = "openfaas-fn.echo"
	r.instead(t, queue.ResultStream, queue.ResultSubjects, func([]byte) bool {
		if s := r.pools()[0].Stats()[key]; s.Running != 0 || s.Held != 1 {
			t.Errorf("%+v", s)
		}
		return true
	})
	url := r.send(t, "echo", "x", keepHeader, "10m")
	if p := r.reaches(t, url, Done); p.Result == nil || p.Result.Problem != "" {
		t.Errorf("%+v", p.Result)
	}
}
