package objects

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	events "k8s.io/client-go/tools/record"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
)

// recorder writes decisions about functions and their new problems as Kubernetes events, which kubectl describe
// shows. The library limits their number: 25 for an object at once, then one every five minutes.
type recorder struct{ events events.EventRecorder }

// Start begins to write events until stop is called.
func (r *recorder) Start(client kubernetes.Interface) (stop func()) {
	broadcaster := events.NewBroadcaster()
	watching := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	r.events = broadcaster.NewRecorder(v1alpha1.Scheme, corev1.EventSource{Component: v1alpha1.ManagedBy})
	return func() {
		watching.Stop()
		broadcaster.Shutdown()
	}
}

const (
	// decisionsPause is the least time between two looks at the decisions.
	decisionsPause = time.Second
	// late is the age from which decisions are not written any more: they come from replicas that this one has not
	// known before.
	late = time.Minute
)

// follow writes the decisions about functions as events of their objects, until ctx ends. Those of a time at which this
// replica does not lead are left out, and so are repeated ones and the problems, which Tell writes.
func (r *recorder) follow(ctx context.Context, l *decisions.Log, leading func() bool, find func(full string) (*v1alpha1.Function, bool)) {
	changed := l.Changed()
	for _, next := l.Since(0, "", "", 1); changed != nil; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if !backoff.Wait(ctx, decisionsPause) {
			return
		}
		changed = l.Changed()
		var found []decisions.Decision
		found, next = l.Since(next, "", "", 0)
		for _, d := range found {
			if told := d.Kind == decisions.Problem || d.Kind == decisions.Solved; told || d.Count > 1 || time.Since(d.At.Time) > late || !leading() {
				continue
			}
			kind := corev1.EventTypeNormal
			switch d.Kind {
			case decisions.Exit, decisions.Unhealthy, decisions.Replace, decisions.Reject:
				kind = corev1.EventTypeWarning
			}
			about := d.Members // Instances that functions share have no object of their own.
			if about == nil {
				about = []string{provider.FullName(d.Function, d.Namespace)}
			}
			for _, full := range about {
				if f, ok := find(full); ok {
					r.events.Event(f, kind, strings.ToUpper(string(d.Kind[:1]))+string(d.Kind[1:]), d.Text)
				}
			}
		}
	}
}

// Tell writes an event for each message that is new in a function's conditions. It writes
// none for the condition Ready if problem is "": instances that are still starting are
// not a problem.
func (r *recorder) Tell(f *v1alpha1.Function, now v1alpha1.FunctionStatus, problem string) {
	for _, of := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		was, is := meta.FindStatusCondition(f.Status.Conditions, of), meta.FindStatusCondition(now.Conditions, of)
		if is == nil || is.Message == "" || was != nil && was.Message == is.Message || of == v1alpha1.ConditionReady && problem == "" {
			continue
		}
		r.events.Event(f, corev1.EventTypeWarning, is.Reason, is.Message)
	}
}
