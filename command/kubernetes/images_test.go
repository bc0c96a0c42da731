package kubernetes

import (
	"context"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// here is a latency.Models whose methods return paths of this machine.
type here struct{}

func (here) Check(context.Context, string, func(string) bool) error { return nil }
func (here) Hash(string) (string, error)                            { return "hash", nil }
func (here) Bytes(string) int64                                     { return 1 }
func (here) Prepare(context.Context, string) (string, error)        { return "/here", nil }
func (here) find() (string, *profiler.Profile, error)               { return "/here", &profiler.Profile{}, nil }
func (h here) Sketch(context.Context, string, int, time.Duration) (string, *profiler.Profile, error) {
	return h.find()
}
func (h here) Measure(context.Context, string, int, time.Duration) (string, *profiler.Profile, error) {
	return h.find()
}
func (h here) Predict(context.Context, string, int, time.Duration) (string, *profiler.Profile, error) {
	return h.find()
}

// Instances get the model's path in their image, however its times were found.
func TestInstancesAreToldThePathInTheirImage(t *testing.T) {
	m := &imageModels{local: here{}}
	m.keep("copy", origin{inside: "/bundle/model.onnx@sha256:1"})
	for name, find := range map[string]func(context.Context, string, int, time.Duration) (string, *profiler.Profile, error){
		"sketch": m.Sketch, "measure": m.Measure, "predict": m.Predict,
	} {
		if inside, p, err := find(t.Context(), "copy", 1, 0); inside != "/bundle/model.onnx@sha256:1" || p == nil || err != nil {
			t.Errorf("%s: %q, %v", name, inside, err)
		}
	}
	if inside, err := m.Prepare(t.Context(), "copy"); inside != "/bundle/model.onnx@sha256:1" || err != nil {
		t.Errorf("prepare: %q, %v", inside, err)
	}
}

// sizedHere are models that note the sizes with which they are measured.
type sizedHere struct {
	here
	seen *[]latency.Sizes
}

func (h sizedHere) Sized(s latency.Sizes) latency.Models {
	*h.seen = append(*h.seen, s)
	return h.here
}

// The copies of models in images are measured with the sizes of the deployment, and instances get the path in
// their image.
func TestModelsInImagesAreSized(t *testing.T) {
	var seen []latency.Sizes
	m := &imageModels{local: sizedHere{seen: &seen}}
	m.keep("copy", origin{inside: "/bundle/model.onnx@sha256:1"})
	sized := m.Sized(latency.Sizes{Shapes: "ids:1x64"})
	if inside, p, err := sized.Predict(t.Context(), "copy", 1, 0); inside != "/bundle/model.onnx@sha256:1" || p == nil || err != nil {
		t.Errorf("%q, %v", inside, err)
	}
	if err := sized.Check(t.Context(), "copy", func(string) bool { return false }); err != nil || len(seen) != 1 || seen[0].Shapes != "ids:1x64" {
		t.Errorf("sized as %v, %v", seen, err)
	}
}

// evicted is a latency.Models whose files have gone, if its error is set.
type evicted struct {
	here
	err error
}

func (e *evicted) Hash(string) (string, error) { return "hash", e.err }

// The hash of a model whose copy was evicted stays known, so that its profile is not collected.
func TestHashOfAnEvictedModel(t *testing.T) {
	local := &evicted{err: os.ErrNotExist}
	m := &imageModels{local: local}
	m.keep("copy", origin{inside: "/bundle/model.onnx@sha256:1"})
	if hash, err := m.Hash("copy"); err == nil {
		t.Errorf("%q of a model that was never read", hash)
	}
	local.err = nil
	if _, err := m.Hash("copy"); err != nil {
		t.Fatal(err)
	}
	local.err = os.ErrNotExist
	if hash, err := m.Hash("copy"); hash != "hash" || err != nil {
		t.Errorf("%q, %v", hash, err)
	}
}

// An evicted instance has the time to answer: its function's objective, or the longest that
// its requests may last.
func TestGraceFollowsTheFunction(t *testing.T) {
	for slo, want := range map[string]time.Duration{"50ms": 35*time.Second + 50*time.Millisecond, "5m": 5*time.Minute + 35*time.Second, "no": 35 * time.Second} {
		f := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "openfaas-fn"}, Spec: v1alpha1.FunctionSpec{Image: "m", Annotations: map[string]string{"com.openfaas.slo.latency": slo}}}
		if got := instanceGrace(f); got != want {
			t.Errorf("an objective of %s: %v, not %v", slo, got, want)
		}
	}
	f := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "openfaas-fn"}, Spec: v1alpha1.FunctionSpec{Image: "m", Environment: map[string]string{"exec_timeout": "2m"}}}
	if got := instanceGrace(f); got != 2*time.Minute+5*time.Second {
		t.Errorf("exec_timeout of 2 m: %v", got)
	}
}
