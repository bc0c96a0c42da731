// Package realnode_test runs cluster/kubernetes and its logs on a real kubelet with
// containerd and runc. Instances are a shell script with an HTTP server. Begin with rig.
package realnode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/openfaas/faas-provider/logs"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podlogs"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// script is the instances' program. Its argument selects its behaviour.
const script = `
case $0 in
crash) echo begins; echo no such model; exit 3;;
greedy) echo begins; exec tail /dev/zero;;
esac
mkdir -p /tmp/www/_ && echo ok >/tmp/www/_/ready
echo "cores $(grep Cpus_allowed_list /proc/self/status | cut -f2)"
trap 'echo leaving; exit 0' TERM
httpd -f -p 8080 -h /tmp/www &
while true; do date +%s.tick; sleep 1 & wait $!; done
`

const namespace = "openfaas-fn"

func TestMain(m *testing.M) { os.Exit(node.Run(m.Run)) }

// rig is a cluster with a real node, and a backend on it.
type rig struct {
	*kubernetes.Backend
	t      *testing.T
	c      *testcluster.Cluster
	client clientset.Interface
	image  string
	seen   map[cluster.InstanceID]cluster.Instance
	n      int
}

func newRig(t *testing.T, kubelet string) *rig {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := testcluster.NodePossible(ctx); err != nil {
		t.Skipf("*** NO REAL NODE: %v ***", err)
	}
	c, err := testcluster.Start(ctx, testcluster.Options{Node: true, Log: t.Output(), KubeletConfig: kubelet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, c: c, seen: map[cluster.InstanceID]cluster.Instance{}}
	r.client, err = clientset.NewForConfig(c.Config())
	functions, functionsErr := v1alpha1.NewClient(c.Config())
	crdErr := c.Define(ctx, "../../../../yaml/crd.yaml")
	labels := "pod-security.kubernetes.io/enforce=restricted"
	spaceErr := c.Namespaces(ctx, nil, namespace)
	_, labelErr := c.Kubectl(ctx, "", "label", "namespace", namespace, labels)
	if err := errors.Join(err, functionsErr, crdErr, spaceErr, labelErr); err != nil {
		t.Fatal(err)
	}
	if r.image, err = c.PushTools("instance:1", nil, v1.Config{Entrypoint: []string{"/bin/sh", "-c", script}, User: "65532:65532"}); err != nil {
		t.Fatal(err)
	}
	f, err := functions.Functions(namespace).Create(ctx, &v1alpha1.Function{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace}, Spec: v1alpha1.FunctionSpec{Image: r.image, ReadOnlyRootFilesystem: true}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Backend, err = kubernetes.New(ctx, kubernetes.Options{
		Client: r.client, Functions: func(string) (*v1alpha1.Function, bool) { return f, true },
		Args:   func(s cluster.InstanceSpec) []string { return []string{s.Model} },
		Logger: zerolog.New(zerolog.NewTestWriter(t)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if _, err := r.Instances(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// start starts an instance with a behaviour of script.
func (r *rig) start(how string, cpu int) cluster.InstanceSpec {
	r.t.Helper()
	return r.startFor(how, cpu, false)
}

// startFor is start, with or without requests that wait for the instance.
func (r *rig) startFor(how string, cpu int, awaited bool) cluster.InstanceSpec {
	r.t.Helper()
	r.n++
	spec := cluster.InstanceSpec{ID: cluster.InstanceID(fmt.Sprintf("m-%d", r.n)), Function: "m." + namespace, Revision: 1, Node: testcluster.NodeName,
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: cpu, Memory: 32 << 20}}, Artefact: cluster.Artefact{Bundle: r.image, Model: how}}
	spec.Awaited = awaited
	if how == "missing" {
		spec.Bundle = r.image + "-missing"
	}
	if _, err := r.Start(r.t.Context(), spec); err != nil {
		r.t.Fatal(err)
	}
	return spec
}

// await reads events until an instance is in a state.
func (r *rig) await(id cluster.InstanceID, state cluster.State) cluster.Instance {
	r.t.Helper()
	deadline := time.After(3 * time.Minute)
	for r.seen[id].State != state {
		select {
		case in := <-r.Events():
			r.seen[in.ID] = in
		case <-deadline:
			out, _ := r.c.Kubectl(r.t.Context(), "", "describe", "pod", "-n", namespace, string(id))
			r.t.Fatalf("%s is %q and not %q\n%s", id, r.seen[id].State, state, out)
		}
	}
	return r.seen[id]
}

func (r *rig) stop(id cluster.InstanceID) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Stop(ctx, id); err != nil {
		r.t.Fatal(err)
	}
}

func TestRealNode(t *testing.T) {
	r := newRig(t, "")
	spec := r.start("serve", 300)
	in := r.await(spec.ID, cluster.Ready)
	t.Logf("*** the first instance was ready after %v", in.ReadyAt.Sub(in.StartedAt))

	// With the image there already.
	second := r.start("serve", 300)
	in = r.await(second.ID, cluster.Ready)
	t.Logf("*** the second instance was ready after %v", in.ReadyAt.Sub(in.StartedAt))

	r.checkLogs(spec.ID, second.ID)

	awaited := r.startFor("serve", 250, true)
	in = r.await(awaited.ID, cluster.Ready)
	if cpu := r.ends(awaited.ID); cpu != 250 || in.Config.CPU != 250 {
		t.Errorf("an instance for which requests waited has %dm, and counts as %v", cpu, in.Config)
	}
	t.Logf("*** it had its config's CPU %v after it was ready", time.Since(in.ReadyAt))
	r.stop(awaited.ID)

	smaller := spec.Config
	smaller.CPU = 200
	began := time.Now()
	resize := func() error { return r.Resize(t.Context(), spec.ID, smaller) }
	park := func() error { return r.Park(t.Context(), spec.ID) }
	if err := patiently(resize); err != nil {
		t.Errorf("resize: %v", err)
	}
	t.Logf("*** resized in %v", time.Since(began))
	began = time.Now()
	if err := patiently(park); err != nil {
		t.Errorf("park: %v", err)
	}
	t.Logf("*** parked in %v", time.Since(began))
	if err := patiently(resize); err != nil {
		t.Errorf("unpark: %v", err)
	}
	began = time.Now()
	r.stop(second.ID)
	t.Logf("*** stopped in %v", time.Since(began))
	if in := r.await(second.ID, cluster.Exited); in.Reason != "stopped" {
		t.Errorf("stopped: %q", in.Reason)
	}

	for how, want := range map[string]string{
		"crash": "exit status 3: no such model", "greedy": "out of memory (limit 32 MiB)", "missing": "ErrImagePull",
	} {
		began := time.Now()
		bad := r.start(how, 100)
		if in := r.await(bad.ID, cluster.Exited); !strings.HasPrefix(in.Reason, want) {
			t.Errorf("%s: %q, want %q", how, in.Reason, want)
		}
		t.Logf("*** %s: told after %v", how, time.Since(began))
	}
	r.stop(spec.ID)
	r.nothingIsLeft()
}

// ends waits until an instance's pod is no longer marked as one that starts, and returns the CPU in millicores that
// its spec has then.
func (r *rig) ends(id cluster.InstanceID) int64 {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		pod, err := r.client.CoreV1().Pods(namespace).Get(r.t.Context(), string(id), metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		if podspec.StartingCPU(pod) == 0 {
			return pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s still has the CPU that it started with: %+v", id, pod.Status)
		}
	}
}

// checkLogs reads the logs of both instances, with all options.
func (r *rig) checkLogs(first, second cluster.InstanceID) {
	t := r.t
	t.Helper()
	source := podlogs.Source{Client: r.client, Logger: zerolog.New(zerolog.NewTestWriter(t))}
	ask := func(ctx context.Context, q logs.Request) <-chan logs.Message {
		t.Helper()
		q.Name, q.Namespace = "m", namespace
		messages, err := source.Query(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return messages
	}
	of := func(id cluster.InstanceID) func(logs.Message) bool {
		return func(m logs.Message) bool { return m.Instance == string(id) }
	}
	var all []logs.Message
	// What they print may come a moment after they answer.
	for end := time.Now().Add(time.Minute); !slices.ContainsFunc(all, of(first)) || !slices.ContainsFunc(all, of(second)); {
		if time.Now().After(end) {
			t.Fatalf("logs %v", all)
		}
		all = nil
		for m := range ask(t.Context(), logs.Request{}) {
			all = append(all, m)
		}
	}
	if !slices.IsSortedFunc(all, func(a, b logs.Message) int { return a.Timestamp.Compare(b.Timestamp) }) {
		t.Errorf("logs %v", all)
	}
	n := 0
	for m := range ask(t.Context(), logs.Request{Tail: 1, Instance: string(second)}) {
		if n++; m.Instance != string(second) {
			t.Errorf("another's: %v", m)
		}
	}
	if n != 1 {
		t.Errorf("%d lines, want the last", n)
	}
	// One that starts later is followed, too, from its first line on.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	since := time.Now()
	following := ask(ctx, logs.Request{Follow: true, Since: &since})
	third := r.start("serve", 100)
	began, ticks := false, map[string]int{}
	for m := range following {
		ticks[m.Instance]++
		began = began || m.Instance == string(third.ID) && strings.HasPrefix(m.Text, "cores")
		if m.Timestamp.Before(since) {
			t.Errorf("before since: %v", m)
		}
		if began && ticks[string(third.ID)] > 2 && ticks[string(first)] > 2 {
			cancel()
		}
	}
	if !began || ticks[string(first)] < 2 {
		t.Errorf("followed %v, the new one from its beginning: %v", ticks, began)
	}
	r.stop(third.ID)
}
