package kubernetes

import (
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/openfaas/faas-provider/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider/objects"
)

// modelWithAnnotations writes a bundle whose manifest has annotations.
func modelWithAnnotations(t *testing.T, dir string) {
	t.Helper()
	m, err := zoo.Make("identity", 1)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = m.WriteFile(filepath.Join(dir, "model.onnx"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, bundle.ManifestFile),
			[]byte("name: m\nengine: onnx\nmodel: model.onnx\nannotations:\n  com.openfaas.slo.latency: 70ms\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A bundle's annotations come out of a registry as they went in. An image without a bundle
// has none, and a missing image is an error.
func TestWhatImagesBringAlong(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host, dir := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	base, folder := filepath.Join(dir, "base.tar"), filepath.Join(dir, "model")
	smallBase(t, base)
	modelWithAnnotations(t, folder)
	for _, args := range [][]string{{"function", folder, "--base", base, "--push", host + "/m:v1"}, {"push", base, host + "/plain:v1"}} {
		if out, err := makeImage(t, args...); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	cached := filepath.Join(dir, "images")
	i := &images{platform: &platform{flags: &providerFlags{}, secrets: objects.NewSecretStore(fake.NewClientset())}, models: &imageModels{root: cached}}
	b, err := i.bundle(t.Context(), types.FunctionDeployment{Image: host + "/m:v1", Namespace: "openfaas-fn"})
	if err != nil || !maps.Equal(b.Annotations, map[string]string{"com.openfaas.slo.latency": "70ms"}) {
		t.Fatalf("%+v, %v", b, err)
	}
	if inside, err := filepath.Rel(cached, b.Dir); err != nil || !filepath.IsLocal(inside) {
		t.Errorf("it is kept in %s", b.Dir)
	}
	if b, err := i.bundle(t.Context(), types.FunctionDeployment{Image: host + "/plain:v1"}); b != nil || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := i.bundle(t.Context(), types.FunctionDeployment{Image: host + "/absent:v1"}); !errors.Is(err, image.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
