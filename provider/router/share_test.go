package router

import (
	"context"
	"errors"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// fake is a controller without instances.
type fake struct {
	SharedProvider
	fails error
	here  *here
}

func (f *fake) Deploy(context.Context, *provider.Function) (provider.Dispatcher, error) {
	return f.here, f.fails
}

func (f *fake) Remove(context.Context, string) error { return f.fails }

func (f *fake) Describe(string) (keeper.Description, bool) { return keeper.Description{Ready: 3}, true }

// here answers everything.
type here struct{ requests int }

func (h *here) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	h.requests++
	return &frame.Response{Status: 200}, nil
}

// one is a membership of this replica alone.
type one struct{}

func (one) Self() string           { return "self" }
func (one) Leaving() []peer.Member { return nil }
func (one) Members() []peer.Member { return []peer.Member{{ID: "self", URL: "http://127.0.0.1:1"}} }

func TestController(t *testing.T) {
	inner := &fake{here: &here{}}
	c := NewShared(inner, peer.New(peer.Options{Membership: one{}}))
	f := &provider.Function{Name: "f.openfaas-fn", Inference: annotation.Inference{IsInference: true}}
	d, err := c.Deploy(t.Context(), f)
	if err != nil || d == provider.Dispatcher(inner.here) {
		t.Fatalf("%T, %v; want a dispatcher that asks the owner", d, err)
	}
	if _, err := d.Invoke(t.Context(), &frame.Request{}); err != nil || inner.here.requests != 1 {
		t.Errorf("%v, %d requests; the only replica dispatches here", err, inner.here.requests)
	}
	if got, _ := c.Describe(f.Name); got.Ready != 3 {
		t.Errorf("the rest is the controller's own: %+v", got)
	}
	if _, ok := c.Left(f.Name); ok || !c.Owns(f.Name) {
		t.Error("a controller without best effort leaves something, or has another owner")
	}
	if _, err := c.InvokeSpare(f.Name, nil); !errors.Is(err, spare.ErrOccupied) {
		t.Error(err)
	}
	if err := c.Remove(t.Context(), f.Name); err != nil {
		t.Error(err)
	}
	inner.fails = errors.New("no")
	if d, err := c.Deploy(t.Context(), f); !errors.Is(err, inner.fails) || d != nil {
		t.Errorf("a deployment that fails: %v, %v", d, err)
	}
	if err := c.Remove(t.Context(), f.Name); !errors.Is(err, inner.fails) {
		t.Errorf("a removal that fails: %v", err)
	}
}
