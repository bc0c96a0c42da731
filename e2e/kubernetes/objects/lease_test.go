package objects

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
)

// A leader writes its lease no more often than client-go's own components: 30 times a minute. The
// API server of others must bear it.
func TestWritesOfALease(t *testing.T) {
	t.Parallel() // It uses a lease of its own only.
	if n := client.Renewals(client.DefaultLease); n > 30 {
		t.Errorf("%v writes a minute", n)
	}
	e, err := client.NewElection(client.ElectionOptions{Config: cluster.Config(), Namespace: "openfaas", Name: "counted", Identity: "one", Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	leases := clientOf(t, cluster.Config()).CoordinationV1().Leases("openfaas")
	watch, err := leases.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=counted"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	writes, counted := 0, 15*time.Second
	for end := time.After(counted); end != nil; {
		select {
		case <-watch.ResultChan():
			writes++
		case <-end:
			end = nil
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	perMinute := float64(writes) * time.Minute.Seconds() / counted.Seconds()
	t.Logf("%d writes in %v, %.0f a minute", writes, counted, perMinute)
	// The first write makes the lease, and the interval may begin with one more.
	if writes == 0 || float64(writes) > client.Renewals(client.DefaultLease)*counted.Minutes()+2 {
		t.Errorf("%d writes in %v", writes, counted)
	}
}
