package control

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/provider"
)

// machineBundles are bundles in a directory of the machine.
type machineBundles struct {
	fakeBundles
	fails *error
}

func (b machineBundles) Models(ctx context.Context, f *provider.Function) (bundle string, models []Model, err error) {
	bundle, models, err = b.fakeBundles.Models(ctx, f)
	if *b.fails != nil {
		err = *b.fails
	}
	return "/tmp/state/" + bundle, models, err
}

// What clients are told of a model names its file relative to the bundle, and shows no other path of the
// machine: the answer to a deployment, and the description.
func TestRefusalsNameFilesOfTheBundle(t *testing.T) {
	const said = "/tmp/state/bundles/m/parts/model.onnx: it needs /tmp/cache/prepared/1a2b/weights.bin"
	const shown = "parts/model.onnx: it needs …/weights.bin"
	right := func(t *testing.T, what, text string) {
		if !strings.Contains(text, shown) || strings.Contains(text, "/tmp") {
			t.Errorf("%s: %q", what, text)
		}
	}
	var fails error
	tryWith(t, func(o *Options) { o.Bundles = machineBundles{fails: &fails} }, func(r *rig) {
		r.models.fail(errors.New(said))
		r.deploy("f", "m")
		r.until("a problem", func() bool { return r.describe("f").Problem != "" })
		right(t, "the description", r.describe("f").Problem)
		s, _ := r.Status(full("f"))
		right(t, "the status", s.Problem)
		r.models.mu.Lock()
		r.models.checkFails = errors.New(said)
		r.models.mu.Unlock()
		_, err := r.Deploy(t.Context(), r.function("g", "m"))
		if status(err) != 400 {
			t.Fatalf("the deployment: %v", err)
		}
		right(t, "the answer to a deployment", err.Error())
		fails = errors.New(said)
		if _, err = r.Deploy(t.Context(), r.function("h", "m")); status(err) != 400 {
			t.Fatalf("the deployment of a bundle: %v", err)
		}
		right(t, "the answer to a deployment of a bundle", err.Error())
	})
}
