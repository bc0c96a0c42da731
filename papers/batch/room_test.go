package batch

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// The tuner chooses a config with room for as many instances as it needs, and another
// one when the room changes. If there is no room at all, it chooses as if there were.
func TestTunerLooksAtRoom(t *testing.T) {
	u := NewTuner(system(t), systems.Function{SLO: 100 * ms, Percentile: 95}, model)
	free := 64_000
	u.Within(func(r cluster.Resources) int {
		if r.GPU > 0 {
			return 0
		}
		return free / r.CPU
	})
	now := time.Unix(1000, 0)
	large, _ := u.Candidates(now, 400)
	if len(large) != 1 || u.Instances() < 1 {
		t.Fatalf("%+v, %d instances", large, u.Instances())
	}
	before := large[0].Config.CPU
	// Others take all but for less than one such instance.
	free = before - 1000
	if same, _ := u.Candidates(now.Add(time.Second), 400); same[0].Config != large[0].Config {
		t.Errorf("%+v at once", same)
	}
	now = now.Add(time.Minute)
	small, _ := u.Candidates(now, 400)
	if got := small[0].Config.CPU; got >= before || u.Instances() > free/got {
		t.Errorf("%d × %+v in %d millicores, before %+v", u.Instances(), small, free, large)
	}
	free = 64_000
	now = now.Add(time.Minute)
	if again, _ := u.Candidates(now, 400); again[0].Config != small[0].Config {
		t.Errorf("%+v, with room again, where %+v is nearly as good as %+v", again, small, large)
	}
	free = 0
	if none, _ := u.Candidates(now.Add(time.Minute), 400); len(none) != 1 || u.Instances() != 0 {
		t.Errorf("%+v, %d instances without any room", none, u.Instances())
	}
}

// A pause of 200 s among even gaps has the moments of a burst. The choice is made for
// the recorded requests, and they meet the objective.
func TestTunerAfterAPause(t *testing.T) {
	model := model
	model.sigma = 0
	f := systems.Function{SLO: 100 * ms, Percentile: 95}
	u, r := NewTuner(system(t), f, model), rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1000, 0)
	for i := range 4000 {
		gap := time.Duration(4+4*r.Float64()) * ms
		if i == 3000 {
			gap = 200 * time.Second
		}
		now = now.Add(gap)
		u.Arrived(now)
	}
	list, _ := u.Candidates(now, 18)
	c := list[0]
	if u.phases != 0 {
		t.Errorf("chosen for %d phases", u.phases)
	}
	record, err := latency.NewTrace(u.arrivals.recorded())
	if err != nil {
		t.Fatal(err)
	}
	var exec []float64
	for _, x := range system(t).Table(f, c.Config, model) {
		exec = append(exec, x.Seconds())
	}
	d, err := record.Replay(c.Config.Batch, c.Timeout.Seconds(), exec, latency.Reality{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.CDF(0.1); got < 0.95 {
		t.Errorf("with %+v, %v of the recorded requests are in time", c, got)
	}
}

// The tuner chooses anew for a model that has become slower, at the same load, but not
// at once.
func TestTunerFollowsTheModel(t *testing.T) {
	times := &changing{shares: model}
	times.sigma = 0
	u := NewTuner(system(t), systems.Function{SLO: 100 * ms, Percentile: 95}, times)
	now := time.Unix(1000, 0)
	before, _ := u.Candidates(now, 400)
	times.work *= 1.08
	if same := u.Begin(now.Add(time.Minute), 400); same != nil {
		t.Error("chosen anew for 8 %")
	}
	times.work *= 1.5
	if soon := u.Begin(now.Add(time.Second), 400); soon != nil {
		t.Error("chosen anew after a second")
	}
	after, _ := u.Candidates(now.Add(2*time.Minute), 400)
	if slices.Equal(before, after) {
		t.Errorf("%+v for a model that has become slower", after)
	}
}

// changing has times that change.
type changing struct{ shares }
