package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// reportPeriod is the time between two looks at what is to be told of functions, and
// so the least between two writes of one's status.
const reportPeriod = time.Second

// report writes, while this replica leads, the status of the functions where it has
// changed. When it begins to lead, it looks at all functions: some may have been
// changed while nobody led.
func (w *watcher) report(ctx context.Context) {
	ticker := time.NewTicker(reportPeriod)
	defer ticker.Stop()
	led, fails := false, false
	for {
		leads := w.Leading()
		if leads && !led {
			for _, f := range w.all() {
				w.enqueue(f)
			}
		}
		if led = leads; leads {
			err := w.reportAll(ctx)
			if err != nil && !fails && ctx.Err() == nil {
				w.log.Warn().Err(err).Msg("functions' status cannot be written; it is tried again")
			}
			fails = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reportAll writes what has changed, and returns the first error.
func (w *watcher) reportAll(ctx context.Context) error {
	var writes sync.WaitGroup
	failures := make(chan error, 1)
	tokens := make(chan struct{}, workers)
	for _, f := range w.all() {
		problem := w.Problem(provider.FullName(f.Name, f.Namespace))
		was, now, ok := w.statusOf(f, problem)
		if !ok || equality.Semantic.DeepEqual(was, now) {
			continue
		}
		tokens <- struct{}{}
		writes.Go(func() {
			defer func() { <-tokens }()
			if err := w.writeStatus(ctx, f, now, problem); err != nil {
				select {
				case failures <- err:
				default: // One is enough.
				}
			}
		})
	}
	writes.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// statusOf is what a function's object says and what it is to say; false as long as
// its spec has not been looked at.
func (w *watcher) statusOf(f *v1alpha1.Function, problem string) (was, now v1alpha1.FunctionStatus, ok bool) {
	w.mu.Lock()
	key := f.Namespace + "/" + f.Name
	came, known := w.outcomes[key]
	last := w.latest[key]
	w.mu.Unlock()
	if !known || f.DeletionTimestamp != nil {
		return was, now, false
	}
	runs, served := w.Status(provider.FullName(f.Name, f.Namespace))
	now = statusOf(f, came, runs, served, problem, metav1.NewTime(w.now()))
	if told := f.Status.Deployed; last.of == f.UID && last.what != nil && (told == nil || last.what.Revision >= told.Revision) {
		now.Deployed = last.what
	}
	return f.Status, now, true
}

// writeStatus writes one function's status, and says in an event what has become
// wrong with it. One that is gone or another by now is no error.
func (w *watcher) writeStatus(ctx context.Context, f *v1alpha1.Function, now v1alpha1.FunctionStatus, problem string) error {
	// Applied, so that what a map does not have any more goes.
	text, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": f.Name, "namespace": f.Namespace, "uid": f.UID}, "status": now})
	if err != nil {
		return fmt.Errorf("function %s.%s: %w", f.Name, f.Namespace, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	force := true
	_, err = w.typed.Functions(f.Namespace).Patch(ctx, f.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: managerLeader, Force: &force}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("function %s.%s: %w", f.Name, f.Namespace, err)
	}
	w.recorder.Tell(f, now, problem)
	return nil
}
