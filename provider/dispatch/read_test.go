package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// Reading into the same Stats again leaves nothing of the earlier reading.
func TestReadOverwrites(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: time.Second})
	s := Stats{Arrivals: 7, Cold: 7, Waiting: 7, Instances: map[cluster.InstanceID]time.Time{"never": time.Now()}}
	for _, step := range []struct {
		do   func()
		want []cluster.InstanceID
	}{
		{func() {}, nil},
		{func() { d.Up(instance("a", 1), "unix", "nowhere"); d.Up(instance("b", 1), "unix", "nowhere") }, []cluster.InstanceID{"a", "b"}},
		{func() { d.Forget("a") }, []cluster.InstanceID{"b"}},
		{func() { d.Forget("b") }, nil},
	} {
		step.do()
		d.Read(&s)
		if got := slices.Sorted(maps.Keys(s.Instances)); !slices.Equal(got, step.want) || s.Arrivals != 0 || s.Cold != 0 || s.Waiting != 0 {
			t.Errorf("read %+v, want the instances %v and no request", s, step.want)
		}
		if fresh := d.Stats(); !maps.Equal(fresh.Instances, s.Instances) {
			t.Errorf("read %v, and there are %v", s.Instances, fresh.Instances)
		}
	}
}
