package kubernetes

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/store"
)

// reading is a latency.Models that needs the models' files.
type reading struct{ here }

func (r reading) Check(_ context.Context, file string, _ func(string) bool) error {
	_, err := os.Stat(file)
	return err
}

func (r reading) Hash(file string) (string, error) {
	return "hash", r.Check(context.Background(), file, nil)
}

func (r reading) Measure(ctx context.Context, file string, n int, until time.Duration) (string, *profiler.Profile, error) {
	if err := r.Check(ctx, file, nil); err != nil {
		return "", nil, err
	}
	return r.here.Measure(ctx, file, n, until)
}

// startedImages are those of a provider that has just started with an empty directory, beside
// a function's object; nil for none.
func startedImages(t *testing.T, object *v1alpha1.Function, shared ...bundles.SharedPlans) *images {
	t.Helper()
	t.Chdir(t.TempDir()) // The flags' own directory is the present one.
	flags, models, sharing := &providerFlags{}, &imageModels{local: reading{}, root: t.TempDir()}, bundles.Sharing{Leads: func() bool { return true }}
	for _, sharing.Plans = range shared {
	}
	cutter := flags.Cutter(sharing, models, zerolog.Nop())
	t.Cleanup(func() {
		if err := cutter.Close(); err != nil {
			t.Error(err)
		}
	})
	return &images{platform: &platform{flags: flags, secrets: objects.NewSecretStore(fake.NewClientset())}, models: models,
		cutter: cutter, function: func(string) (*v1alpha1.Function, bool) { return object, object != nil }}
}

// plans are what replicas share: one text, whatever the model.
type plans string

func (p plans) Plans(string) ([]byte, error) {
	if p == "" {
		return nil, store.ErrAbsent
	}
	return []byte(p), nil
}

func (plans) PutPlans(string, []byte) error { return nil }

func (plans) KeepPlans([]string, time.Time) error { return nil }

// twoParts is a plan for a model with the hash of [reading.Hash] on two members.
const twoParts = plans(`[{"name": "parts-2", "plan": {"model": "hash", "members": 2, "rounds": [{"first": 0, "end": 2, "cut": "2x1", "on": [0, 1]}]},
	"profile": {"parts": 2, "memory": 1073741824, "measurements": [{"batch": 1, "threads": 2, "median_us": 1000, "p95_us": 1000, "cpu_us": 2000, "predicted": true}]}}]`)

// asked counts the questions to registries that need credentials.
type asked int

func (a *asked) Resolve(authn.Resource) (authn.Authenticator, error) {
	*a++
	return authn.Anonymous, nil
}

// A provider that starts on another machine while no registry answers knows the ways to cut the
// models that it served before, and plans nothing again. The whole model is left out if no
// instance can hold it, and only if that is not known is the registry asked.
func TestCutModelsAreOffTheRegistry(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	host, dir := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	base, folder := filepath.Join(dir, "base.tar"), filepath.Join(dir, "model")
	smallBase(t, base)
	modelWithAnnotations(t, folder)
	if out, err := makeImage(t, "function", folder, "--base", base, "--push", host+"/m:v1"); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	f := &provider.Function{Name: "m.openfaas-fn", Revision: 7, Deployment: types.FunctionDeployment{Service: "m", Namespace: "openfaas-fn", Image: host + "/m:v1"}}
	f.Inference.Partition, f.Inference.SLO, f.Inference.MaxBatch = annotation.PartitionAuto, time.Second, 1
	before := startedImages(t, nil, plans(""))
	reference, models, err := before.Models(t.Context(), f)
	if err != nil || len(models) != 1 {
		t.Fatalf("%+v, %v", models, err)
	}
	inside, err := before.models.Prepare(t.Context(), models[0].File)
	resolved := before.resolved(f.Name, f.Revision)
	if err != nil || resolved == nil || resolved.Models[0].Weights <= 0 {
		t.Fatalf("the status gets %+v, %v", resolved, err)
	}
	s.Close()

	object := &v1alpha1.Function{Status: v1alpha1.FunctionStatus{Deployed: &v1alpha1.Deployed{Revision: 7, Spec: v1alpha1.DeployedSpec{Resolved: resolved}}}}
	i := startedImages(t, object, twoParts)
	again, known, err := i.Models(t.Context(), f)
	if err != nil || again != reference || len(known) != 2 || known[0].Plan != nil || known[1].Plan == nil || known[1].Name != "parts-2" {
		t.Fatalf("without a registry: %q, %+v, %v", again, known, err)
	}
	if got, err := i.models.Prepare(t.Context(), known[1].File); got != inside || err != nil {
		t.Errorf("members get %q, not %q: %v", got, inside, err)
	}
	if err := i.Improve(t.Context(), f); err != nil {
		t.Errorf("it plans anew: %v", err)
	}
	if got := i.resolved(f.Name, f.Revision); !reflect.DeepEqual(got, resolved) {
		t.Errorf("the status gets %+v, not %+v", got, resolved)
	}
	f.Inference.Limits.Memory = resolved.Models[0].Weights - 1
	if _, known, err := startedImages(t, object, twoParts).Models(t.Context(), f); err != nil || len(known) != 1 || known[0].Plan == nil {
		t.Errorf("too large to be whole: %+v, %v", known, err)
	}
	if _, known, err := startedImages(t, object, plans("")).Models(t.Context(), f); err == nil {
		t.Errorf("too large, and without a plan: %+v", known)
	}
	f.Inference.Limits.Memory, resolved.Models[0].Weights = 200<<20, 100<<20
	i = startedImages(t, object, plans(""))
	asks := new(asked)
	i.own = asks
	if _, known, err := i.Models(t.Context(), f); err == nil || *asks != 1 {
		t.Errorf("loads with luck only, and without a plan: %+v, %v; the registry is asked %d times", known, err, *asks)
	}
	object.Status.Deployed.Spec.Resolved.Models[0].Weights = 0
	if _, known, err := startedImages(t, object, twoParts).Models(t.Context(), f); err == nil {
		t.Errorf("its weights are not known: %+v", known)
	}
}

