package dispatch

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// A machine goes with all instances of a function on it: to find that out takes a
// request as many tries, none of which was executed. It then waits for a new instance
// as any request does that finds none.
func TestInstancesThatCannotBeReachedDoNotCostTheRequest(t *testing.T) {
	gone := make(chan cluster.InstanceID, 3)
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 50 * time.Millisecond, ColdWait: time.Minute,
		OnLost: func(id cluster.InstanceID, _ error) { gone <- id }})
	for _, id := range []string{"a", "b", "c"} {
		d.Up(instance(id, 4), "unix", t.TempDir()+"/nobody")
	}
	answered := make(chan error, 1)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		answered <- err
	}()
	for range 3 {
		<-gone
	}
	e := newEcho(t, nil)
	d.Up(instance("d", 4), "unix", e.address)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
