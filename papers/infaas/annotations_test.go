package infaas

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// parsed reads a deployment with annotations.
func parsed(annotations map[string]string) (*provider.Function, error) {
	all := map[string]string{annotation.SLOLatency: "200ms"}
	maps.Copy(all, annotations)
	in, err := annotation.Parse(types.FunctionDeployment{Service: "resnet-50", Image: "resnet-50:latest", Annotations: &all})
	return &provider.Function{Inference: in}, err
}

func TestVariantsAnnotation(t *testing.T) {
	f, err := parsed(map[string]string{annotation.SLOAccuracy: "70.5", VariantsKey: "resnet50, mobilenet"})
	if err != nil || f.Inference.Accuracy != 70.5 || !slices.Equal(named(f), []string{"resnet50", "mobilenet"}) || isAuto(f) {
		t.Fatalf("%+v, %v", f.Inference, err)
	}
	if f, err = parsed(map[string]string{VariantsKey: "bundle"}); err != nil || named(f) != nil || isAuto(f) {
		t.Errorf("%+v, %v", f.Inference, err)
	}
	if f, err = parsed(map[string]string{VariantsKey: "auto", PreferKey: "accuracy"}); err != nil || !isAuto(f) || !f.Inference.Accurate || named(f) != nil {
		t.Errorf("%+v, %v", f.Inference, err)
	}
	if f, err = parsed(map[string]string{PreferKey: "cost"}); err != nil || isAuto(f) || f.Inference.Accurate {
		t.Errorf("%+v, %v", f.Inference, err)
	}
}

func TestVariantsRefused(t *testing.T) {
	many := strings.Repeat("a,", maxVariants) + "b"
	for _, c := range []struct{ key, value string }{
		{annotation.SLOAccuracy, "101"},
		{annotation.SLOAccuracy, "-1"}, {annotation.SLOAccuracy, "NaN"}, {annotation.SLOAccuracy, ""}, {annotation.SLOAccuracy, "1e1"}, {annotation.SLOAccuracy, "0x1p5"}, {annotation.SLOAccuracy, "1_0"}, {annotation.SLOAccuracy, "Inf"}, {annotation.SLOAccuracy, " 70"}, {annotation.SLOAccuracy, "+70"},
		{VariantsKey, ""}, {VariantsKey, "a,,b"}, {VariantsKey, "a,a"}, {VariantsKey, "../a"}, {VariantsKey, many},
		{PreferKey, ""}, {PreferKey, "speed"},
	} {
		_, err := parsed(map[string]string{c.key: c.value})
		var wrong *annotation.Error
		if !errors.As(err, &wrong) || wrong.Key != c.key {
			t.Errorf("%s = %q: %v", c.key, c.value, err)
		}
	}
}
