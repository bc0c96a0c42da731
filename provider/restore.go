package provider

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/faas-infer/faas-infer/provider/store"
)

// leastRestorers is the minimum number of functions that are restored at a time. A function
// waits for the disk, so there are more than one even on one core.
const leastRestorers = 4

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
// for a stored function, or a change of it, waits until this function is back; lists wait for
// all functions.
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
	s.controller.Restoring(true)
	over := make(chan struct{})
	s.restored = restoration{over}
	r := restorer{Server: s, records: records}
	for _, f := range records {
		r.arrived = append(r.arrived, s.arriving.begin(FullName(f.Deployment.Service, f.Deployment.Namespace)))
	}
	return func(ctx context.Context) {
		defer close(over)
		r.run(ctx)
	}, nil
}

// restorer brings back stored functions.
type restorer struct {
	*Server
	records []store.Function
	// arrived end the arrivals of the records' functions.
	arrived []func()
}

// run brings back the functions, several at a time.
func (r restorer) run(ctx context.Context) {
	next := make(chan int)
	var work sync.WaitGroup
	for range max(leastRestorers, runtime.GOMAXPROCS(0)) {
		work.Go(func() {
			for i := range next {
				r.one(ctx, r.records[i])
				r.arrived[i]()
			}
		})
	}
	for i := range r.records {
		next <- i
	}
	close(next)
	work.Wait()
	if ctx.Err() == nil {
		r.controller.Restoring(false)
	}
}

// one makes one stored function run, unless somebody else has done that meanwhile.
func (r restorer) one(ctx context.Context, record store.Function) {
	a := address{name: record.Deployment.Service, namespace: record.Deployment.Namespace}
	defer r.functionLocks.Lock(a.full())()
	if _, err := r.find(a); err == nil || ctx.Err() != nil {
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
}

// restoration is the restoring of all stored functions. The zero value has ended.
type restoration struct{ over <-chan struct{} }

// ended reports whether all stored functions are back.
func (r restoration) ended() bool {
	select {
	case <-r.over:
		return true
	default:
		return r.over == nil
	}
}

// wait waits until all stored functions are back, or until ctx ends.
func (r restoration) wait(ctx context.Context) error {
	if r.ended() {
		return nil
	}
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
