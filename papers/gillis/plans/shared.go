package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

const (
	// followPause is the time between two looks whether the leader has made plans. After followFor
	// a replica makes them itself.
	followPause = time.Second
	followFor   = 10 * time.Minute
)

// follow gets a model's plans from the leader, and waits until it has made them if it will. It reports
// false if this replica has to make them.
func (c *Cutter) follow(ctx context.Context, w wanted, will bool) bool {
	for waited := time.Duration(0); c.shared.Plans != nil; waited += followPause {
		if c.adopt(w) {
			return true
		}
		if !will || c.shared.Leads() || waited >= followFor || !backoff.Wait(ctx, followPause) {
			return false
		}
	}
	return false
}

// known returns a model's plans as plans does, with those that replicas share: after a restart on another
// machine there are no others.
func (c *Cutter) known(w wanted) (all []control.Model, made bool, err error) {
	if all, made, err = c.plans(w); made || err != nil || c.shared.Plans == nil || !c.adopt(w) {
		return all, made, err
	}
	return c.plans(w)
}

// adopt writes the shared plans of a model as if they were made here, and reports whether there are
// any.
func (c *Cutter) adopt(w wanted) bool {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	if _, made, err := c.plans(w); made && err == nil { // Another function of the same model has.
		return true
	}
	text, err := c.shared.Plans.Plans(w.shared)
	if errors.Is(err, store.ErrAbsent) {
		return false
	}
	var all []*partition.Served
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for _, s := range all {
		if s == nil || s.Name != filepath.Base(s.Name) {
			err = errors.Join(err, errors.New("a plan has no valid name"))
			continue
		}
		s.Source = w.File
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(c.dir, 0o700), os.RemoveAll(w.dir)) // What is there is damaged.
	}
	if err == nil {
		err = Write(w.dir, all)
	}
	made := false
	if err == nil {
		_, made, err = c.plans(w)
	}
	if err != nil {
		c.log.Warn().Err(err).Msg("cannot use the plan of another replica for cutting a model")
	}
	return made && err == nil
}

// publish shares a model's plans, unless they are shared.
func (c *Cutter) publish(w wanted) {
	if c.shared.Plans == nil {
		return
	}
	if _, err := c.shared.Plans.Plans(w.shared); err == nil {
		return
	}
	if err := c.share(w); err != nil {
		c.log.Warn().Err(err).Msg("the plan for cutting a model is not shared with other replicas")
	}
}

func (c *Cutter) share(w wanted) error {
	read, err := c.readDir(w)
	if err != nil {
		return err
	}
	var all []*partition.Served
	for _, file := range read.files {
		s, err := readServed(file, w.content) // As it was made.
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return c.shared.Plans.PutPlans(w.shared, text)
}

// uses are the plans of a function at its latest deployment.
type uses struct{ dirs, shared []string }

// note remembers what plans a function uses.
func (c *Cutter) note(f *provider.Function, all []wanted) {
	var u uses
	for _, w := range all {
		u.dirs, u.shared = append(u.dirs, w.dir), append(u.shared, w.shared)
	}
	c.used.Store(f.Name, u)
}

// BeginTidying removes plans that no function has used for bundles.UnusedFor until Close.
// functions lists the stored functions. It is for providers whose instances do not load what was
// prepared from plans.
func (c *Cutter) BeginTidying(functions func(namespace string) ([]store.Function, error)) {
	c.Begin(func(ctx context.Context) {
		bundles.TidyEvery(ctx, c.log, func() ([]string, error) {
			stored, err := functions("")
			if err != nil {
				return nil, err
			}
			return c.tidy(time.Now(), stored)
		})
	})
}

// tidy removes nothing as long as it is not known what a stored function uses, as after a restart.
func (c *Cutter) tidy(now time.Time, functions []store.Function) (removed []string, err error) {
	var shared, names []string
	for _, s := range functions {
		name := provider.FullName(s.Deployment.Service, s.Deployment.Namespace)
		found, known := c.used.Load(name)
		if !known {
			if in, err := annotation.Parse(s.Deployment); err == nil && in.Partition != "" {
				return nil, nil
			}
			continue
		}
		names = append(names, name)
		for _, dir := range found.(uses).dirs {
			_ = os.Chtimes(dir, now, now) // It may not be made yet.
		}
		shared = append(shared, found.(uses).shared...)
	}
	c.used.Range(func(name, _ any) bool {
		if !slices.Contains(names, name.(string)) {
			c.used.Delete(name)
		}
		return true
	})
	before := now.Add(-bundles.UnusedFor)
	removed, err = c.removeUnused(before)
	if c.shared.Plans != nil && c.shared.Leads() {
		if failed := c.shared.Plans.KeepPlans(shared, before); failed != nil {
			err = errors.Join(err, fmt.Errorf("plans that are shared by replicas: %w", failed))
		}
	}
	return removed, err
}