// A provider that starts while no registry answers knows the models of the functions that it
// served before, by their status. It fetches a model only to measure it.
func TestRegistryIsOffTheStartPath(t *testing.T) {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(handler)
	host, dir := strings.TrimPrefix(s.URL, "http://"), t.TempDir()
	base, folder := filepath.Join(dir, "base.tar"), filepath.Join(dir, "model")
	smallBase(t, base)
	modelWithAnnotations(t, folder)
	if out, err := makeImage(t, "function", folder, "--base", base, "--push", host+"/m:v1"); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	f := &provider.Function{Name: "m.openfaas-fn", Revision: 7, Deployment: types.FunctionDeployment{Service: "m", Namespace: "openfaas-fn", Image: host + "/m:v1"}}
	before := startedImages(t, nil)
	reference, models, err := before.Models(t.Context(), f)
	if err != nil || len(models) != 1 {
		t.Fatalf("%v, %v", models, err)
	}
	inside, err := before.models.Prepare(t.Context(), models[0].File)
	if err != nil {
		t.Fatal(err)
	}
	resolved := before.resolved(f.Name, f.Revision)
	if resolved == nil || before.resolved(f.Name, 8) != nil {
		t.Fatalf("the status gets %+v", resolved)
	}
	s.Close()

	object := &v1alpha1.Function{Status: v1alpha1.FunctionStatus{Deployed: &v1alpha1.Deployed{Revision: 7, Spec: v1alpha1.DeployedSpec{Resolved: resolved}}}}
	i := startedImages(t, object)
	again, known, err := i.Models(t.Context(), f)
	if err != nil || again != reference || len(known) != 1 {
		t.Fatalf("without a registry: %q, %+v, %v", again, known, err)
	}
	file := known[0].File
	// The directories differ, and only a model whose bundle is read is known to take no texts.
	known[0].File, known[0].Counter = models[0].File, nil
	if !reflect.DeepEqual(known, models) {
		t.Errorf("%+v, not %+v", known, models)
	}
	if got, err := i.models.Prepare(t.Context(), file); got != inside || err != nil {
		t.Errorf("instances get %q, not %q: %v", got, inside, err)
	}
	if got, err := i.models.Hash(file); got != "hash" || err != nil {
		t.Errorf("its hash is %q, %v", got, err)
	}
	if err := i.models.Check(t.Context(), file, func(hash string) bool { return hash == "hash" }); err != nil {
		t.Error(err)
	}
	if got := i.resolved(f.Name, f.Revision); !reflect.DeepEqual(got, resolved) {
		t.Errorf("the status gets %+v, not %+v", got, resolved)
	}
	if _, _, err := i.models.Measure(t.Context(), file, 1, 0); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is measured without its file: %v", err)
	}

	// The status is not believed if it is about something else.
	for what, edit := range map[string]func(*v1alpha1.Deployed){
		"another revision": func(d *v1alpha1.Deployed) { d.Revision = 8 },
		"nothing known":    func(d *v1alpha1.Deployed) { d.Spec.Resolved = nil },
		"another image": func(d *v1alpha1.Deployed) {
			d.Spec.Resolved.Reference = strings.Replace(reference, "/m@", "/other@", 1)
		},
		"another digest":      func(d *v1alpha1.Deployed) { d.Spec.Resolved.Digest = "sha256:" + strings.Repeat("0", 64) },
		"a file elsewhere":    func(d *v1alpha1.Deployed) { d.Spec.Resolved.Models[0].File = "../../etc/passwd" },
		"a directory with @":  func(d *v1alpha1.Deployed) { d.Spec.Resolved.Directory = "/bundle@sha256:1" },
		"no model":            func(d *v1alpha1.Deployed) { d.Spec.Resolved.Models = nil },
		"a model with a gap":  func(d *v1alpha1.Deployed) { d.Spec.Resolved.Models[0].Hash = "" },
		"a relative location": func(d *v1alpha1.Deployed) { d.Spec.Resolved.Directory = "bundle" },
	} {
		edited := object.DeepCopy()
		edit(edited.Status.Deployed)
		if _, _, err := startedImages(t, edited).Models(t.Context(), f); err == nil {
			t.Errorf("%s is believed", what)
		}
	}
}

// The file of a model whose times have to be found is fetched when the registry answers.
func TestModelsAreFetchedToBeMeasured(t *testing.T) {
	var fetched int
	file := filepath.Join(t.TempDir(), "model.onnx")
	m := &imageModels{local: reading{}}
	m.keep(file, origin{inside: "/bundle/model.onnx@sha256:1", hash: "hash", fetch: func(context.Context) error {
		fetched++
		return os.WriteFile(file, nil, 0o600)
	}})
	for range 2 {
		if inside, _, err := m.Measure(t.Context(), file, 1, 0); inside != "/bundle/model.onnx@sha256:1" || err != nil {
			t.Errorf("%q, %v", inside, err)
		}
	}
	if fetched != 1 {
		t.Errorf("fetched %d times", fetched)
	}
}
