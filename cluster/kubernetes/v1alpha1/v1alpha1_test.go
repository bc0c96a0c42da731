package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

func TestDeploymentsComeBackAsTheyWere(t *testing.T) {
	for name, d := range map[string]types.FunctionDeployment{
		"least": {Service: "f", Namespace: "openfaas-fn", Image: "i"},
		"all": {Service: "f", Namespace: "n", Image: "i:1", EnvProcess: "cat", EnvVars: map[string]string{"a": "1"},
			Constraints: []string{"disktype=ssd"}, Secrets: []string{"s"}, Labels: &map[string]string{"l": "1"},
			Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"}, Limits: &types.FunctionResources{CPU: "1", Memory: "1Gi", NvidiaGPU: "1"},
			Requests: &types.FunctionResources{AmdGPU: "2", IntelGPU: "3"}, ReadOnlyRootFilesystem: true},
	} {
		if got := SpecOf(d).Deployment(d.Service, d.Namespace); !reflect.DeepEqual(got, d) {
			t.Errorf("%s: %+v became %+v", name, d, got)
		}
	}
}

func TestEmptyIsAbsent(t *testing.T) {
	empty := types.FunctionDeployment{Image: "i", EnvVars: map[string]string{}, Constraints: []string{}, Secrets: []string{},
		Labels: &map[string]string{}, Annotations: &map[string]string{}, Limits: &types.FunctionResources{}, Requests: &types.FunctionResources{}}
	if got, want := SpecOf(empty), (FunctionSpec{Image: "i"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := (FunctionSpec{Image: "i", Limits: &Resources{}, Labels: map[string]string{}}).Deployment("f", "n"); !reflect.DeepEqual(got, types.FunctionDeployment{Service: "f", Namespace: "n", Image: "i"}) {
		t.Errorf("%+v", got)
	}
}

// For every object, a copy is equal and shares nothing, and converting its deployment to a
// spec and back gives the same deployment.
func FuzzSpec(f *testing.F) {
	f.Add(`{"image":"i","labels":{"a":"b"},"limits":{"cpu":"1"},"replicas":3,"secrets":["s"]}`)
	f.Add(`{"image":"","environment":{},"constraints":[""],"requests":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s FunctionSpec
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		if c := s.DeepCopy(); !reflect.DeepEqual(*c, s) {
			t.Errorf("copy %+v of %+v", c, s)
		}
		once := s.Deployment("f", "n")
		if again := SpecOf(once).Deployment("f", "n"); !reflect.DeepEqual(again, once) {
			t.Errorf("%+v became %+v", once, again)
		}
	})
}
