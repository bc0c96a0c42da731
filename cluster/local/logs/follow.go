package logs

import (
	"context"
	"time"
)

const (
	// look is the time between two looks for new lines.
	look = 200 * time.Millisecond
	// patience is for how many looks a line's end is waited for.
	patience = 5
	// round is about how many lines are emitted before the next look for new
	// instances.
	round = 10_000
)

// follow emits what comes, until ctx ends.
func (r *Reader) follow(ctx context.Context, emit func(Line) error) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for more := false; ; {
		if !more {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
		if err := r.discover(); err != nil {
			return err
		}
		var err error
		if more, err = r.merge(ctx, r.cursors, round, emit); err != nil {
			return err
		}
		if err := r.emitOverdue(emit); err != nil {
			return err
		}
	}
}

func (r *Reader) emitOverdue(emit func(Line) error) error {
	for _, c := range r.cursors {
		line, ok := c.overdue()
		if !ok || line.Time.Before(r.query.Since) {
			continue
		}
		if err := emit(line); err != nil {
			return err
		}
	}
	return nil
}

// discover finds instances that are new, and drops those of which nothing is
// left.
func (r *Reader) discover() error {
	instances, err := r.instances()
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, id := range instances {
		listed[id] = true
		if r.cursors[id] == nil {
			path := r.store.Path(r.query.Function, id)
			r.cursors[id] = &cursor{store: r.store, instance: id, path: path, at: r.store.oldest(path, r.query.Since)}
		}
	}
	for id := range r.cursors {
		if !listed[id] {
			delete(r.cursors, id)
		}
	}
	return nil
}

// overdue returns a line whose end does not come.
func (c *cursor) overdue() (Line, bool) {
	if c.ready || len(c.splitter.pending) == 0 {
		c.quiet = 0
		return Line{}, false
	}
	if c.quiet++; c.quiet < patience {
		return Line{}, false
	}
	raw, _ := c.splitter.last()
	c.take(raw)
	c.ready = false
	return c.head, true
}
