package provider

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/web"
)

// The image's annotations apply only where the deployment does not set them.
func TestDefaultsFillIn(t *testing.T) {
	brought := map[string]string{"com.openfaas.slo.latency": "100ms", "com.openfaas.slo.percentile": "95", "com.openfaas.scale.min": "2"}
	own := map[string]string{"com.openfaas.slo.latency": "20ms", "topic": "mail"}
	labels := map[string]string{"com.openfaas.scale.min": "1"}
	d := types.FunctionDeployment{Service: "spam", Image: "spam:latest", Annotations: &own, Labels: &labels}
	in, added, err := Complete(&d, brought)
	if err != nil || in.SLO != 20*time.Millisecond || in.MinReplicas != 1 || !maps.Equal(added, map[string]string{"com.openfaas.slo.percentile": "95"}) {
		t.Errorf("%+v, %v, %v", in, added, err)
	}
	want := map[string]string{"com.openfaas.slo.latency": "20ms", "com.openfaas.slo.percentile": "95", "topic": "mail"}
	if !maps.Equal(*d.Annotations, want) {
		t.Errorf("%v, want %v", *d.Annotations, want)
	}
	if len(own) != 2 || len(brought) != 3 {
		t.Error("the caller's map was changed")
	}
	d = types.FunctionDeployment{Service: "spam", Image: "spam:latest"}
	if in, _, err = Complete(&d, brought); err != nil || in.SLO != 100*time.Millisecond || in.MinReplicas != 2 {
		t.Errorf("%+v, %v", in, err)
	}
	d = types.FunctionDeployment{Service: "spam", Image: "spam:latest"}
	if _, added, err = Complete(&d, nil); err != nil || d.Annotations != nil || len(added) != 0 {
		t.Errorf("%+v, %v, %v", d.Annotations, added, err)
	}
}

// The error of an annotation that the image sets names the image, because the user would
// not find the annotation in the stack file.
func TestDefaultsThatCannotBeRead(t *testing.T) {
	soon := map[string]string{"com.openfaas.slo.latency": "soon"}
	_, _, err := Complete(&types.FunctionDeployment{Service: "spam", Image: "spam:latest"}, soon)
	if err == nil || !strings.Contains(err.Error(), "annotation of the image spam:latest") || web.StatusOf(err) != 400 {
		t.Errorf("%v", err)
	}
	_, _, err = Complete(&types.FunctionDeployment{Service: "spam", Image: "spam:latest", Annotations: &map[string]string{"com.openfaas.slo.latency": "now"}}, soon)
	if err == nil || strings.Contains(err.Error(), "annotation of the image") {
		t.Errorf("%v", err)
	}
}

// Defaults gets the deployment with its namespace and secrets.
func TestTheImageIsAsked(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Defaults = func(_ context.Context, d types.FunctionDeployment) (map[string]string, error) {
			if d.Image != "spam:v1" || d.Namespace != DefaultNamespace || len(d.Secrets) != 1 {
				t.Errorf("asked for %+v", d)
			}
			return map[string]string{"com.openfaas.slo.latency": "100ms"}, nil
		}
	})
	if w := r.do("POST", "/system/functions", `{"service":"spam","image":"spam:v1","secrets":["registry"]}`); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if f := r.controller.deployed["spam.openfaas-fn"]; f == nil || f.Inference.SLO != 100*time.Millisecond {
		t.Errorf("deployed %+v", f)
	}
}
