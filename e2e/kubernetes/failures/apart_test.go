package failures

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
)

// world has the namespace of a test's functions and the stand-ins of their instances.
type world struct {
	namespace string
	instances *testprovider.StandIns
}

// worlds are those of tests that run in parallel, by test name.
var worlds sync.Map

// where returns a test's world.
func where(t *testing.T) world {
	if w, ok := worlds.Load(t.Name()); ok {
		return w.(world)
	}
	return world{testprovider.Namespace, shared.instances}
}

// testLabel is a label of nodes with the name of their test.
const testLabel = "faas-infer.dev/test"

// label returns a test's name in a form that names of nodes and namespaces allow.
func label(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "#", "-", "_", "-").Replace(t.Name()))
}

// apart lets a test run in parallel to others, in its own world.
func apart(t *testing.T) {
	t.Helper()
	t.Parallel()
	instances, err := testprovider.StartStandIns(func(batch int) time.Duration { return testprovider.Times(modelTime, batch) })
	if err != nil {
		t.Fatal(err)
	}
	w := world{label(t), instances}
	if err := shared.Namespaces(t.Context(), nil, w.namespace); err != nil {
		t.Fatal(err)
	}
	worlds.Store(t.Name(), w)
	// Whoever deploys does not come by the way that the test disturbs.
	r, err := testprovider.Open(t.Context(), testprovider.Options{Config: shared.Config(), Instances: instances, Namespace: w.namespace, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions() {
		if err := r.Deploy(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Crash(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		worlds.Delete(t.Name())
		if err := instances.Close(); err != nil {
			t.Error(err)
		}
	})
}
