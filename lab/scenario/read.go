package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/testbed"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Bounds of values in a file, wide enough for any sensible scenario.
const (
	maxDuration  = 366 * 24 * time.Hour
	maxStep      = time.Hour
	maxSeed      = 1<<63 - 1
	maxInstances = 1_000_000
)

// reader reads one file.
type reader struct {
	dir       string
	overrides Overrides
	profiles  map[string]*testbed.ReferenceTestbed
	traces    map[string]*arrivals.Trace
	variants  []registration.Placed // The scenario's table of variants, nil if it has none.
	fixed     float64               // See [Function.Fixed].
	apart     bool                  // Each function is a case.
	cold      coldStart
	given     *testbed.ReferenceTestbed // The scenario's profile, nil if it could not be read.
}

// file returns the path of a file that the scenario names.
func (r *reader) file(name string) string {
	if r.dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.dir, name)
}

func (r *reader) scenario(o *fleet.Object) *Scenario {
	o.Need("kind", "cluster", "functions")
	s := &Scenario{
		About:      o.String("about"),
		Kind:       r.kind(o),
		Cluster:    r.cluster(o),
		Duration:   r.duration(o),
		Warmup:     o.Duration("warmup", 0, maxDuration, 0),
		Tick:       o.Duration("tick", time.Millisecond, maxStep, 0),
		Sample:     o.Duration("sample", 0, maxDuration, 0),
		Overhead:   o.Duration("overhead", 0, maxStep, 0),
		ColdWait:   o.Duration("cold_wait", 0, maxStep, 0),
		Fork:       o.Duration("fork", 0, maxStep, 0),
		QueueLimit: o.Int("queue_limit", 1, 1<<30, 0),
		Fluid:      o.Bool("fluid", false),
		Told:       o.Bool("told", false),
		INFaaS:     baselines.INFaaS{Slack: o.Number("slack", 1, 10, 1.05), Lambda: o.Number("lambda", 0, 1e3, 0)},
		Beta:       o.Number("beta", 1e-3, 1e3, capacity.DefaultBeta),
		Seed:       uint64(o.Int("seed", 0, maxSeed, 1)),
		Policies:   r.policies(o),
		Instances:  o.Ints("instances", 1, maxInstances),
	}
	if seed := r.overrides.Seed; seed != nil {
		s.Seed = *seed
	}
	if r.overrides.Fork > 0 {
		s.Fork = r.overrides.Fork
	}
	r.cold = readColdStart(o)
	s.Unpark = r.cold.unpark
	r.given = r.profile(o, "profile", "2080ti")
	r.variants, r.apart, r.fixed = r.tableOf(o), o.Bool("apart", false), o.Number("fixed", 0, 1, 1)
	r.apart = r.apart || s.Kind == Goodput
	r.fits(o, s)
	r.bind(o, s, r.functions(o, s), r.columns(o))
	o.Done()
	return s
}

// duration returns how long to simulate, 0 if neither file nor overrides say.
func (r *reader) duration(o *fleet.Object) time.Duration {
	d := o.Duration("duration", time.Millisecond, maxDuration, 0)
	if r.overrides.Duration != 0 {
		d = r.overrides.Duration
	}
	if d < 0 || d > maxDuration {
		o.Fail("duration", "override %v: it must be from 0 to %v", d, maxDuration)
	}
	return d
}

func (r *reader) kind(o *fleet.Object) Kind {
	kind := Kind(o.String("kind"))
	if !slices.Contains(Kinds(), kind) && o.Has("kind") {
		o.Fail("kind", "%q: it must be one of %v", kind, Kinds())
	}
	return kind
}

func (r *reader) policies(o *fleet.Object) []string {
	names := o.Strings("policies")
	for _, name := range names {
		if _, err := baselines.ByName(name); err != nil {
			o.Fail("policies", "%v", err)
		}
	}
	return names
}

func (r *reader) cluster(o *fleet.Object) fleet.Cluster {
	if name := r.overrides.Cluster; name != "" {
		o.Has("cluster")
		c, err := fleet.Load(name)
		if err != nil {
			o.Fail("cluster", "override: %v", err)
		}
		return c
	}
	if o.IsObject("cluster") {
		inner, _ := o.Object("cluster")
		return fleet.Read(inner)
	}
	name := o.String("cluster")
	if name == "" {
		return fleet.Cluster{}
	}
	if !slices.Contains(fleet.ClusterNames(), name) {
		name = r.file(name)
	}
	c, err := fleet.Load(name)
	if err != nil {
		o.Fail("cluster", "%v", err)
	}
	return c
}

// profile reads the profile that a key names, a file or 2080ti. Without the key it reads
// absent; without either it returns nil.
func (r *reader) profile(o *fleet.Object, key, absent string) *testbed.ReferenceTestbed {
	name := o.String(key)
	if name == "" {
		name = absent
	}
	if name == "2080ti" {
		return testbed.INFlessTestbed()
	}
	if p, ok := r.profiles[name]; ok {
		return p
	}
	text, err := os.ReadFile(r.file(name))
	if err != nil {
		o.Fail(key, "%v: name a file, or 2080ti", err)
		return nil
	}
	p, err := testbed.ParseTestbed(text)
	if err != nil {
		o.Fail(key, "%s: %v", name, err)
		return nil
	}
	if r.profiles == nil {
		r.profiles = map[string]*testbed.ReferenceTestbed{}
	}
	r.profiles[name] = p
	return p
}

// fits checks that a scenario has only keys that its kind allows.
func (r *reader) fits(o *fleet.Object, s *Scenario) {
	switch {
	case s.Kind == Scale && len(s.Instances) == 0:
		o.Fail("instances", "it is missing: say how many instances to place, such as [100, 1000]")
	case s.Kind != Scale && len(s.Instances) > 0:
		o.Fail("instances", "only the kind %s has this key", Scale)
	case s.Kind != Run && s.Kind != ColdStart && s.Kind != Tuning && o.Has("traces"):
		o.Fail("traces", "only the kinds %s, %s and %s have this key", Run, ColdStart, Tuning)
	}
	switch {
	case (s.Kind == Variants || s.Kind == Accuracy) != (r.variants != nil) && o.Has("kind"):
		o.Fail("variants", "the kinds %s and %s need a table of variants, and no other kind has one", Variants, Accuracy)
	case r.overrides.Variants != "" && r.variants == nil:
		o.Fail("", "the variants cannot be overridden: this scenario has no key “variants”")
	}
	if r.overrides.Trace != "" && !o.Has("traces") {
		o.Fail("", "the trace cannot be overridden: this scenario has no key “traces”")
	}
}
