package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// traced begins a request with a trace and returns where its error will be.
func (r *rig) traced(t *frame.Trace) chan error {
	done := make(chan error, 1)
	go func() {
		q := request("x")
		q.Trace = t
		_, err := r.Invoke(r.t.Context(), q)
		done <- err
	}()
	return done
}

// The sampled requests of a batch share its execution, which knows them and counts all. Those that wait for a first
// instance know when it came up.
func TestTraceOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Minute})
		began := time.Now()
		traces := []*frame.Trace{{}, {}}
		done := []chan error{r.traced(traces[0]), r.send(), r.traced(traces[1])}
		time.Sleep(3 * time.Second)
		a := r.serve("a")
		a.echo.exec.Store(1500)
		in := instance("a", 4)
		in.Variant, in.Revision = "int8", 7
		r.Up(in, "fake", "a")
		for _, d := range done {
			if err := <-d; err != nil {
				t.Fatal(err)
			}
		}
		x := traces[0].Batch
		if x == nil || x != traces[1].Batch || x.Size != 3 || len(x.Members) != 2 || x.Members[0] == x.Members[1] || x.Instance != "a" || x.Variant != "int8" || x.Revision != 7 || x.Engine != 1500*time.Microsecond {
			t.Fatalf("executions %+v and %+v", x, traces[1].Batch)
		}
		up := began.Add(3 * time.Second)
		for _, of := range traces {
			if !of.Cold || !of.Queued.Equal(began) || !of.Up.Equal(up) || of.Sent.Before(up) || x.Began.Before(of.Sent) || x.Ended.Before(x.Began) {
				t.Errorf("%+v of an instance that came up at %v", of, up)
			}
		}
		warm := &frame.Trace{}
		if err := <-r.traced(warm); err != nil || warm.Cold || !warm.Up.IsZero() || warm.Batch == nil || warm.Batch == x || len(warm.Batch.Members) != 1 {
			t.Errorf("%v: %+v", err, warm)
		}
	})
}

// A request that is refused has no execution, but its wait.
func TestTraceOfARefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Second})
		of := &frame.Trace{}
		if err := <-r.traced(of); err == nil || !of.Cold || of.Queued.IsZero() || of.Batch != nil || !of.Sent.IsZero() {
			t.Errorf("%v: %+v", err, of)
		}
	})
}
