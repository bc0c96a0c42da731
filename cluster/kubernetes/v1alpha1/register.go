package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme makes a scheme know the API.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Function{}, &FunctionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyObject implements [runtime.Object].
func (f *Function) DeepCopyObject() runtime.Object { return f.DeepCopy() }

// DeepCopyObject implements [runtime.Object].
func (l *FunctionList) DeepCopyObject() runtime.Object {
	out := &FunctionList{TypeMeta: l.TypeMeta, Items: make([]Function, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return out
}

// DeepCopy returns a function that shares nothing with f.
func (f *Function) DeepCopy() *Function {
	out := &Function{TypeMeta: f.TypeMeta, Spec: f.Spec.DeepCopy(), Status: f.Status}
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(f.Status.Conditions)
	if f.Status.Deployed != nil {
		out.Status.Deployed = &Deployed{Revision: f.Status.Deployed.Revision, Spec: f.Status.Deployed.Spec.DeepCopy()}
	}
	return out
}

// DeepCopy returns a spec that shares nothing with s.
func (s FunctionSpec) DeepCopy() FunctionSpec {
	s.Environment, s.Labels, s.Annotations = maps.Clone(s.Environment), maps.Clone(s.Labels), maps.Clone(s.Annotations)
	s.Constraints, s.Secrets = slices.Clone(s.Constraints), slices.Clone(s.Secrets)
	s.Limits, s.Requests, s.Replicas = copied(s.Limits), copied(s.Requests), copied(s.Replicas)
	return s
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
