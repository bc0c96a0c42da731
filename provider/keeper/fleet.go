package keeper

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// The errors of all controllers.
var (
	// ErrAbsent is returned for a function that is not deployed.
	ErrAbsent = errors.New("no such function")
	// ErrClosed is returned once a controller is closed.
	ErrClosed = errors.New("the provider is stopping")
)

// Dispatcher sends a function's requests to its instances.
type Dispatcher interface {
	// Drain gives an instance nothing new, and returns when nothing of it is in
	// flight, or with ctx's error.
	Drain(ctx context.Context, id cluster.InstanceID) error
	// Forget drops an instance that is gone, and tells whether it ever answered.
	Forget(id cluster.InstanceID) (served bool)
	// SetProblem says what requests without an instance are told, and whether they
	// are refused at once.
	SetProblem(reason string, refuse bool)
	// Close refuses all requests.
	Close()
}

// Service is what answers a function's requests.
type Service struct {
	Dispatcher Dispatcher
	Metrics    *metrics.FunctionMetrics
	// Failures are those of its instances in a row.
	Failures Failures
	// Unplaced is why there are too few instances, "" if there are not.
	Unplaced string

	notice Notice
}

// Tell lets the dispatcher know what to answer where there is no instance.
func (s *Service) Tell(now time.Time) {
	if s.Failures.Why != "" {
		s.Announce(s.Failures.Why, s.Failures.Hopeless(now))
		return
	}
	s.Announce(s.Unplaced, false)
}

// Announce is Tell for what the failures do not tell.
func (s *Service) Announce(problem string, refuse bool) {
	s.notice.Tell(s.Dispatcher, problem, refuse)
}

// Fleet is the instances of one function. A controller's own type of function embeds it.
type Fleet[I Instance] struct {
	Service
	Instances map[cluster.InstanceID]I

	// order is what Sorted returns, nil when it has to be made anew: hundreds of
	// instances are looked at ten times a second, and seldom change.
	order []I
	// shown and held are what the metrics hold.
	shown    map[string]int
	held     cluster.Resources
	recorded bool
}

// NewFleet returns one without instances.
func NewFleet[I Instance](d Dispatcher, m *metrics.FunctionMetrics) Fleet[I] {
	return Fleet[I]{Service: Service{Dispatcher: d, Metrics: m}, Instances: map[cluster.InstanceID]I{}}
}

// Sorted lists the instances by ID. It must not be changed.
func (f *Fleet[I]) Sorted() []I {
	if f.order == nil && len(f.Instances) > 0 {
		f.order = slices.SortedFunc(maps.Values(f.Instances), func(a, b I) int { return cmp.Compare(a.kept().ID, b.kept().ID) })
	}
	return f.order
}

// Notice is what a dispatcher was told of a function without ready instances.
type Notice struct {
	problem string
	refuse  bool
}

// Tell lets a dispatcher know what to answer where there is no instance, if that is new.
func (n *Notice) Tell(d Dispatcher, problem string, refuse bool) {
	if now := (Notice{problem, refuse}); now != *n {
		*n = now
		d.SetProblem(problem, refuse)
	}
}

// Description is all that there is to say of a function.
type Description struct {
	// Instances are those that exist and are to stay; Ready counts those that
	// serve.
	Instances []cluster.Instance
	Ready     int
	// Cold counts the requests that found no ready instance.
	Cold uint64
	// Wanted is the number of instances that there are to be, even without load.
	Wanted uint64
	// Measured says that a model's times are known, measured or predicted.
	Measured bool
	// Crash is why its instances do not live, Unplaced why it has too few; ""
	// where there is nothing to say.
	Crash, Unplaced string
	// Problem is why the function, or the latest deployment of it, cannot be
	// served as it should, "" if it can.
	Problem string
}

// Describe tells what runs, and why there is no more.
func (f *Fleet[I]) Describe() Description {
	d := Description{Crash: f.Failures.Why, Unplaced: f.Unplaced}
	for _, in := range f.Sorted() {
		k := in.kept()
		if k.Retiring {
			continue
		}
		d.Instances = append(d.Instances, k.Instance)
		if k.State == cluster.Ready {
			d.Ready++
		}
	}
	return d
}

// Usage is what the instances use, by the latest reading.
func (f *Fleet[I]) Usage() (sum cluster.Resources) {
	for _, in := range f.Instances {
		sum = sum.Add(in.kept().Usage)
	}
	return sum
}

// Record shows in the metrics what has changed since it was last shown: what the
// instances hold, and how many serve with each label. Of several replicas of the
// provider only one shows it (show), or all would be counted several times.
func (f *Fleet[I]) Record(show bool, label func(I) (config string, serves bool)) (changed bool) {
	if len(f.Instances) == 0 && f.held == (cluster.Resources{}) && f.recorded {
		return false
	}
	counts := map[string]int{}
	for config := range f.shown {
		counts[config] = 0
	}
	var held cluster.Resources
	for _, in := range f.Instances {
		if !show {
			break
		}
		held = held.Add(in.Holds())
		if config, serves := label(in); serves {
			counts[config]++
		}
	}
	if held != f.held || !f.recorded {
		f.held, f.recorded = held, true
		f.Metrics.SetAllocated(held)
	}
	if len(f.Instances) == 0 || !show {
		f.Metrics.SetUsed(cluster.Resources{})
	}
	for config, n := range counts {
		if n != f.shown[config] {
			f.Metrics.SetInstances(config, n)
		}
		if n == 0 {
			delete(counts, config)
		}
	}
	changed = !maps.Equal(counts, f.shown)
	f.shown = counts
	return changed
}

// Unrecord has Record show everything again.
func (f *Fleet[I]) Unrecord() { f.recorded = false }

// Hide takes the instances out of the metrics: the function was removed.
func (f *Fleet[I]) Hide() {
	for config := range f.shown {
		f.Metrics.SetInstances(config, 0)
	}
}

// ScaleSettings is what a deployment of an ordinary function asks of scaling.
func ScaleSettings(in annotation.Inference) replica.Settings {
	s := replica.Settings{Min: in.MinReplicas, Max: in.MaxReplicas, Target: in.ScaleTarget,
		Zero: in.ScaleZero, ZeroAfter: cmp.Or(in.ZeroDuration, annotation.DefaultZeroDuration)}
	if in.ScaleType == annotation.TypeCapacity {
		s.Type = replica.ByCapacity
	}
	return s
}
