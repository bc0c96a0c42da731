package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// wantWords fails the test for every word that a message lacks.
func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	text = strings.ReplaceAll(text, `\"`, `"`) // Some layers quote what the next one quotes again.
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", strings.TrimSpace(text), w)
		}
	}
}

// badDeployments sends deployments that must be refused with 400 and a sentence that names
// the reason. None may leave anything behind.
func (s *stack) badDeployments(t *testing.T) {
	s.badBundles(t)
	good := func(options ...string) types.FunctionDeployment {
		return function("bad", "identity:latest", "1s", options...)
	}
	for name, c := range map[string]struct {
		f     types.FunctionDeployment
		words []string
	}{
		"no SLO":             {types.FunctionDeployment{Service: "bad", Image: "identity:latest"}, []string{"com.openfaas.slo.latency"}},
		"SLO 0":              {function("bad", "identity:latest", "0"), []string{"com.openfaas.slo.latency", `"0"`}},
		"SLO -5ms":           {function("bad", "identity:latest", "-5ms"), []string{"com.openfaas.slo.latency", "-5ms"}},
		"SLO fast":           {function("bad", "identity:latest", "fast"), []string{"com.openfaas.slo.latency", "fast"}},
		"SLO of a year":      {function("bad", "identity:latest", "8760h"), []string{"com.openfaas.slo.latency", "10m"}},
		"max-batch 0":        {good("infer.max-batch", "0"), []string{"com.openfaas.infer.max-batch", "1 to 1024"}},
		"max-batch 10⁹":      {good("infer.max-batch", "1000000000"), []string{"com.openfaas.infer.max-batch", "1 to 1024"}},
		"unknown annotation": {good("infer.maxbatch", "8"), []string{"com.openfaas.infer.maxbatch", "com.openfaas.infer.max-batch"}},
		"missing bundle":     {function("bad", "nowhere:latest", "1s"), []string{"nowhere:latest"}},
		"outside the root":   {function("bad", "../../etc:latest", "1s"), []string{"../../etc"}},
		"missing model":      {good("infer.model", "other.onnx"), []string{"other.onnx"}},
		"truncated model":    {function("bad", "truncated:latest", "1s"), []string{"truncated:latest", "truncated"}},
		"text as a model":    {function("bad", "text:latest", "1s"), []string{"text:latest", "not an ONNX model"}},
		"empty model":        {function("bad", "empty:latest", "1s"), []string{"empty:latest", "not an ONNX model"}},
		"unknown operator":   {function("bad", "unknown:latest", "1s"), []string{"unknown:latest", "Nonsense"}},
	} {
		if onCluster != nil && name == "no SLO" {
			continue // There only nodes look at the images of ordinary functions.
		}
		t.Run(name, func(t *testing.T) {
			status, err := s.faas.Deploy(t.Context(), c.f)
			if err == nil || status != http.StatusBadRequest {
				t.Fatalf("%d, %v", status, err)
			}
			wantWords(t, err.Error(), c.words...)
			if a := do(t, s.http, http.MethodPost, s.through("bad"), []byte("{}")); a.status != http.StatusNotFound {
				t.Errorf("refused, and yet invoked: %d %s", a.status, a.body)
			}
		})
	}
	if status, err := s.faas.Deploy(t.Context(), good()); err != nil {
		t.Fatalf("a good deployment after the bad ones: %d, %v", status, err)
	}
	if err := invokeIdentity(s.http, s.through("bad"), 3); err != nil {
		t.Error(err)
	}
}

// badBundles writes bundles whose models cannot be served.
func (s *stack) badBundles(t *testing.T) {
	t.Helper()
	identity := zooModel(t, "identity")
	mnist := s.bundle(t, "truncated:latest", zooModel(t, "mnist"))
	info, err := os.Stat(mnist)
	if err != nil {
		t.Fatal(err)
	}
	text, empty := s.bundle(t, "text:latest", identity), s.bundle(t, "empty:latest", identity)
	s.bundle(t, "unknown:latest", edited(t, func(g *onnxpb.GraphProto) { g.Node[0].OpType = proto.String("Nonsense") }))
	for _, err := range []error{
		os.Truncate(mnist, info.Size()/2),
		os.WriteFile(text, []byte("This is no model.\n"), 0o644),
		os.Truncate(empty, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if onCluster != nil {
		for image, file := range map[string]string{"truncated:latest": mnist, "text:latest": text, "empty:latest": empty} {
			if err := onCluster.push(filepath.Dir(file), image); err != nil {
				t.Fatal(err)
			}
		}
	}
}
