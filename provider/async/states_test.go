package async

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	if err := r.follower.states.put(t.Context(), record{Progress: Progress{ID: "x"}}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on the way: %v", err)
	}
	until(t, "that is known", func() bool { return r.broker.Trouble() != nil })
	if err := r.follower.states.put(t.Context(), record{Progress: Progress{ID: "x"}}); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
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

// A dead letter goes when its message is in the queue again, also if that cannot be stored as the request's state.
func TestReplayWithoutItsState(t *testing.T) {
	var well atomic.Bool
	var executed atomic.Int32
	r := start(t, func(context.Context, string, *frame.Request) (*frame.Response, error) {
		if !well.Load() {
			return respond(503, ""), nil
		}
		executed.Add(1)
		return respond(200, ""), nil
	}, quickly)
	url := r.send(t, "echo", "x")
	r.letters(t, 1)
	r.isEmpty(t)
	r.reaches(t, url, Dead)
	r.refuses(t, queue.StateStream)
	well.Store(true)
	if w := r.do("POST", "/system/async/dead/replay", `{"all":true}`); w.Code != 200 || strings.Contains(w.Body.String(), "failed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.letters(t, 0)
	until(t, "it is executed", func() bool { return executed.Load() == 1 })
}

// A kept result is there although the request's state has made room for others.
func TestResultWithoutAState(t *testing.T) {
	r := start(t, echo, roomForResults)
	url, without := r.send(t, "echo", "kept", keepHeader, "10m"), r.send(t, "echo", "x")
	r.reaches(t, url, Done)
	r.reaches(t, without, Done)
	r.isEmpty(t)
	s, err := r.broker.JetStream().Stream(t.Context(), queue.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for target, code := range map[string]int{url: 404, url + "/result": 200, without: 404, without + "/result": 404} {
		if w := r.do("GET", target, ""); w.Code != code || code == 200 && (w.Body.String() != "kept" || w.Header().Get("X-Function-Status") != "201") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}
