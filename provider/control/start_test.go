package control

import (
	"testing"
	"time"
)

// Requests that come with a deployment wait for the first instances, and no longer than for these: the
// controller ends that once nothing starts and they are answered.
func TestLoadWithADeployment(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "model", within(50*time.Millisecond))
		d := r.functions[full("f")].dispatcher
		if d.Stats().Starting {
			t.Error("it starts before the first request")
		}
		r.answered("f", "model")
		r.until("steady", func() bool { return !d.Stats().Starting })
		r.answered("f", "model")
		if s := d.Stats(); s.Starting || s.InTime != 1 {
			t.Errorf("a request to a steady function: %+v", s)
		}
	})
}
