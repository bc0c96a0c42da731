package provider

import (
	"strings"
	"testing"
)

// variantController knows the variants of mnist only.
type variantController struct{ *fakeController }

func (variantController) Variants(name string) ([]Variant, bool) {
	return []Variant{{Name: "slim", Accuracy: 70, State: "active", Instances: 1, Nodes: []VariantNode{{"n1", "active", 1}}, Holds: VariantResources{CPU: 250, Memory: 1 << 20}}}, name == "mnist.openfaas-fn"
}

func TestVariants(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	if w := r.do("GET", "/system/variants/mnist", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "has no model") {
		t.Errorf("without variants: %d %s", w.Code, w.Body)
	}
	r = newRig(t, func(o *Options) { o.Controller = variantController{o.Controller.(*fakeController)} })
	r.deploy(t, nil)
	wantJSON(t, r.do("GET", "/system/variants/mnist.openfaas-fn", "").Body.String(), `[{"name":"slim","accuracy":70,"state":"active","instances":1,
		"nodes":[{"node":"n1","state":"active","instances":1}],"price":{"cpuMillicores":0,"memoryBytes":0},"holds":{"cpuMillicores":250,"memoryBytes":1048576}}]`)
	for target, code := range map[string]int{"/system/variants/none": 404, "/system/variants/mnist?namespace=team-a": 404, "/system/variants/mnist.": 400} {
		if w := r.do("GET", target, ""); w.Code != code {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := r.do("POST", "/system/variants/mnist", ""); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}
