package bundles

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/member"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

// tidyPlans removes the plans and prepared parts that nothing has used for UnusedFor. A function uses
// those of its models as they are now, for its limits and its objective; an instance uses the parts
// that it has loaded. The time of the last use is a directory's time of modification. Other providers
// of this user note their uses in the same directory of parts.
func (r *Registrar) tidyPlans(now time.Time, functions []store.Function, running []cluster.Instance) (removed []string, err error) {
	for _, s := range functions {
		in, err := annotation.Parse(s.Deployment)
		if err != nil || in.Partition == "" {
			continue // This version refuses it, or it is not cut.
		}
		f := &provider.Function{Deployment: s.Deployment, Inference: in}
		if err := r.usePlans(now, f); unreadable(err) {
			return nil, err // What it uses is not known.
		}
	}
	for _, i := range running {
		if i.Artefact.Plan != "" {
			_ = member.Use(i.Artefact.Model, now) // It has loaded what is damaged now.
		}
	}
	removed, err = r.cutter.removeUnused(now.Add(-UnusedFor))
	parts, failed := member.RemoveUnused(r.Children.Prepared, now.Add(-UnusedFor))
	return append(removed, parts...), errors.Join(err, failed)
}

// unreadable reports whether something is there and cannot be read now.
func unreadable(err error) bool {
	why := new(fs.PathError)
	return errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist)
}

// usePlans notes that a function uses its plans, and the parts that are prepared for them.
func (r *Registrar) usePlans(now time.Time, f *provider.Function) error {
	models, err := r.uncut(f)
	if err != nil {
		return err
	}
	for _, m := range models {
		if err := r.cutter.use(now, f, m); err != nil {
			return err
		}
	}
	return nil
}

// use is usePlans for one model of a function.
func (c *Cutter) use(now time.Time, f *provider.Function, m control.Model) error {
	w, err := c.want(f, m)
	if err != nil {
		return err
	}
	plans, _, err := c.plans(w)
	if err != nil {
		return err
	}
	for _, p := range plans {
		if parts := c.models.PreparedAt(p.File); parts != "" {
			_ = member.Use(parts, now) // Damaged parts are prepared again for the next instance.
		}
	}
	if err := os.Chtimes(w.dir, now, now); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeUnused removes the plans that were not used after a time, and what is left of children that
// were killed while they wrote some.
func (c *Cutter) removeUnused(after time.Time) (removed []string, err error) {
	// The names of those that were not finished begin with a dot. They match, too.
	c.jobs.Idle(func() { removed, err = plansIn(c.dir).RemoveUnused("*", after) })
	for _, dir := range removed {
		c.read.Delete(dir)
	}
	return removed, err
}
