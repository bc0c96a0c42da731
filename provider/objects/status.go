package objects

import (
	"context"
	"encoding/json"
	"errors"
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

// reportPeriod is the time between two comparisons of functions' status, and therefore
// the shortest time between two writes of one function's status.
const reportPeriod = time.Second

// report writes changed status of functions while this replica leads. When it begins to
// lead, it queues all functions: some may have changed while no replica led.
func (w *watcher) report(ctx context.Context) {
	ticker := time.Tick(reportPeriod)
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
				w.log.Warn().Err(err).Msg("functions' status cannot be written; the provider tries again")
			}
			fails = err != nil
		} else {
			clear(w.scales) // Another replica publishes meanwhile.
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
	}
}

// reportAll writes every changed status and number of pods, and returns one of the errors.
func (w *watcher) reportAll(ctx context.Context) error {
	var writes sync.WaitGroup
	failures := make(chan error, 1)
	tokens := make(chan struct{}, workers)
	all := w.all()
	w.forgetScales(all)
	for _, f := range all {
		problem := w.Problem(provider.FullName(f.Name, f.Namespace))
		was, now, ok := w.statusOf(f, problem)
		if !ok {
			continue
		}
		pods, counted := w.count(f)
		shown := w.scales[f.Namespace+"/"+f.Name]
		due := shown.due(w.now())
		changed := !equality.Semantic.DeepEqual(was, now)
		if !changed && !counted && !due {
			continue
		}
		tokens <- struct{}{}
		writes.Go(func() {
			defer func() { <-tokens }()
			var err error
			if counted || due {
				err = w.publish(ctx, f, shown, pods, counted)
			}
			if changed {
				err = errors.Join(err, w.writeStatus(ctx, f, now, problem))
			}
			if err != nil {
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

// statusOf returns the status in a function's object and the status that it should have.
// It returns false until the spec has been handled.
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
	var rolled provider.RolloutSummary
	if w.Rollout != nil {
		rolled = w.Rollout(provider.FullName(f.Name, f.Namespace))
	}
	now = statusOf(f, came, runs, served, problem, rolled, metav1.NewTime(w.now()))
	if told := f.Status.Deployed; last.of == f.UID && last.what != nil && (told == nil || last.what.Revision >= told.Revision) {
		now.Deployed = last.what
	}
	return f.Status, now, true
}

// writeStatus writes one function's status, and an event for a new problem. It returns nil
// if the function has been deleted or replaced meanwhile.
func (w *watcher) writeStatus(ctx context.Context, f *v1alpha1.Function, now v1alpha1.FunctionStatus, problem string) error {
	// Apply also removes keys that a map does not have any more.
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
