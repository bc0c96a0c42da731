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

// recorder says as Kubernetes events on functions what has become wrong with them:
// kubectl describe shows them. The library keeps their number low.
type recorder struct{ events events.EventRecorder }

// Start begins to write events; what it returns ends it.
func (r *recorder) Start(client kubernetes.Interface) (stop func()) {
	broadcaster := events.NewBroadcaster()
	watching := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	r.events = broadcaster.NewRecorder(v1alpha1.Scheme, corev1.EventSource{Component: v1alpha1.ManagedBy})
	return func() {
		watching.Stop()
		broadcaster.Shutdown()
	}
}

// Tell compares what an object has said with what it says now; problem is why the
// function is not served as it should be, which instances that are on their way are
// not.
func (r *recorder) Tell(f *v1alpha1.Function, now v1alpha1.FunctionStatus, problem string) {
	for _, of := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		was, is := meta.FindStatusCondition(f.Status.Conditions, of), meta.FindStatusCondition(now.Conditions, of)
		if is == nil || is.Message == "" || was != nil && was.Message == is.Message || of == v1alpha1.ConditionReady && problem == "" {
			continue
		}
		r.events.Event(f, corev1.EventTypeWarning, is.Reason, is.Message)
	}
}
