package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/command"
)

// The flags that bound instances and namespaces are read, and refused with their name and value.
func TestBounds(t *testing.T) {
	f := instanceFlags{request: "64Mi", limit: "2Gi", tmp: "1Gi"}
	if err := f.complete(); err != nil || f.local.StorageRequest.String() != "64Mi" || f.local.StorageLimit.String() != "2Gi" || f.local.TmpSize.String() != "1Gi" {
		t.Errorf("%+v: %v", f.local, err)
	}
	for want, f := range map[string]instanceFlags{
		"--instance-storage-request \"-1\"": {request: "-1"},
		"--instance-storage-limit \"0\"":    {limit: "0"},
		"--instance-tmp-size \"big\"":       {tmp: "big"},
		"must not be above":                 {request: "2Gi", limit: "1Gi"},
	} {
		if err := f.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	s := spaceFlags{level: "baseline", policies: true, quota: map[string]string{"pods": "10"}}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	if p := s.policy("serving"); p.PodSecurity != "baseline" || !p.NetworkPolicies || p.Provider != "serving" || p.Quota.Pods().Value() != 10 {
		t.Errorf("%+v", p)
	}
	for want, s := range map[string]spaceFlags{
		"--namespace-pod-security \"strict\"": {level: "strict"},
		"--namespace-quota pods=\"many\"":     {quota: map[string]string{"pods": "many"}},
	} {
		if err := s.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// User namespaces are refused in a cluster where no node supports them. They are never turned off:
// replicas that start at different times must agree.
func TestUserNamespaces(t *testing.T) {
	node := func(name string, handlers ...corev1.NodeRuntimeHandler) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{RuntimeHandlers: handlers}}
	}
	yes := true
	supports := &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &yes}
	able := node("able", corev1.NodeRuntimeHandler{Features: supports})
	others := []*corev1.Node{node("silent"), node("plain", corev1.NodeRuntimeHandler{}), node("nested", corev1.NodeRuntimeHandler{}, corev1.NodeRuntimeHandler{Name: "kata", Features: supports})}
	for _, c := range []struct {
		nodes []*corev1.Node
		works bool
		says  string
	}{
		{[]*corev1.Node{able}, true, ""},
		{append(slices.Clone(others), able), true, "silent"},
		{others, false, ""},
		{nil, true, ""},
	} {
		var objects []runtime.Object
		for _, n := range c.nodes {
			objects = append(objects, n)
		}
		var log strings.Builder
		p := &platform{flags: new(providerFlags), base: command.Base{Log: zerolog.New(&log)}, clients: clients{core: fake.NewClientset(objects...)}}
		p.flags.instances.local.UserNamespaces = true
		err := p.checkUserNamespaces(t.Context())
		if !c.works != (err != nil && strings.Contains(err.Error(), "--user-namespaces: no node supports")) || !p.flags.instances.local.UserNamespaces {
			t.Errorf("with %d nodes: %v, %+v", len(c.nodes), err, p.flags.instances.local)
		}
		if !strings.Contains(log.String(), c.says) || c.says == "" && log.Len() > 0 {
			t.Errorf("with %d nodes the log says: %s", len(c.nodes), log.String())
		}
	}
}
