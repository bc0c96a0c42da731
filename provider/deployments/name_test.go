package deployments

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

const by, ours, named = "app.kubernetes.io/managed-by", "faas-infer", "faas_function"

// of returns the metadata of an object with a name and labels.
func of(name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: "fns", UID: types.UID("uid of " + name), Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

// A Deployment or Service that somebody else has made under the function's name is left alone.
func TestFreeName(t *testing.T) {
	deployment := func(name string, labels ...string) runtime.Object {
		return &appsv1.Deployment{ObjectMeta: of(name, labels...)}
	}
	service := func(name string, labels ...string) runtime.Object {
		return &corev1.Service{ObjectMeta: of(name, labels...)}
	}
	for what, test := range map[string]struct {
		there []runtime.Object
		want  string
	}{
		"none":                       {nil, "figlet"},
		"its own":                    {[]runtime.Object{deployment("figlet", by, ours, named, "figlet")}, "figlet"},
		"faas-netes'":                {[]runtime.Object{deployment("figlet", named, "figlet")}, "figlet-faas-infer"},
		"faas-netes' and its own":    {[]runtime.Object{deployment("figlet", named, "figlet"), deployment("figlet-faas-infer", by, ours, named, "figlet")}, "figlet-faas-infer"},
		"two of others":              {[]runtime.Object{deployment("figlet"), deployment("figlet-faas-infer")}, ""},
		"one of a longer function's": {[]runtime.Object{deployment("figlet"), deployment("figlet-faas-infer", by, ours, named, "figlet-faas-infer")}, ""},
		"its own Service":            {[]runtime.Object{service("figlet", by, ours, named, "figlet")}, "figlet"},
		"faas-netes' Service":        {[]runtime.Object{service("figlet", named, "figlet")}, "figlet-faas-infer"},
		"a Service and a Deployment": {[]runtime.Object{service("figlet"), deployment("figlet-faas-infer")}, ""},
		"two Services":               {[]runtime.Object{service("figlet"), service("figlet-faas-infer")}, ""},
	} {
		c := &Controller{options: Options{Client: fake.NewClientset(test.there...)}}
		got, err := c.freeName(context.Background(), "fns", "figlet")
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", what, got, err, test.want)
		}
	}
}

// A Service that somebody else has made after the function got its name is neither changed nor deleted.
// The function's own is deleted by its UID, so never one that has taken its place.
func TestServiceOfOthers(t *testing.T) {
	m := made(t, manifestFunction(func(*provider.Function) {}))
	owner := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: "fns", UID: "u"}}
	for what, test := range map[string]struct {
		meta    metav1.ObjectMeta
		applied bool
	}{
		"its own":                  {of("figlet", by, ours, named, "figlet"), true},
		"without labels":           {of("figlet"), false},
		"faas-netes'":              {of("figlet", named, "figlet"), false},
		"that of another function": {of("figlet", by, ours, named, "other"), false},
	} {
		client := fake.NewClientset(&corev1.Service{ObjectMeta: test.meta})
		client.PrependReactor("delete", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if p := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != test.meta.UID {
				t.Errorf("%s: deleted with the preconditions %+v", what, p)
			}
			return false, nil, nil
		})
		c := &Controller{options: Options{Client: client}}
		if err := c.applyService(t.Context(), m, owner); (err == nil) != test.applied || err != nil && !strings.Contains(err.Error(), "the Service figlet in namespace fns is somebody else's") {
			t.Errorf("%s: applied with %v", what, err)
		}
		if err := c.deleteService(t.Context(), "fns", "figlet", "figlet"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		s, err := client.CoreV1().Services("fns").Get(t.Context(), "figlet", metav1.GetOptions{})
		if deleted := apierrors.IsNotFound(err); deleted != test.applied || !deleted && len(s.OwnerReferences) > 0 {
			t.Errorf("%s: afterwards there is %+v, %v", what, s, err)
		}
	}
}

// Under another name, the Deployment selects only its own pods.
func TestOtherName(t *testing.T) {
	m, err := NewManifest(manifestFunction(func(*provider.Function) {}), ManifestSettings{PullPolicy: corev1.PullAlways, Name: "figlet-faas-infer"})
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	var s corev1.Service
	text, err := m.Deployment(nil, 1)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err = m.Service(nil); err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "figlet-faas-infer" || s.Name != d.Name || d.Spec.Template.Spec.Containers[0].Name != "figlet" || len(d.Spec.Selector.MatchLabels) != 2 || len(s.Spec.Selector) != 2 {
		t.Errorf("%+v, %+v", d, s)
	}
	for _, name := range []string{"a", strings.Repeat("a", 63), strings.Repeat("a", 51) + "-b"} {
		if got := otherName(name); len(validation.IsDNS1035Label(got)) > 0 || got == name {
			t.Errorf("%s gets %s", name, got)
		}
	}
}
