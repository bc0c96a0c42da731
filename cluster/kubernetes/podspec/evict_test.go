package podspec

import (
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// An ordinary function's /tmp keeps no node. A function's own annotations take precedence.
func TestAllowEviction(t *testing.T) {
	for what, test := range map[string]struct {
		readOnly    bool
		annotations map[string]string
		want        string
	}{
		"without /tmp":   {false, map[string]string{}, ""},
		"with /tmp":      {true, map[string]string{}, "tmp"},
		"its own":        {true, map[string]string{SafeToEvict: "false"}, ""},
		"its own choice": {true, map[string]string{SafeLocalVolumes: "a"}, "a"},
	} {
		spec, err := Ordinary(types.FunctionDeployment{Service: "f", Image: "i", ReadOnlyRootFilesystem: test.readOnly}, Settings{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if AllowEviction(test.annotations, &spec); test.annotations[SafeLocalVolumes] != test.want {
			t.Errorf("%s: %v", what, test.annotations)
		}
	}
}

// A cluster autoscaler may evict a model's pod, although its owner is no ReplicaSet, unless the function
// says otherwise.
func TestModelIsEvictable(t *testing.T) {
	p := plan()
	pod, err := Model(p)
	if err != nil || pod.Annotations[SafeToEvict] != "true" {
		t.Errorf("%v, %v", pod.Annotations, err)
	}
	p.Owner.Spec.Annotations = map[string]string{SafeToEvict: "false"}
	if pod, err = Model(p); err != nil || pod.Annotations[SafeToEvict] != "false" {
		t.Errorf("%v, %v", pod.Annotations, err)
	}
}
