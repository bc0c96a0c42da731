package podspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
)

// asShadow makes a plan that of a shadow.
func asShadow(s *cluster.InstanceSpec) {
	s.ID, s.Role, s.Part, s.Body = "mnist-5", cluster.Shadow, "0:18,20:22", "mnist-0011223344ff"
}

// The pods of a pair say who is whose, by which another provider finds the pair again, and have labels that no
// other pod can have.
func TestPairs(t *testing.T) {
	for role, edit := range map[string]func(*cluster.InstanceSpec){
		"":       func(*cluster.InstanceSpec) {},
		"body":   func(s *cluster.InstanceSpec) { s.Paired = true },
		"shadow": asShadow,
	} {
		p := plan()
		p.Owner.Spec.Labels = map[string]string{v1alpha1.PairLabel: v1alpha1.PairBody, v1alpha1.BodyLabel: "x"}
		p.Spec.Env = map[string]string{BodyVariable: "no"}
		edit(&p.Spec)
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, has := pod.Labels[v1alpha1.PairLabel]; got != role || has != (role != "") || pod.Labels[v1alpha1.BodyLabel] != string(p.Spec.Body) {
			t.Errorf("%q: the labels %v", role, pod.Labels)
		}
		c := pod.Spec.Containers[0]
		isBody := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == BodyVariable && e.Value == "1" })
		takes := slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == RelayPort })
		if isBody != (role == "body") || takes != (role == "shadow") {
			t.Errorf("%q: the environment %v and ports %v", role, c.Env, c.Ports)
		}
		if in, err := ReadModel(Trim(pod)); err != nil || !reflect.DeepEqual(in.InstanceSpec, p.Spec) {
			t.Errorf("%q: read %+v, %v", role, in, err)
		}
	}
	for want, change := range map[string]func(*cluster.InstanceSpec){
		`role is "ghost"`:        func(s *cluster.InstanceSpec) { s.Role = "ghost" },
		`part is "" and body "`:  func(s *cluster.InstanceSpec) { asShadow(s); s.Part = "" },
		`body "": a shadow has`:  func(s *cluster.InstanceSpec) { asShadow(s); s.Body = "" },
		"paired true: a shadow":  func(s *cluster.InstanceSpec) { asShadow(s); s.Paired = true },
		"only a shadow has them": func(s *cluster.InstanceSpec) { s.Body = "other" },
	} {
		p := plan()
		change(&p.Spec)
		pod, err := Model(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadModel(pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if BodyVariable != pair.BodyEnv {
		t.Errorf("pods have %s, and instances look for %s", BodyVariable, pair.BodyEnv)
	}
	if RelayPort != pair.RelayPort {
		t.Errorf("pods have port %d, and shadows listen at %d", RelayPort, pair.RelayPort)
	}
}
