// Package migrate moves functions from faas-netes to faas-infer, and back. It reads what
// faas-netes has left in a cluster: its Deployments, and the Function objects of group
// openfaas.com. [Plan] decides what to do with each and is pure. [Mover] reads, and carries
// a plan out. The package starts no instances: the provider does, for the Function objects that
// the mover creates. Begin reading at [Plan] and [Mover.Import].
//
// Nothing of faas-netes is deleted. Its Deployment serves until the new function's instances are
// ready. Then it is scaled to 0 and gets a label with the number of pods that it had, by which
// [Mover.Undo] finds it.
package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// The marks of a move.
const (
	// RetiredLabel is on a Deployment of faas-netes that has been replaced. Its value is the
	// number of pods that it had.
	RetiredLabel = "faas-infer.dev/retired"
	// ImportedAnnotation is on a Function object that Import has written: a [mark] as JSON.
	ImportedAnnotation = "faas-infer.dev/imported"
)

// Source says where a function's description comes from.
type Source string

// The sources.
const (
	FromDeployment Source = "Deployment"
	FromObject     Source = "openfaas.com Function"
)

// Origin is one function of faas-netes.
type Origin struct {
	Namespace, Name string
	Source          Source
	Spec            v1alpha1.FunctionSpec
	// Lost lists what faas-infer has no field for, each as a phrase.
	Lost []string
	// Err is why the function cannot be imported at all, nil if it can.
	Err error
	// Deployment runs it, nil if nothing does.
	Deployment *appsv1.Deployment
}

// pods returns how many pods the origin's Deployment has or, if it is retired, had. retired
// reports whether it is.
func (o Origin) pods() (n int32, retired bool) {
	if o.Deployment == nil {
		return 0, false
	}
	if had, ok := retiredPods(o.Deployment); ok {
		return had, true
	}
	return replicasOf(o.Deployment), false
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// mark says what an import has written, for its undoing.
type mark struct {
	// Hash is that of the spec that the import wrote. Another one means that the function has
	// been changed since.
	Hash string `json:"hash"`
	// Before is the spec that the import replaced, without Instances, nil if it created the function.
	Before *v1alpha1.FunctionSpec `json:"before,omitempty"`
}

// readMark returns the mark of a Function object; false if an import has not written it.
func readMark(f *v1alpha1.Function) (m mark, ok bool) {
	text := f.Annotations[ImportedAnnotation]
	return m, text != "" && json.Unmarshal([]byte(text), &m) == nil
}

func (m mark) String() string {
	text, _ := json.Marshal(m) // Strings and maps of strings cannot fail.
	return string(text)
}

// hash identifies a spec but for Replicas and Instances, which the scale route and load change.
func hash(s v1alpha1.FunctionSpec) string {
	s.Replicas, s.Instances = nil, nil
	text, _ := json.Marshal(v1alpha1.SpecOf(s.Deployment("", "")))
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// unchanged reports whether an object is still the function that a plan has seen: the same object, with the
// same spec but for the numbers of instances, and the same mark.
func unchanged(now, planned *v1alpha1.Function) bool {
	return now.UID == planned.UID && hash(now.Spec) == hash(planned.Spec) && now.Annotations[ImportedAnnotation] == planned.Annotations[ImportedAnnotation]
}

// State is what a namespace has.
type State struct {
	Origins []Origin
	// Functions are faas-infer's Function objects by namespace and name.
	Functions map[types.NamespacedName]*v1alpha1.Function
}
