package fakecluster

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// Controller is a controller of functions.
type Controller interface {
	provider.Controller
	Run(ctx context.Context)
	Close(ctx context.Context) error
	Describe(name string) (keeper.Description, bool)
}

// Rig runs a controller and sends requests to its functions.
type Rig struct {
	// Dispatchers have a [provider.Dispatcher] by a function's name.
	Dispatchers sync.Map

	stop context.CancelFunc
	ran  chan struct{}
}

// Run begins to run a controller.
func (r *Rig) Run(c Controller) {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.ran = cancel, make(chan struct{})
	go func() {
		defer close(r.ran)
		c.Run(ctx)
	}()
}

// End stops Run without closing the controller, as a crash would.
func (r *Rig) End() {
	r.stop()
	<-r.ran
}

// Close closes the controller and checks that nothing is left.
func (r *Rig) Close(t testing.TB, c Controller, b *Backend) {
	r.End()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if left := b.Living(); len(left) > 0 {
		t.Errorf("%d instances are left", len(left))
	}
	b.Work.Wait()
}

// Full is a function's full name in the default namespace.
func Full(name string) string { return provider.FullName(name, provider.DefaultNamespace) }

// Function is a revision of a function of an image.
func Function(
	name, image string, revision uint64, in annotation.Inference, edit []func(*provider.Function),
) *provider.Function {
	f := &provider.Function{
		Name: Full(name), Revision: revision, CreatedAt: time.Now(), Inference: in,
		Deployment: types.FunctionDeployment{Service: name, Namespace: provider.DefaultNamespace, Image: image},
	}
	for _, e := range edit {
		e(f)
	}
	return f
}

// Deploy deploys a function.
func (r *Rig) Deploy(t testing.TB, c Controller, f *provider.Function) {
	t.Helper()
	d, err := c.Deploy(t.Context(), f)
	if err != nil {
		t.Fatalf("deploy %s: %v", f.Name, err)
	}
	r.Dispatchers.Store(f.Deployment.Service, d)
}

// Describe describes a deployed function.
func Describe(t testing.TB, c Controller, name string) keeper.Description {
	t.Helper()
	d, ok := c.Describe(Full(name))
	if !ok {
		t.Fatalf("%s is not deployed", name)
	}
	return d
}

// Invoke sends a request to a deployed function.
func (r *Rig) Invoke(t testing.TB, name, body string) (string, error) {
	d, _ := r.Dispatchers.Load(name)
	request := &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)}
	got, err := d.(provider.Dispatcher).Invoke(t.Context(), request)
	if err != nil {
		return "", err
	}
	return string(got.Body), nil
}

// Answered invokes and fails the test unless the model or image answers.
func (r *Rig) Answered(t testing.TB, name, by string) {
	t.Helper()
	got, err := r.Invoke(t, name, "x")
	if err != nil || got != by+":x" {
		t.Fatalf("%s answered %q, %v; want it from %s", name, got, err, by)
	}
}

// Until waits, in a bubble's time, for a condition.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for range 6000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// Load sends a request every interval for d and returns how many of them were
// not answered. It waits for all answers.
func (r *Rig) Load(t testing.TB, name string, interval, d time.Duration) (failed int) {
	errs := make(chan error, 1+int(d/interval))
	n := 0
	for began := time.Now(); time.Since(began) < d; time.Sleep(interval) {
		n++
		go func() {
			_, err := r.Invoke(t, name, "x")
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Logf("%s: %v", name, err)
			failed++
		}
	}
	return failed
}

// Only returns the one instance that lives.
func Only(t testing.TB, b *Backend) cluster.Instance {
	t.Helper()
	living := b.Living()
	if len(living) != 1 {
		t.Fatalf("%d instances live, want 1", len(living))
	}
	return living[0]
}
