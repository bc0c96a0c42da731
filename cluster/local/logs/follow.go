package logs

import (
	"context"
	"time"
)

const (
	// pollInterval is the time between two polls for new lines.
	pollInterval = 200 * time.Millisecond
	// maxQuiet is how many polls a line without an end may last before it is
	// emitted.
	maxQuiet = 5
	// roundLines is about how many lines are emitted before the next look for new
	// instances.
	roundLines = 10_000
)

// follow emits new lines until ctx ends.
func (r *Reader) follow(ctx context.Context, emit func(Line) error) error {
	ticker := time.Tick(pollInterval)
	for more := false; ; {
		if !more {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker:
			}
		}
		if err := r.discover(); err != nil {
			return err
		}
		var err error
		if more, err = r.merge(ctx, r.cursors, roundLines, emit); err != nil {
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

// discover adds new instances and drops those without any log file.
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

// overdue returns a line that has had no end for maxQuiet polls.
func (c *cursor) overdue() (Line, bool) {
	if c.ready || len(c.splitter.pending) == 0 {
		c.quiet = 0
		return Line{}, false
	}
	if c.quiet++; c.quiet < maxQuiet {
		return Line{}, false
	}
	raw, _ := c.splitter.last()
	c.take(raw)
	c.ready = false
	return c.head, true
}
