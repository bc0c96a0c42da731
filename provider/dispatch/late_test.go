package dispatch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// Whatever a request waits for, there is one time at which it is answered at the latest,
// counted from its arrival.
func TestOneBoundForAllWaits(t *testing.T) {
	const objective, exec, coldWait = 400 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second
	for name, c := range map[string]struct {
		// waited is how long the request has waited before, ready when an instance is there
		// that never answers, and cold the cold wait.
		waited, ready, cold time.Duration
		want                time.Duration
	}{
		"an instance is ready":                      {0, 0, coldWait, objective + MaxLateness},
		"an instance becomes ready late":            {0, coldWait - 100*time.Millisecond, coldWait, objective + coldWait},
		"the cold wait is shorter than the bound":   {0, 100 * time.Millisecond, 200 * time.Millisecond, objective + MaxLateness},
		"the function was not back":                 {5 * time.Second, 0, coldWait, objective + coldWait},
		"it was not back, and no instance is ready": {3 * time.Second, coldWait - 3100*time.Millisecond, coldWait, objective + coldWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{SLO: objective, ColdWait: c.cold})
				began := time.Now()
				go func() {
					time.Sleep(c.ready)
					a := r.serve("a")
					a.echo.gate = make(chan struct{})
					in := instance("a", 4)
					in.Exec = times(4, exec)
					r.Up(in, "fake", "a")
					time.Sleep(time.Minute)
					close(a.echo.gate)
				}()
				if c.ready == 0 {
					synctest.Wait()
				}
				q := request("x")
				q.Waited = c.waited
				_, err := r.Invoke(t.Context(), q)
				if took := time.Since(began) + c.waited; !errors.Is(err, ErrLate) || took != c.want {
					t.Errorf("%v after %v, want a refusal after %v", err, took, c.want)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// A request that has waited before runs within its objective on a ready instance, whatever the
// policy does with the time that a deadline leaves. If it has waited too long it is refused.
func TestWaitedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{batching.SharedName, batching.InFlessName} {
			r := newRig(t, Options{SLO: 100 * time.Millisecond, ColdWait: time.Second})
			r.start("a")
			p, err := batching.New(name, batching.Options{SLO: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			r.Reconfigure(p, 100*time.Millisecond, false)
			q := request("x")
			for waited, want := range map[time.Duration]error{200 * time.Millisecond: nil, 2 * time.Second: ErrLate} {
				q.Waited = waited
				began := time.Now()
				if _, err := r.Invoke(t.Context(), q); err != want || time.Since(began) > 100*time.Millisecond {
					t.Errorf("%s: after it has waited for %v: %v after %v, want %v", name, waited, err, time.Since(began), want)
				}
			}
		}
	})
}

// A request does not wait for a connection to its instance longer than its answer is useful.
// The instance is asked for its health, and lost only if it does not answer.
func TestConnectingTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objective = 100 * time.Millisecond
		r := newRig(t, Options{SLO: objective})
		dial := r.options.Dial
		r.options.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r.Up(instance("b", 4), "fake", "b")
		r.options.Dial = dial
		began := time.Now()
		first := r.send()
		synctest.Wait()
		r.start("a")
		if err := <-r.send(); err != nil {
			t.Errorf("another request: %v", err)
		}
		if err := <-first; !errors.Is(err, ErrLate) || time.Since(began) != 2*objective {
			t.Errorf("%v after %v, want a refusal after %v", err, time.Since(began), 2*objective)
		}
		if id := <-r.lost; id != "b" || time.Since(began) < giveUp {
			t.Errorf("%s is lost after %v", id, time.Since(began))
		}
	})
}

// An instance that stops in the middle of its answer does not hold the request longer than
// one that does not begin.
func TestInstanceStopsInItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objective = 100 * time.Millisecond
		there := pipes{make(chan net.Conn, 8), make(chan struct{})}
		release := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != frame.Path {
				return // It answers for its health.
			}
			buffers, total := frame.EncodeResponses([]frame.Response{{Status: 200, Body: make([]byte, 1<<20)}})
			w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
			_, _ = w.Write(buffers[0])
			_ = http.NewResponseController(w).Flush()
			<-release
		})}
		go server.Serve(there)
		defer server.Close()
		d, _ := newDispatcher(t, batching.SharedName, Options{SLO: objective, Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			there.conns <- theirs
			return ours, nil
		}})
		d.Up(instance("a", 4), "fake", "a")
		began := time.Now()
		_, err := d.Invoke(t.Context(), request("x"))
		if took := time.Since(began); err == nil || took > 2*objective+minGrace {
			t.Errorf("%v after %v, want an error after %v", err, took, 2*objective)
		}
		close(release)
		time.Sleep(time.Second) // It answers for its health.
	})
}

// A leader that begins late sends a request that is more likely in time than late. Here few batches take
// as long as the 100 ms of Exec, and most take 60.
func TestLateLeadersSendWhatIsLikelyInTime(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	in := instance("a", 1)
	in.Exec = times(1, 100*time.Millisecond)
	d.Up(in, "unix", "none")
	for range 100 {
		d.pace.Add(60*time.Millisecond, in.Exec[0])
	}
	for late, sent := range map[time.Duration]bool{0: true, 30 * time.Millisecond: true, 50 * time.Millisecond: false} {
		now := time.Now()
		c := &call{request: request("x"), deadline: now.Add(100 * time.Millisecond), signal: make(chan signal, 1)}
		d.mu.Lock()
		f := d.flight(d.batch(now, d.instances["a"], "a", []*call{c}))
		d.release("a", now)
		d.mu.Unlock()
		if f.prune(c, now.Add(late)); (len(f.calls) == 1) != sent {
			t.Errorf("a leader that begins %v late sends %d requests of 1, want %v", late, len(f.calls), sent)
		}
	}
}
