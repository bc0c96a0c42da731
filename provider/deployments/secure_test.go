package deployments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/provider"
)

// A new revision is served as its image can be. One that runs keeps what its Deployment has, without a
// look at a registry. Without the option everything is plain HTTP.
func TestWatchdog(t *testing.T) {
	args := []string{"watchdog", "--bundle", "/bundle"}
	away := func(context.Context, types.FunctionDeployment) ([]string, error) {
		return nil, errors.New("no registry")
	}
	there := func(context.Context, types.FunctionDeployment) ([]string, error) { return args, nil }
	others := func(context.Context, types.FunctionDeployment) ([]string, error) { return nil, nil }
	for name, c := range map[string]struct {
		look  func(context.Context, types.FunctionDeployment) ([]string, error)
		found deployed
		runs  bool
		want  []string
		says  string
	}{
		"without the option":     {nil, deployed{watchdog: `["watchdog"]`}, true, nil, ""},
		"new":                    {there, deployed{}, false, args, ""},
		"new, another server":    {others, deployed{}, false, nil, ""},
		"an update":              {others, deployed{watchdog: `["watchdog"]`}, false, nil, ""},
		"unreadable":             {away, deployed{}, false, nil, "no registry"},
		"runs":                   {away, deployed{watchdog: `["watchdog","--bundle","/bundle"]`}, true, args, ""},
		"runs from before":       {away, deployed{}, true, nil, ""},
		"somebody has edited it": {away, deployed{watchdog: "watchdog"}, true, nil, "deploy the function again"},
	} {
		got, err := (&Options{Watchdog: c.look}).watchdog(t.Context(), &provider.Function{}, c.found, c.runs)
		if !slices.Equal(got, c.want) || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The Deployment remembers how its watchdog was started, and a pod is reached as it was made. Namespaces
// with either get renewed certificates.
func TestSecurePods(t *testing.T) {
	f := manifestFunction(func(*provider.Function) {})
	m, err := NewManifest(f, ManifestSettings{Settings: podspec.Settings{Watchdog: []string{"watchdog", "--bundle", "/bundle"}}})
	if err != nil {
		t.Fatal(err)
	}
	if plain := made(t, f); !m.secure() || plain.secure() || plain.Hash == m.Hash {
		t.Errorf("secure %v, plain %v", m.secure(), plain.secure())
	}
	object := m.deployment
	if _, err := strip(&object); err != nil {
		t.Fatal(err)
	}
	if read := readDeployment(&object); read.watchdog != `["watchdog","--bundle","/bundle"]` {
		t.Errorf("the Deployment is read as %+v", read)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "fns", Labels: map[string]string{"faas_function": "figlet"}}, Spec: m.deployment.Spec.Template.Spec}
	other := pod(func(*corev1.Pod) {})
	for want, p := range map[string]*corev1.Pod{podspec.TLS: p, "tcp": other} {
		if _, err := strip(p); err != nil {
			t.Fatal(err)
		}
		if in := ReadPod(p).Instance(cluster.Config{}); in.Network != want {
			t.Errorf("a pod is reached by %s, want %s", in.Network, want)
		}
	}
	c := &Controller{deployed: map[string]deployed{"a.one": {watchdog: "[]"}, "b.two": {}}, pods: map[string]map[cluster.InstanceID]*instance{
		"c.three": {"p": {Pod: ReadPod(p)}}, "d.four": {"q": {Pod: ReadPod(other)}},
	}}
	if got := Certified(c); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("certificates are renewed in %v", got)
	}
}
