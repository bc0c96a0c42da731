package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The plan follows the sizes of the requests: those of 256 tokens take twice the time of those that the model
// was deployed for. That is no sign that it is slow.
func TestPlansFollowTheSizesThatAreSeen(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(1 / 1.1))
		r.measured("f", "text")
		r.load("f", 50*time.Millisecond, 5*time.Second)
		before := r.known("f").exec(1, 1000)
		r.backend.lengthen(512)
		r.load("f", 50*time.Millisecond, 2*time.Second)
		after := r.known("f").exec(1, 1000)
		if ratio := float64(after) / float64(before); before == 0 || ratio < 1.8 || ratio > 2.3 {
			t.Errorf("one request is planned with %v, with %v before", after, before)
		}
		if n := r.load("f", 50*time.Millisecond, 5*time.Second); n > 2 {
			t.Errorf("%d of 100 requests of 256 tokens failed", n)
		}
		// 512 tokens take 80 ms, and the objective is met; 4,096 take 640 ms, and it is not.
		r.backend.lengthen(8192)
		r.load("f", 500*time.Millisecond, 10*time.Second)
		s, _ := r.Status(full("f"))
		if !strings.Contains(s.Problem, "tokens, for which the model takes longer than for the 128 that it was deployed for") {
			t.Errorf("the problem is %q", s.Problem)
		}
	})
}

// countedTexts finds models of texts whose tokens it counts.
type countedTexts struct {
	fakeBundles
	counted atomic.Int64
}

func (c *countedTexts) Models(ctx context.Context, f *provider.Function) (bundle string, models []Model, err error) {
	if bundle, models, err = c.fakeBundles.Models(ctx, f); err == nil {
		models[0].Counter = c
	}
	return bundle, models, err
}

func (c *countedTexts) Count(*frame.Request) (rows, tokens int, exact bool) {
	c.counted.Add(1)
	return 1, 128, true
}

// The tokens of requests are counted by what a function's bundle says, once instances have reported texts.
func TestBundlesCountTokens(t *testing.T) {
	by := &countedTexts{}
	tryWith(t, func(o *Options) { o.Bundles = by }, func(r *rig) {
		r.backend.take(always(1 / 1.1))
		r.backend.texts.Store(true)
		r.backend.lengthen(256)
		r.measured("f", "text")
		for range 5 {
			d, _ := r.on.Dispatchers.Load("f")
			body := []byte(`{"input":"a"}`)
			if _, err := d.(provider.Dispatcher).Invoke(r.t.Context(), &frame.Request{Method: "POST", Path: "/", Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		if n := by.counted.Load(); n < 3 {
			t.Errorf("%d of 5 requests are counted", n)
		}
	})
}

func TestStatusSaysForWhichSizesTheObjectiveHolds(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "text", within(100*time.Millisecond))
		r.measured("g", "m")
		if s, _ := r.Status(full("f")); !strings.HasPrefix(s.Reach, "p99 ≤ 100ms up to 512 tokens on one core") {
			t.Errorf("the reach is %q", s.Reach)
		}
		if s, _ := r.Status(full("g")); s.Reach != "" {
			t.Errorf("requests of one size reach %q", s.Reach)
		}
	})
}

// Instances are told the sizes that a deployment states, and are replaced when these change.
func TestSizesReachTheInstances(t *testing.T) {
	try(t, func(r *rig) {
		upTo := func(largest string) func(*provider.Function) {
			return func(f *provider.Function) {
				f.Inference.Shapes, f.Inference.MaxShapes = "ids:1x64", largest
				f.Deployment.Annotations = &map[string]string{annotation.InferMaxShapes: largest}
			}
		}
		r.measured("f", "text", upTo("ids:1x128"))
		r.answered("f", "text")
		if a := r.backend.living()[0].Artefact; a.Shapes != "ids:1x64" || a.MaxShapes != "ids:1x128" {
			t.Errorf("the instance has %+v", a)
		}
		r.measured("f", "text", upTo("ids:1x256"))
		r.until("an instance with the new sizes", func() bool {
			living := r.backend.living()
			return len(living) > 0 && !slices.ContainsFunc(living, func(in cluster.Instance) bool { return in.MaxShapes != "ids:1x256" })
		})
	})
}

// unsized makes models run with no size until a request has taught one. A small model is tried at deployment, a
// large one in the background.
func (r *rig) unsized(small bool) {
	err := fmt.Errorf("%w: tried 16, 32 and 64: Concat of unlike shapes", latency.ErrNoSizes)
	r.models.mu.Lock()
	defer r.models.mu.Unlock()
	r.models.measureFails, r.models.predictFails = err, latency.ErrUnpredictable
	if small {
		r.models.checkFails = err
	}
}

