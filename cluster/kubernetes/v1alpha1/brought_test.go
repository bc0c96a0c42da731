package v1alpha1

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
)

// An image's annotations survive the way into the object and back. Invalid text there
// counts as none.
func TestBrought(t *testing.T) {
	for _, brought := range []map[string]string{nil, {"a": "1"}, {"com.openfaas.slo.latency": "50ms", `q"uote`: "<&>\n"}} {
		f := &Function{}
		f.Annotations = map[string]string{ImageAnnotation: Carried(brought)}
		if got := f.Brought(); !maps.Equal(got, brought) {
			t.Errorf("%v became %v", brought, got)
		}
	}
	for _, text := range []string{"x", "[]", "{", `{"a":1}`, "null"} {
		f := &Function{}
		f.Annotations = map[string]string{ImageAnnotation: text}
		if got := f.Brought(); got != nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// At returns the spec of a revision even if the object has a newer one.
func TestAt(t *testing.T) {
	was := FunctionSpec{Image: "i:1", Annotations: map[string]string{"a": "1"}}
	f := &Function{Spec: FunctionSpec{Image: "i:2", Annotations: map[string]string{"own": "1"}},
		Status: FunctionStatus{Deployed: &Deployed{Revision: 6, Spec: DeployedSpec{FunctionSpec: was}}}}
	if got := f.At(6); !reflect.DeepEqual(got.Spec, was) || f.Spec.Image != "i:2" {
		t.Errorf("%+v", got.Spec)
	}
	if got := f.At(7); got != f {
		t.Errorf("%+v", got.Spec)
	}
	f.Annotations = map[string]string{ImageAnnotation: Carried(map[string]string{"own": "image's", "new": "image's"})}
	got := f.At(7)
	if want := map[string]string{"own": "1", "new": "image's"}; !maps.Equal(got.Spec.Annotations, want) || len(f.Spec.Annotations) != 1 {
		t.Errorf("%v, not %v", got.Spec.Annotations, want)
	}
	f.Status.Deployed = nil
	if got := f.At(6); got.Spec.Image != "i:2" {
		t.Errorf("%+v", got.Spec)
	}
}

// A copy shares nothing with the original.
func TestCopyOfWhatIsDeployed(t *testing.T) {
	f := &Function{Status: FunctionStatus{Deployed: &Deployed{Revision: 3, Spec: DeployedSpec{
		FunctionSpec: FunctionSpec{Image: "i", Environment: map[string]string{"a": "1"}}, Resolved: &ResolvedImage{Digest: "d", Models: []ResolvedModel{{File: "f"}}},
	}}}}
	c := f.DeepCopy()
	c.Status.Deployed.Spec.Resolved.Digest, c.Status.Deployed.Spec.Resolved.Models[0].File = "e", "g"
	c.Status.Deployed.Spec.Environment["a"] = "2"
	c.Status.Deployed.Revision = 4
	if text, _ := json.Marshal(f.Status.Deployed); string(text) != `{"revision":3,"spec":{"image":"i","environment":{"a":"1"},"resolved":{"reference":"","digest":"d","directory":"","models":[{"file":"f","hash":""}]}}}` {
		t.Errorf("%s", text)
	}
}
