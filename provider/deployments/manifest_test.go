package deployments

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

func manifestFunction(edit func(*provider.Function)) *provider.Function {
	f := &provider.Function{Name: "figlet.fns", Revision: 7, Deployment: types.FunctionDeployment{Service: "figlet", Namespace: "fns", Image: "x:1",
		Labels: &map[string]string{"team": "blue", "faas_function": "mine", "faas-infer.dev/instance": "mine", "com.openfaas.scale.max": "3"}}}
	edit(f)
	return f
}

func made(t *testing.T, f *provider.Function) *Manifest {
	t.Helper()
	m, err := NewManifest(f, ManifestSettings{PullPolicy: corev1.PullAlways})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestObjects(t *testing.T) {
	owner := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: "fns", UID: "u"}}
	m := made(t, manifestFunction(func(f *provider.Function) {
		(*f.Deployment.Labels)[v1alpha1.MemberLabel] = v1alpha1.MemberMaster // It would reach the workers of models.
		(*f.Deployment.Labels)[v1alpha1.PairLabel] = v1alpha1.PairBody       // It would reach shadows.
	}))
	text, err := m.Deployment(owner, 3)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	labels := d.Spec.Template.Labels
	if labels["faas_function"] != "figlet" || labels["team"] != "blue" || labels["app.kubernetes.io/managed-by"] != "faas-infer" || len(labels) != 3 {
		t.Errorf("labels %v", labels)
	}
	if *d.Spec.Replicas != 3 || d.OwnerReferences[0].UID != "u" || d.Annotations[AppliedAnnotation] != m.Hash || d.Spec.Template.Annotations[AppliedAnnotation] != "" ||
		d.Spec.Template.Annotations[v1alpha1.RevisionAnnotation] != "7" || strings.Contains(string(text), `"status"`) {
		t.Errorf("%s", text)
	}
	text, err = m.Service(owner)
	var s corev1.Service
	if err != nil || json.Unmarshal(text, &s) != nil || s.Spec.Selector["faas_function"] != "figlet" || s.OwnerReferences[0].Kind != "Function" ||
		*s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := m.Deployment(nil, 0); err != nil || strings.Contains(string(text), "ownerReferences") || !strings.Contains(string(text), `"replicas":0`) {
		t.Errorf("%s, %v", text, err)
	}
}

// Every field of a deployment changes its hash; the number of replicas does not.
func TestHash(t *testing.T) {
	first := made(t, manifestFunction(func(*provider.Function) {})).Hash
	if again := made(t, manifestFunction(func(f *provider.Function) { f.Replicas = 5 })).Hash; again != first {
		t.Error("the number of replicas is in the hash")
	}
	for name, edit := range map[string]func(*provider.Function){
		"image": func(f *provider.Function) { f.Deployment.Image = "x:2" }, "revision": func(f *provider.Function) { f.Revision++ },
		"environment": func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"a": "b"} },
	} {
		if made(t, manifestFunction(edit)).Hash == first {
			t.Errorf("%s is not in the hash", name)
		}
	}
}
