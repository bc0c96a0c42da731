package failures

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/lab/kubernetes"
)

// world is where a test's functions are, and what answers for their instances.
type world struct {
	namespace string
	instances *kubernetes.StandIns
}

// worlds are of tests that run beside others, by their names.
var worlds sync.Map

// where is a test's.
func where(t *testing.T) world {
	if w, ok := worlds.Load(t.Name()); ok {
		return w.(world)
	}
	return world{kubernetes.Namespace, shared.instances}
}

// testLabel is on nodes, and says which test's they are.
const testLabel = "faas-infer.dev/test"

// label is a test's name as names of nodes and namespaces can be.
func label(t *testing.T) string {
	return strings.ToLower(strings.NewReplacer("/", "-", "#", "-", "_", "-").Replace(t.Name()))
}

// apart has a test run beside others, in a world of its own.
func apart(t *testing.T) {
	t.Helper()
	t.Parallel()
	instances, err := kubernetes.StartStandIns(func(batch int) time.Duration { return kubernetes.Times(modelTime, batch) })
	if err != nil {
		t.Fatal(err)
	}
	w := world{label(t), instances}
	if err := shared.Namespaces(t.Context(), nil, w.namespace); err != nil {
		t.Fatal(err)
	}
	worlds.Store(t.Name(), w)
	// Whoever deploys does not come by the way that the test disturbs.
	r, err := kubernetes.OpenRig(t.Context(), kubernetes.RigOptions{Config: shared.Config(), Instances: instances, Namespace: w.namespace, Logger: zerolog.Nop()})
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
