package logs

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Query selects lines of a function's instances.
type Query struct {
	// Function is the function's directory. Instance selects one instance, "" all.
	Function, Instance string
	// Since leaves out older lines.
	Since time.Time
	// Tail is how many of the existing lines are wanted: the last ones of all
	// instances together. If it is not above 0, all are.
	Tail int
	// Follow continues with new lines, including those of new instances.
	Follow bool
}

// Reader answers one query. It reads files of any size piece by piece and keeps none
// open.
type Reader struct {
	store   *Store
	query   Query
	cursors map[string]*cursor
}

// Reader returns a reader for q. A function without logs is not an error.
func (s *Store) Reader(q Query) (*Reader, error) {
	if name := q.Function; name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("logs: function %.80q: it must be a function's name", name)
	}
	return &Reader{store: s, query: q, cursors: map[string]*cursor{}}, nil
}

// Run passes lines to emit: first the existing ones, the oldest first over all
// instances, then, if the query follows, new ones until ctx ends. Lines of one
// instance keep their order whatever their times are. Run stops at an error of emit
// and returns it. The end of ctx is not an error.
func (r *Reader) Run(ctx context.Context, emit func(Line) error) error {
	err := r.past(ctx, emit)
	if err == nil && r.query.Follow {
		err = r.follow(ctx, emit)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Stream runs r in the background and sends what as makes of its lines, until the lines or ctx end.
// size items may wait for their receiver; beyond that, r waits. failed gets an error of r.
func Stream[T any](ctx context.Context, r *Reader, size int, as func(Line) T, failed func(error)) <-chan T {
	items := make(chan T, size)
	go func() {
		defer close(items)
		err := r.Run(ctx, func(l Line) error {
			select {
			case items <- as(l):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			failed(err)
		}
	}()
	return items
}

// past emits the existing lines.
func (r *Reader) past(ctx context.Context, emit func(Line) error) error {
	starts, err := r.starts()
	if err != nil {
		return err
	}
	skip := 0
	if r.query.Tail > 0 {
		// Counting first reads everything twice, but needs no memory.
		count := 0
		if _, err := r.merge(ctx, r.open(starts), math.MaxInt, func(Line) error { count++; return nil }); err != nil {
			return err
		}
		skip = max(0, count-r.query.Tail)
	}
	r.cursors = r.open(starts)
	_, err = r.merge(ctx, r.cursors, math.MaxInt, func(l Line) error {
		if skip > 0 {
			skip--
			return nil
		}
		return emit(l)
	})
	return err
}

// starts returns where to begin with each instance.
func (r *Reader) starts() (map[string]position, error) {
	instances, err := r.instances()
	if err != nil {
		return nil, err
	}
	starts := map[string]position{}
	for _, id := range instances {
		path := r.store.Path(r.query.Function, id)
		starts[id] = r.store.oldest(path, r.query.Since)
		if r.query.Tail <= 0 {
			continue
		}
		last, err := r.store.lastLines(path, r.query.Tail)
		if err != nil {
			return nil, err
		}
		if last.after(starts[id]) {
			starts[id] = last
		}
	}
	return starts, nil
}

// instances lists the instances that the query selects and that have logs.
func (r *Reader) instances() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.store.Dir, r.query.Function))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var ids []string
	for _, entry := range entries {
		id, _, ok := strings.Cut(entry.Name(), suffix)
		if ok && entry.Type().IsRegular() && (r.query.Instance == "" || r.query.Instance == id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func (r *Reader) open(starts map[string]position) map[string]*cursor {
	cursors := map[string]*cursor{}
	for id, at := range starts {
		cursors[id] = &cursor{store: r.store, instance: id, path: r.store.Path(r.query.Function, id), at: at}
	}
	return cursors
}

// merge emits the lines of all cursors, each up to the present end of its log, but at
// most limit lines. more reports that it stopped before the end.
func (r *Reader) merge(ctx context.Context, cursors map[string]*cursor, limit int, emit func(Line) error) (more bool, err error) {
	var queue byTime
	for _, c := range cursors {
		if c.ready { // The previous round stopped before this line.
			queue = append(queue, c)
		} else if queue, err = r.enqueue(queue, c); err != nil {
			return false, err
		}
	}
	heap.Init(&queue)
	for ; len(queue) > 0; limit-- {
		if limit <= 0 || ctx.Err() != nil {
			return true, ctx.Err()
		}
		c := queue[0]
		if !c.head.Time.Before(r.query.Since) {
			if err := emit(c.head); err != nil {
				return false, err
			}
		}
		if err := c.advance(!r.query.Follow); err != nil {
			return false, fmt.Errorf("read log: %w", err)
		}
		if c.ready {
			heap.Fix(&queue, 0)
		} else {
			heap.Pop(&queue)
		}
	}
	return false, nil
}

// enqueue advances a cursor and adds it if it has a line.
func (r *Reader) enqueue(queue byTime, c *cursor) (byTime, error) {
	if err := c.advance(!r.query.Follow); err != nil {
		return queue, fmt.Errorf("read log: %w", err)
	}
	if c.ready {
		queue = append(queue, c)
	}
	return queue, nil
}

// byTime is a heap of cursors; the one with the oldest line is first.
type byTime []*cursor

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	return cmp.Or(h[i].key.Compare(h[j].key), strings.Compare(h[i].instance, h[j].instance)) < 0
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface. Nothing calls it.
func (h *byTime) Push(x any) { *h = append(*h, x.(*cursor)) }

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
