package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/provider/store"
)

const (
	// leastRestorers is the minimum number of functions that are restored at a time. A
	// function waits for the disk, so there are more than one even on one core.
	leastRestorers = 4
	// slowRestore is how long a function may take to come back before others take its place
	// among those, and the provider counts as restored without it: a registry or a network
	// disk may not answer for hours.
	slowRestore = 10 * time.Second
	// listPatience is how long after the beginning of the restoring lists wait for its end.
	listPatience = 3 * time.Second
)

// Restore brings back the functions in the store after a restart, and returns when all of
// them run or are known not to. See BeginRestore.
func (s *Server) Restore(ctx context.Context) error {
	restore, err := s.BeginRestore()
	if err != nil {
		return err
	}
	restore(ctx)
	return nil
}

// BeginRestore reads the functions in the store after a restart. It fails only if it cannot
// read or write the store. Call it once, before the handler serves, and then restore, which
// brings the functions back, several at a time. Meanwhile the handler may serve: a request
// for a stored function, or a change of it, waits until this function is back, within limits.
// Lists wait for listPatience, and then show the functions that are not back yet with that as
// their problem.
//
// A function that cannot run any more stays listed, and its invocations answer with the
// reason. If ctx ends, the functions that are not back yet are left out.
func (s *Server) BeginRestore() (restore func(ctx context.Context), err error) {
	records, err := s.store.Functions("")
	if err != nil {
		return nil, fmt.Errorf("restoring functions: %w", err)
	}
	if err := s.namespaces.restore(records); err != nil {
		return nil, err
	}
	over := make(chan struct{})
	s.restored = &restoration{over: over, began: time.Now(), missing: map[string]*deployed{}}
	r := restorer{Server: s, records: records, over: over}
	for _, record := range records {
		f, _ := restored(record) // Deploying it reports the error.
		r.arrived = append(r.arrived, s.arriving.begin(f.Name, f.Inference.SLO))
		s.restored.missing[f.Name] = s.deployed(f, broken{f.Name, errMissing})
	}
	s.controller.Restoring(s.restored.isMissing)
	return r.run, nil
}

// restorer brings back stored functions.
type restorer struct {
	*Server
	records []store.Function
	// arrived end the arrivals of the records' functions.
	arrived []func()
	// over is [restoration.over].
	over chan struct{}
}

// run brings back the functions, several at a time. It returns when it has tried all.
func (r restorer) run(ctx context.Context) {
	places := make(chan struct{}, max(leastRestorers, runtime.GOMAXPROCS(0)))
	var work sync.WaitGroup
	for i, record := range r.records {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			r.arrived[i]()
			continue
		}
		work.Go(func() {
			leave := sync.OnceFunc(func() { <-places })
			defer leave()
			defer time.AfterFunc(slowRestore, func() {
				r.log.Warn().Str("function", record.Deployment.Service+"."+record.Deployment.Namespace).Msg("a function takes long to be restored; the provider goes on without it until it is back")
				leave()
			}).Stop()
			r.one(ctx, record)
			r.arrived[i]()
		})
	}
	for range cap(places) { // All are back, or take long.
		places <- struct{}{}
	}
	close(r.over)
	work.Wait()
	if ctx.Err() == nil {
		resumeFetching(r.Server)
	}
}

// one makes one stored function run, unless somebody else has done that meanwhile.
func (r restorer) one(ctx context.Context, record store.Function) {
	a := address{name: record.Deployment.Service, namespace: record.Deployment.Namespace}
	defer r.functionLocks.Lock(a.full())()
	if ctx.Err() != nil {
		return
	}
	if _, err := r.find(a); err == nil {
		r.restored.back(a.full())
		return
	}
	f, dispatcher, err := r.deployOrFallBack(ctx, record)
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		r.log.Error().Err(err).Str("function", f.Name).Bool("as_before", f.Revision != record.Revision).Msg("a function could not be restored")
	}
	r.publish(r.deployed(f, dispatcher))
	r.restored.back(a.full())
}

// errMissing is the problem of a stored function that is not back yet.
var errMissing = errors.New("it is being restored after a restart of the provider")

// restoration is the restoring of all stored functions. A nil one has ended.
type restoration struct {
	// over is closed when every function is back or takes longer than slowRestore.
	over  <-chan struct{}
	began time.Time

	mu sync.Mutex
	// missing has the functions that are not back yet, by full name, as they are shown.
	missing map[string]*deployed
}

// back notes that a function is published.
func (r *restoration) back(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, name)
}

// find returns a function that is not back yet, nil if there is none with this full name.
func (r *restoration) find(name string) *deployed {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing[name]
}

func (r *restoration) isMissing(name string) bool {
	if name == "" {
		return len(r.in("")) > 0
	}
	return r.find(name) != nil
}

// in returns the functions of a namespace, "" for all, that are not back yet, in any order.
func (r *restoration) in(namespace string) []*deployed {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*deployed
	for d := range maps.Values(r.missing) {
		if namespace == "" || d.Deployment.Namespace == namespace {
			out = append(out, d)
		}
	}
	return out
}

// with returns the functions of a namespace, sorted by name: those that are there, and those
// that are not back yet.
func (r *restoration) with(namespace string, sorted func() *listing) []*deployed {
	missing := r.in(namespace) // First: one that comes back meanwhile is in both, not in none.
	there := sorted().byNamespace[namespace]
	if len(missing) == 0 {
		return there
	}
	all := slices.Clone(there)
	for _, d := range missing {
		if i, found := slices.BinarySearchFunc(all, d, byService); !found {
			all = slices.Insert(all, i, d)
		}
	}
	return all
}

// ended reports whether all stored functions are back, or take long.
func (r *restoration) ended() bool {
	if r == nil {
		return true
	}
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// wait waits until all stored functions are back, until listPatience after the restoring
// began, or until ctx ends. Only the last is an error.
func (r *restoration) wait(ctx context.Context) error {
	if r.ended() {
		return nil
	}
	late := time.After(time.Until(r.began.Add(listPatience)))
	select {
	case <-r.over:
	case <-late:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
