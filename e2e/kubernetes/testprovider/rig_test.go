package testprovider

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// On a real API server, a rig serves requests and keeps the requested number of instances.
// The next rig takes over the instances of one that crashed.
func TestRig(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Define(ctx, filepath.Join("..", "..", "..", "yaml", "crd.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := c.AddNodes(ctx, 3, "4", "16Gi", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces(ctx, nil, Namespace); err != nil {
		t.Fatal(err)
	}
	instances, err := StartStandIns(func(batch int) time.Duration { return Times(5*time.Millisecond, batch) })
	if err != nil {
		t.Fatal(err)
	}
	defer instances.Close()
	open := func() *Rig {
		r, err := Open(ctx, Options{Config: c.Config(), Instances: instances, Logger: zerolog.New(zerolog.NewTestWriter(t))})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Deploy(ctx, Function{Name: "a", SLO: 5 * time.Second, Exec: 5 * time.Millisecond, Min: 2}); err != nil {
			t.Fatal(err)
		}
		r.Run()
		for r.Ready("a") != 2 {
			if ctx.Err() != nil {
				out, _ := c.Kubectl(context.Background(), "", "get", "pods", "-A", "-o", "wide")
				t.Fatalf("%d instances, want 2\n%s", r.Ready("a"), out)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := r.Invoke(ctx, "a", "hello"); err != nil {
			t.Error(err)
		}
		return r
	}
	first := open()
	before, err := first.Backend.Instances(ctx)
	if err != nil || len(before) != 2 {
		t.Fatalf("%v, %v", before, err)
	}
	if err := first.Crash(); err != nil {
		t.Fatal(err)
	}
	second := open()
	after, err := second.Backend.Instances(ctx)
	if err != nil || len(after) != 2 || after[0].ID != before[0].ID || after[1].ID != before[1].ID {
		t.Errorf("%v, %v; want the instances of before, %v", after, err, before)
	}
	if err := second.Close(ctx); err != nil {
		t.Error(err)
	}
}
