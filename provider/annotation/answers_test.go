package annotation

import (
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

func TestAnswerCache(t *testing.T) {
	for value, want := range map[string]int64{"64Mi": 64 << 20, "1Gi": 1 << 30, "64Ki": 64 << 10, "0": -1, "1Ki": -1, "2Gi": -1, "64MB": -1, "": -1, "on": -1} {
		d := types.FunctionDeployment{Service: "f", Image: "i", Annotations: &map[string]string{SLOLatency: "1s", InferAnswerCache: value}}
		in, err := Parse(d)
		if want < 0 && (err == nil || !strings.Contains(err.Error(), InferAnswerCache)) || want >= 0 && (err != nil || in.AnswerCache != want) {
			t.Errorf("%q: %d, %v", value, in.AnswerCache, err)
		}
	}
	program := types.FunctionDeployment{Service: "f", Image: "i", Annotations: &map[string]string{InferAnswerCache: "64Mi"}}
	if _, err := Parse(program); err == nil || !strings.Contains(err.Error(), SLOLatency) {
		t.Errorf("a program: %v", err)
	}
}
