package plans

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/papers/gillis/member"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Tidy implements [bundles.Cutter]. A function uses the plans of its models as they are now, for its limits
// and its objective; an instance uses the parts that it has loaded. The time of the last use is a directory's
// time of modification. Other providers of this user note their uses in the same directory of parts.
func (c *Cutter) Tidy(now time.Time, functions []store.Function, running []cluster.Instance,
	models func(*provider.Function) ([]control.Model, error)) (removed []string, err error) {
	for _, s := range functions {
		in, err := annotation.Parse(s.Deployment)
		if err != nil || in.Partition == "" {
			continue // This version refuses it, or it is not cut.
		}
		f := &provider.Function{Deployment: s.Deployment, Inference: in}
		if err := c.useAll(now, f, models); unreadable(err) {
			return nil, err // What it uses is not known.
		}
	}
	for _, i := range running {
		if i.Artefact.Plan != "" {
			_ = member.Use(i.Artefact.Model, now) // It has loaded what is damaged now.
		}
	}
	removed, err = c.removeUnused(now.Add(-bundles.UnusedFor))
	parts, failed := member.RemoveUnused(c.models.Prepared, now.Add(-bundles.UnusedFor))
	return append(removed, parts...), errors.Join(err, failed)
}

// unreadable reports whether something is there and cannot be read now.
func unreadable(err error) bool {
	why := new(fs.PathError)
	return errors.As(err, &why) && !errors.Is(err, fs.ErrNotExist)
}

// useAll notes that a function uses its plans, and the parts that are prepared for them.
func (c *Cutter) useAll(now time.Time, f *provider.Function, models func(*provider.Function) ([]control.Model, error)) error {
	all, err := models(f)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := c.use(now, f, m); err != nil {
			return err
		}
	}
	return nil
}

// use is useAll for one model of a function.
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
	c.jobs.Idle(func() { removed, _, err = workdir.Store{Dir: c.dir}.Collect("*", after, -1) })
	for _, dir := range removed {
		c.read.Delete(dir)
	}
	return removed, err
}
