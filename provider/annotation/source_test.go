package annotation

import (
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

// A model's URI is accepted as the model, and a wrong one is refused with a sentence that shows no credential.
func TestModelSource(t *testing.T) {
	of := func(uri string, more ...string) types.FunctionDeployment {
		all := map[string]string{SLOLatency: "50ms", InferModel: uri}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return types.FunctionDeployment{Service: "f", Image: "any", Annotations: &all}
	}
	const uri = "s3://models/m.onnx?endpoint=https://minio.example.com"
	if in, err := Parse(of(uri)); err != nil || in.Source != uri || in.Model != "" {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err := Parse(of("dir/model.onnx")); err != nil || in.Source != "" || in.Model != "dir/model.onnx" {
		t.Errorf("%+v, %v", in, err)
	}
	for text, part := range map[string]string{
		"ftp://x/m.onnx":                         "begin with https://",
		"https://x/?token=hush":                  "must name a file",
		"https://me:hush@x.example.com/m.onnx":   "secret",
		"https://x.example.com/m.onnx#sha256=ab": "64 hexadecimal",
	} {
		_, err := Parse(of(text))
		if err == nil || !strings.Contains(err.Error(), part) || !strings.HasPrefix(err.Error(), InferModel) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", text, err)
		}
	}
	ordinary := types.FunctionDeployment{Service: "f", Image: "any", Annotations: &map[string]string{InferModel: uri}}
	if _, err := Parse(ordinary); err == nil || !strings.Contains(err.Error(), SLOLatency) {
		t.Error(err)
	}
}
