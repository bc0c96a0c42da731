package bundles

import (
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
)

// known are models of which the size of the weights is known.
type known struct {
	Files
	weights int64
}

func (k known) Known(string) (string, int64) { return "hash", k.weights }

// A program that cuts no models refuses a function that asks for it, and a model that is too large for one
// instance.
func TestAProgramThatCutsNoModels(t *testing.T) {
	models := []control.Model{{Name: cluster.Whole, File: "m.onnx"}}
	f := &provider.Function{Deployment: types.FunctionDeployment{Limits: &types.FunctionResources{Memory: "1Gi"}}}
	f.Inference.Limits.Memory = 1 << 30
	c := whole{files: known{weights: 1 << 30}}
	if got, err := c.WithPlans(t.Context(), f, models); err != nil || len(got) != 1 {
		t.Errorf("a model that fits: %v, %v", got, err)
	}
	c.files = known{weights: 2 << 30}
	if _, err := c.WithPlans(t.Context(), f, models); err == nil || !strings.Contains(err.Error(), "the model has 2048 MiB of weights; raise it") {
		t.Errorf("a model that is too large: %v", err)
	}
	f.Inference.Partition = annotation.PartitionAuto
	if _, err := c.WithPlans(t.Context(), f, models); err == nil || !strings.Contains(err.Error(), "com.openfaas.infer.partition") || !strings.Contains(err.Error(), "this program cuts no models; it must be off") {
		t.Errorf("a model that is to be cut: %v", err)
	}
}
