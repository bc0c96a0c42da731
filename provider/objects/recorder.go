package objects

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	events "k8s.io/client-go/tools/record"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// recorder writes new problems of functions as Kubernetes events, which kubectl describe
// shows. The library limits their number.
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
