package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
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

// A model that runs with no size that was tried is not tried again and again. Its function says which annotation
// helps, and serves once that is there.
func TestModelsWithoutSizesNameTheAnnotation(t *testing.T) {
	try(t, func(r *rig) {
		r.models.fail(fmt.Errorf("%w: tried 16, 32 and 64: Concat of unlike shapes", latency.ErrNoSizes))
		r.deploy("f", "m")
		problem := func() string {
			s, _ := r.Status(full("f"))
			return s.Problem
		}
		r.until("a problem", func() bool { return problem() != "" })
		const want = `com.openfaas.infer.shapes is not set: the model has free dimensions and runs with none of the sizes that were tried; set it to the sizes of your requests (tried 16, 32 and 64: Concat of unlike shapes), for example "ids:1x128,mask:1x128"`
		if got := problem(); got != want {
			t.Errorf("the problem is %q, want %q", got, want)
		}
		if _, err := r.invoke("f", "x"); err == nil || !strings.Contains(err.Error(), annotation.InferShapes) {
			t.Errorf("a request gets %v", err)
		}
		tries := r.models.tried()
		time.Sleep(time.Hour)
		if now := r.models.tried(); now != tries {
			t.Errorf("it was tried %d times more within an hour", now-tries)
		}
		r.models.fail(nil)
		r.measured("f", "m", func(f *provider.Function) { f.Inference.Shapes = "ids:1x64" })
		r.answered("f", "m")
	})
}
