package infaas

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/store"
)

// makes writes a generated variant a-int8 of a model a.onnx in a bundle into a directory.
func makes(t *testing.T, bundle, dir string) {
	t.Helper()
	const file = "static-0123456789abcdef.onnx"
	err := os.MkdirAll(filepath.Join(dir, Unfinished+"1"), 0o755)
	err = errors.Join(err, os.Rename(commandtest.ZooModel(t, "mnist", 9), filepath.Join(dir, file)))
	var r registration.Registration
	for _, v := range []registration.Registered{{Name: "a", File: filepath.Join(bundle, "a.onnx")}, {Name: "a-int8", File: filepath.Join(dir, file), Generated: true}} {
		hash, wrong := model.ContentHash(v.File)
		err = errors.Join(err, wrong)
		v.Model, v.Hash, v.File, v.LatencyMS, v.RPS, v.LoadMS, v.MemoryMB = "a", hash, filepath.Base(v.File), 1, 1000, 1, 1
		r.Variants = append(r.Variants, v)
	}
	text, wrong := yaml.Marshal(r)
	if err := errors.Join(err, wrong, os.WriteFile(filepath.Join(dir, registration.File), text, 0o644), os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Variants that the provider has made go an hour after the last function or instance that uses them,
// whatever provider looks. Those of another image are not touched.
func TestUnusedVariantsAreRemoved(t *testing.T) {
	v, open := placeOf(t, withModels(t, "models: [{name: a, model: a.onnx}]\n", "mnist", "mnist"))
	bundle, own := filepath.Join(string(v.Bundles), "app", "v1"), filepath.Join(v.State, "variants", "app", "v1")
	below := filepath.Join(own, "other", "latest") // The image app/v1/other.
	instance := cluster.Instance{InstanceSpec: cluster.InstanceSpec{Artefact: cluster.Artefact{Name: "a-int8", Bundle: bundle}}}
	plain := instance
	plain.Artefact.Name = "a"
	running := []cluster.Instance{instance, plain}
	images := []string{"docker.io/app:v1", "app/v1/other:latest", "app:v2", "no image at all"}
	deploy := func() {
		t.Helper()
		b := open()
		v.Used(b)
		models, err := v.Models(b, auto())
		if err != nil || len(models) != 2 || models[1].Name != "a-int8" {
			t.Fatalf("%+v, %v", models, err)
		}
	}
	var now time.Time
	begin := func() {
		t.Helper()
		if err := os.RemoveAll(own); err != nil {
			t.Fatal(err)
		}
		makes(t, bundle, own)
		makes(t, bundle, below)
		now = time.Now()
		v = New(v.Place) // As after a restart.
		deploy()
	}
	after := func(what string, later time.Duration, images []string, running []cluster.Instance, stays bool) {
		t.Helper()
		removed, err := v.Tidy(now.Add(later), images, running)
		_, gone := os.Stat(filepath.Join(own, registration.File))
		if err != nil || (gone == nil) != stays || slices.Contains(removed, own) == stays {
			t.Errorf("%s: %v, removed %q", what, err, removed)
		}
	}
	begin()
	after("its function is there", 50*time.Hour, images, nil, true)
	after("its function has just gone", 50*time.Hour+59*time.Minute, images[1:], nil, true)
	after("an instance has loaded it", 60*time.Hour, images[1:], running, true)
	after("an instance has just ended", 60*time.Hour+59*time.Minute, images[1:], running[1:], true)
	after("nothing uses it", 61*time.Hour+time.Second, images[1:], running[1:], false)
	if got := files(t, own); !slices.Equal(got, []string{"other"}) {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat(filepath.Join(below, registration.File)); err != nil {
		t.Errorf("that of another image: %v", err)
	}
	if _, err := v.Tidy(now.Add(70*time.Hour), nil, nil); err != nil {
		t.Error(err)
	}
	if got := files(t, filepath.Join(v.State, "variants")); len(got) > 0 {
		t.Errorf("left: %q", got)
	}

	begin()
	if err := os.Chtimes(own, now.Add(-9*time.Hour), now.Add(-9*time.Hour)); err != nil {
		t.Fatal(err)
	}
	deploy()
	after("it is being deployed", 59*time.Minute, nil, nil, true)
	lock, err := LockDir(own)
	if err != nil {
		t.Fatal(err)
	}
	after("another process makes some", 9*time.Hour, nil, nil, true)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = v.jobs.Run(ctx, own, "key", func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return nil
		})
	}()
	<-begun
	after("this process makes some", 9*time.Hour, nil, nil, true)
	cancel()
	<-ended
	after("nothing uses it", 9*time.Hour, nil, nil, false)

	begin()
	if err := os.Rename(filepath.Join(bundle, "bundle.yaml"), filepath.Join(bundle, "away")); err != nil {
		t.Fatal(err)
	}
	after("the bundle cannot be read", 9*time.Hour, images, nil, true)
	if err := errors.Join(os.Rename(filepath.Join(bundle, "away"), filepath.Join(bundle, "bundle.yaml")), os.Rename(filepath.Join(bundle, "b.onnx"), filepath.Join(bundle, "a.onnx"))); err != nil {
		t.Fatal(err)
	}
	after("the model has just changed", 9*time.Hour+59*time.Minute, images, nil, true)
	after("an instance has loaded a variant of the earlier model", 20*time.Hour, images, running, true)
	after("the model has changed", 22*time.Hour, images, running[1:], false)

	begin()
	makes(t, bundle, filepath.Join(bundle, registration.Dir))
	after("the user has made variants", 9*time.Hour, images, nil, false)
}

// A provider looks as soon as it starts, with the functions in its store.
func TestTidyingBegins(t *testing.T) {
	v, _ := placeOf(t, withModels(t, "models: [{name: a, model: a.onnx}]\n", "mnist"))
	bundle, old := filepath.Join(string(v.Bundles), "app", "v1"), time.Now().Add(-2*time.Hour)
	kept, gone := filepath.Join(v.State, "variants", "app", "v1"), filepath.Join(v.State, "variants", "app", "v0")
	for _, dir := range []string{kept, gone} {
		makes(t, bundle, dir)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	stored := store.Function{}
	stored.Deployment.Image = "app:v1"
	r := bundles.New(v.Bundles, v.State, v.Children, zerolog.Nop())
	r.BeginTidying(func(string) ([]store.Function, error) { return []store.Function{stored}, nil },
		func(context.Context) ([]cluster.Instance, error) { return nil, nil })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a function: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