// problem is what the function's description says.
func (r *rig) problem(name string) string {
	s, _ := r.Status(full(name))
	return s.Problem
}

// A model that runs with no size that was tried is deployed. Its first request teaches the sizes and is
// answered. A provider that starts later, and another function of the model, know them.
func TestTheFirstRequestTeachesTheSizes(t *testing.T) {
	for _, small := range []bool{true, false} {
		try(t, func(r *rig) {
			r.unsized(small)
			r.deploy("f", "m")
			r.until("the lesson", func() bool { return r.problem("f") != "" })
			const want = "the sizes of the model's inputs are learnt from its first request: tried 16, 32 and 64: Concat of unlike shapes"
			if got := r.problem("f"); got != want {
				t.Errorf("the problem is %q, want %q", got, want)
			}
			tries := r.models.tried()
			time.Sleep(time.Minute)
			if now := r.models.tried(); now != tries {
				t.Errorf("it was measured %d times more within a minute", now-tries)
			}
			got, err := r.invoke("f", "runs")
			if err != nil || got != "m:runs" {
				t.Fatalf("the first request gets %q, %v", got, err)
			}
			s, _ := r.Status(full("f"))
			if s.Learnt != "ids:1x7" || s.Problem != "" {
				t.Errorf("the status is %+v", s)
			}
			if a := r.only().Artefact; a.Shapes != "ids:1x7" {
				t.Errorf("the instance has the shapes %q", a.Shapes)
			}
			r.answered("f", "m") // No lesson: its sizes do not run.
			r.unsized(small)     // As for a provider that starts again.
			r.models.fail(nil)
			r.measured("g", "m")
			if s, _ := r.Status(full("g")); s.Learnt != "ids:1x7" {
				t.Errorf("another function has learnt %q", s.Learnt)
			}
		})
	}
}

// A request whose sizes do not run gets the engine's message. Others are tried after a pause, one at a time.
func TestSizesThatDoNotRunAreRefused(t *testing.T) {
	try(t, func(r *rig) {
		r.unsized(true)
		r.deploy("f", "m")
		errs := make(chan error, 21)
		for range 20 {
			go func() {
				_, err := r.invoke("f", "x")
				errs <- err
			}()
		}
		counts := map[int]int{}
		for range 20 {
			counts[web.StatusOf(<-errs)]++
		}
		if counts[400] != 1 || counts[503] != 19 || len(r.models.lessons) != 1 {
			t.Errorf("answers by status %v after %d tries", counts, len(r.models.lessons))
		}
		var busy *web.Error
		if _, err := r.invoke("f", "runs"); !errors.As(err, &busy) || busy.Status != 503 || busy.After < 3*time.Second {
			t.Errorf("at once, another request gets %v", err)
		}
		time.Sleep(lessonRest * time.Second)
		if got, err := r.invoke("f", "runs"); err != nil || got != "m:runs" {
			t.Errorf("after the pause it gets %q, %v", got, err)
		}
	})
}

// Sizes that the deployment states override those that are learnt, and are not learnt.
func TestStatedSizesAreNotLearnt(t *testing.T) {
	try(t, func(r *rig) {
		r.unsized(true)
		shaped := func(f *provider.Function) { f.Inference.Shapes = "ids:1x64" }
		_, err := r.Deploy(t.Context(), r.function("f", "m", shaped))
		if err == nil || !strings.Contains(err.Error(), "no sizes found") {
			t.Errorf("stated sizes that do not run: %v", err)
		}
		r.deploy("f", "m")
		if got, err := r.invoke("f", "runs"); err != nil || got != "m:runs" {
			t.Fatalf("the request gets %q, %v", got, err)
		}
		r.measured("f", "m", shaped)
		if s, _ := r.Status(full("f")); s.Learnt != "" {
			t.Errorf("learnt are %q", s.Learnt)
		}
		r.until("an instance with the stated sizes", func() bool {
			living := r.backend.living()
			return len(living) > 0 && !slices.ContainsFunc(living, func(in cluster.Instance) bool { return in.Shapes != "ids:1x64" })
		})
	})
}

// An earlier revision serves while the sizes of a new model are learnt from its requests.
func TestAnEarlierRevisionServesMeanwhile(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "old")
		r.answered("f", "old")
		r.unsized(true)
		r.deploy("f", "m")
		r.answered("f", "old")
		time.Sleep(lessonRest * time.Second * 2)
		if got, err := r.invoke("f", "runs"); err != nil || got != "old:runs" {
			t.Fatalf("the request gets %q, %v", got, err)
		}
		r.until("the new model", func() bool {
			got, err := r.invoke("f", "x")
			return err == nil && got == "m:x"
		})
	})
}
