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
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// Errors that all controllers return.
var (
	// ErrAbsent is returned for a function that is not deployed.
	ErrAbsent = errors.New("no such function")
	// ErrClosed is returned once a controller is closed.
	ErrClosed = errors.New("the provider is stopping")
)

// Dispatcher sends a function's requests to its instances.
type Dispatcher interface {
	// Drain sends an instance nothing new. It returns when the instance has no
	// request in flight, or with ctx's error.
	Drain(ctx context.Context, id cluster.InstanceID) error
	// Forget drops an instance that exited, and reports whether it ever answered.
	Forget(id cluster.InstanceID) (served bool)
	// SetProblem sets the answer to requests without a ready instance, and whether they
	// get it at once instead of waiting.
	SetProblem(reason string, refuse bool)
	// Close refuses all requests.
	Close()
}

// Service holds what a fleet knows besides its instances: how requests reach them, and why
// there are too few.
type Service struct {
	Dispatcher Dispatcher
	Metrics    *metrics.FunctionMetrics
	// Failures counts failures of its instances in a row.
	Failures Failures
	// Unplaced is why there are too few instances, "" if there are enough.
	Unplaced string
	// Problems follows what is wrong with the function, for the log of decisions.
	Problems decisions.Problems

	notice notice
	// hidden: the function was removed. Metrics with its name are no longer its own.
	hidden bool
}

func (s *Service) service() *Service { return s }

// Tell passes the failures, otherwise Unplaced, to the dispatcher as the answer to requests
// without a ready instance.
func (s *Service) Tell(now time.Time) {
	if s.Failures.Why != "" {
		s.Announce(s.Failures.Why, s.Failures.Hopeless(now))
		return
	}
	s.Announce(s.Unplaced, false)
}

// Announce is Tell for any other problem. It tells the dispatcher nothing twice.
func (s *Service) Announce(problem string, refuse bool) {
	if now := (notice{problem, refuse}); now != s.notice {
		s.notice = now
		s.Dispatcher.SetProblem(problem, refuse)
	}
}

// Fleet holds the instances of one function. A controller's type of function embeds it.
type Fleet[I Instance] struct {
	Service
	Instances map[cluster.InstanceID]I

	// order is Sorted's result, nil when it must be made again. Controllers look at
	// hundreds of instances ten times a second, and they seldom change.
	order []I
	// shown counts the serving instances by label, held sums up their resources; both as
	// the metrics show them. recorded: the metrics show held.
	shown    map[string]int
	held     cluster.Resources
	recorded bool
}

// NewFleet returns a fleet without instances.
func NewFleet[I Instance](d Dispatcher, m *metrics.FunctionMetrics) Fleet[I] {
	return Fleet[I]{Service: Service{Dispatcher: d, Metrics: m}, Instances: map[cluster.InstanceID]I{}}
}

// Sorted lists the instances by ID. The caller must not change the list.
func (f *Fleet[I]) Sorted() []I {
	if f.order == nil && len(f.Instances) > 0 {
		f.order = slices.SortedFunc(maps.Values(f.Instances), func(a, b I) int { return cmp.Compare(a.kept().ID, b.kept().ID) })
	}
	return f.order
}

// notice is the problem that was last passed to a dispatcher.
type notice struct {
	problem string
	refuse  bool
}

// Description is the state of a function.
type Description struct {
	// Instances are those that are not being retired; Ready counts those that are
	// ready.
	Instances []cluster.Instance
	Ready     int
	// Cold counts the requests that found no ready instance.
	Cold uint64
	// Waiting is the number of requests that no instance has yet, of an ordinary function.
	Waiting int
	// Revision is the revision of an ordinary function that answers, 0 if none does.
	Revision uint64
	// Wanted is the number of instances that the function should have, even without load.
	Wanted uint64
	// Measured: the model's times are known, measured or predicted.
	Measured bool
	// Crash is why its instances exit, Unplaced why it has too few; both are "" if
	// there is no such problem.
	Crash, Unplaced string
	// Problem is why the function or its latest deployment is not served as it
	// should be, "" if there is no problem.
	Problem string
}

// Describe returns the instances that stay, and why there are no more.
func (f *Fleet[I]) Describe() Description {
	d := Description{Crash: f.Failures.Why, Unplaced: f.Unplaced}
	for _, in := range f.Sorted() {
		k := in.kept()
		if k.Retiring {
			continue
		}
		d.Instances = append(d.Instances, k.Instance)
		if k.There() {
			d.Ready++
		}
	}
	return d
}

// Usage sums up what the instances use, by the latest reading.
func (f *Fleet[I]) Usage() (sum cluster.Resources) {
	for _, in := range f.Instances {
		sum = sum.Add(in.kept().Usage)
	}
	return sum
}

// Record updates the metrics that have changed: the resources that the instances hold, and
// how many serve with each label. It reports whether a number of instances has changed. Of
// several replicas of the provider only one must set show, or instances would be counted
// several times.
func (f *Fleet[I]) Record(show bool, label func(I) (config string, serves bool)) (changed bool) {
	if len(f.Instances) == 0 && f.held == (cluster.Resources{}) && f.recorded {
		return false
	}
	counts := map[string]int{}
	for config := range f.shown {
		counts[config] = 0
	}
	var sum cluster.Sum
	for _, in := range f.Instances {
		if !show {
			break
		}
		sum.Hold(in.kept().Node, in.Holds())
		if config, serves := label(in); serves {
			counts[config]++
		}
	}
	if held := sum.Resources; held != f.held || !f.recorded {
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

// Unrecord makes the next Record update the metrics even if nothing has changed.
func (f *Fleet[I]) Unrecord() { f.recorded = false }

// Hide takes the instances of a removed function out of the metrics.
func (f *Fleet[I]) Hide() {
	f.hidden = true
	for config := range f.shown {
		f.Metrics.SetInstances(config, 0)
	}
}

// ScaleSettings returns the scaling settings of an ordinary function's deployment.
func ScaleSettings(in annotation.Inference) replica.Settings {
	s := replica.Settings{Min: in.MinReplicas, Max: in.MaxReplicas, Target: in.ScaleTarget,
		Zero: in.ScaleZero, ZeroAfter: cmp.Or(in.ZeroDuration, annotation.DefaultZeroDuration)}
	if in.ScaleType == annotation.TypeCapacity {
		s.Type = replica.ByCapacity
	}
	return s
}
