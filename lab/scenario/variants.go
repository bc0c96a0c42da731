package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/lab/variants"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/scaling/systems"
	"github.com/faas-infer/faas-infer/variant"
)

// tableOf reads the table of variants that the key "variants" names; nil if there is none.
func (r *reader) tableOf(o *fleet.Object) []registration.Placed {
	name := o.String("variants")
	switch {
	case name == "":
		return nil
	case r.overrides.Variants != "":
		name = r.overrides.Variants
	case !slices.Contains(variants.Tables(), name):
		name = r.file(name)
	}
	rows, err := openTable(name)
	if err != nil {
		o.Fail("variants", "%v", err)
		return nil
	}
	for _, row := range rows {
		if bad := fleet.IsDevice(row.Hardware); bad != "" {
			o.Fail("variants", "%s of %s has the hardware %q: %s", row.Name, row.Model, row.Hardware, bad)
		}
	}
	return rows
}

// openTable reads a built-in table or a file.
func openTable(name string) ([]registration.Placed, error) {
	if slices.Contains(variants.Tables(), name) {
		return variants.Table(name)
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no table %q: name a file, or one of %v", name, variants.Tables())
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := infaas.ReadVariants(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// chosen reads what a function says of its variants.
func (r *reader) chosen(o *fleet.Object, s *Scenario, f *Function) {
	accuracy, hardware, models := o.Number("accuracy", 0, 100, 0), o.Strings("hardware"), o.Strings("models")
	if models == nil {
		models = []string{f.Model}
	}
	if f.Spread, f.Fixed = o.Number("spread", 0, 2, 0), r.fixed; o.Has("prefer") {
		prefer := o.String("prefer")
		if f.Accurate = prefer == "accuracy"; !f.Accurate && prefer != "cost" {
			o.Fail("prefer", "%q: it must be cost or accuracy", prefer)
		}
	}
	for _, row := range r.variants {
		if slices.Contains(models, row.Model) && row.Accuracy >= accuracy && s.Cluster.Of(row.Hardware) != nil && (hardware == nil || slices.Contains(hardware, row.Hardware)) {
			f.Variants = append(f.Variants, row.Variant)
		}
	}
	if len(f.Variants) == 0 {
		o.Fail("model", "no variant of %s is accurate enough and has its hardware in the cluster: use another table or accuracy", strings.Join(models, " or "))
		return
	}
	if times := o.Number("slo_of_cpu", 0.1, 100, 0); times > 0 {
		f.SLO = timesCPU(times, f.Variants)
	}
	if f.SLO == 0 {
		o.Need("slo")
	}
	f.Start = f.Variants[0].Load
	f.Pinned = r.pinned(o, f)
}

// timesCPU is a multiple of the time of the fastest CPU variant, 0 without one.
func timesCPU(times float64, all []variant.Variant) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, v := range all {
		if v.Hardware == fleet.CPU {
			least = min(least, v.Latency)
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return time.Duration(times * float64(least))
}

// pinned reads the developer's choices: by system, a variant's name or hardware, and a number of
// instances.
func (r *reader) pinned(o *fleet.Object, f *Function) map[string]systems.Pin {
	inner, ok := o.Object("pinned")
	if !ok {
		return nil
	}
	pins := map[string]systems.Pin{}
	for _, name := range baselines.ForVariants() {
		one, ok := inner.Object(name)
		if !ok {
			continue
		}
		pin := systems.Pin{Variant: one.String("variant"), Instances: one.Int("instances", 1, maxInstances, 0)}
		hardware := one.String("hardware")
		one.Done()
		fits := slices.DeleteFunc(slices.Clone(f.Variants), func(v variant.Variant) bool {
			return pin.Variant != "" && v.Name != pin.Variant || hardware != "" && v.Hardware != hardware
		})
		if len(fits) == 0 {
			one.Fail("", "%s has no such variant", f.Model)
			continue
		}
		pin.Variant = slices.MinFunc(fits, func(a, b variant.Variant) int {
			return cmp.Or(cmp.Compare(max(a.Latency, f.SLO), max(b.Latency, f.SLO)), cmp.Compare(a.PerRequest(), b.PerRequest()), cmp.Compare(a.Name, b.Name))
		}).Name
		pins[name] = pin
	}
	inner.Done()
	return pins
}

// loads returns what the function's instances may load under a system.
func (s *Scenario) loads(f *Function, system systems.System) *systems.Variants {
	if f.Variants == nil {
		return nil
	}
	all := &systems.Variants{Pinned: maps.Clone(f.Pinned)}
	for _, v := range f.Variants {
		t := &variantTimes{spread: f.Spread, fixed: f.Fixed, times: map[cluster.Config]time.Duration{}}
		m := s.Cluster.Of(v.Hardware)
		if m != nil && m.Serial && !baselines.Colocates(system) {
			t.divide(&v, m)
		} else {
			t.add(&v, v.Cost, 0)
		}
		all.All = append(all.All, systems.Variant{Name: v.Name, Times: t, Loading: v.Load, Accuracy: v.Accuracy})
	}
	return all
}

// variantTimes are the times of a variant. An instance executes rps·latency requests at once, 12
// for the GPU's of INFaaS' Table 2. fixed is the part of a batch's time that does not depend on
// how full it is.
type variantTimes struct {
	fixed   float64
	configs []cluster.Config
	times   map[cluster.Config]time.Duration
	spread  float64
}

// shares are the parts of a device's time that instances may have of their own.
var shares = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1}

// divide adds the variant's configs with a share of the device's time each, which makes batches as
// much longer.
func (t *variantTimes) divide(v *variant.Variant, m *fleet.Machines) {
	for _, share := range shares {
		t.add(v, v.Cost+fleet.TimeWeight*share*m.Price, share)
	}
}

// add adds a config at a price with a share of the device's time, 0 for no share of its own.
func (t *variantTimes) add(v *variant.Variant, price, share float64) {
	batch := max(1, math.Round(v.RPS*v.Latency.Seconds()))
	exec := batch / v.RPS
	if share > 0 {
		exec /= share
	}
	c := cluster.Config{Batch: int(batch), Resources: fleet.Share(v.Hardware, price, share)}
	t.configs = append(t.configs, c)
	t.times[c] = time.Duration(math.Round(exec * float64(time.Second)))
}

// Configs implements [systems.Times].
func (t *variantTimes) Configs() []cluster.Config { return t.configs }

// Exec implements [systems.Times].
func (t *variantTimes) Exec(c cluster.Config, b int) (time.Duration, bool) {
	exec, ok := t.times[c]
	part := t.fixed + (1-t.fixed)*float64(b)/float64(c.Batch)
	return time.Duration(math.Round(part * float64(exec))), ok && b >= 1 && b <= c.Batch
}

// Spread implements [systems.Times].
func (t *variantTimes) Spread() float64 { return t.spread }
