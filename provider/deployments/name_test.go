package deployments

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/provider"
)

// A Deployment that somebody else has made under the function's name is left alone.
func TestFreeName(t *testing.T) {
	of := func(name string, labels ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "fns", Labels: map[string]string{}}}
		for i := 0; i < len(labels); i += 2 {
			d.Labels[labels[i]] = labels[i+1]
		}
		return d
	}
	const by, ours, function = "app.kubernetes.io/managed-by", "faas-infer", "faas_function"
	for what, test := range map[string]struct {
		there []*appsv1.Deployment
		want  string
	}{
		"none":                       {nil, "figlet"},
		"its own":                    {[]*appsv1.Deployment{of("figlet", by, ours, function, "figlet")}, "figlet"},
		"faas-netes'":                {[]*appsv1.Deployment{of("figlet", function, "figlet")}, "figlet-faas-infer"},
		"faas-netes' and its own":    {[]*appsv1.Deployment{of("figlet", function, "figlet"), of("figlet-faas-infer", by, ours, function, "figlet")}, "figlet-faas-infer"},
		"two of others":              {[]*appsv1.Deployment{of("figlet"), of("figlet-faas-infer")}, ""},
		"one of a longer function's": {[]*appsv1.Deployment{of("figlet"), of("figlet-faas-infer", by, ours, function, "figlet-faas-infer")}, ""},
	} {
		client := fake.NewClientset()
		for _, d := range test.there {
			if _, err := client.AppsV1().Deployments("fns").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c := &Controller{options: Options{Client: client}}
		got, err := c.freeName(context.Background(), "fns", "figlet")
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", what, got, err, test.want)
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
