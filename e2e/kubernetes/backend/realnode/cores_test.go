package realnode_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/logs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podlogs"
)

// If the kubelet gives whole CPUs as exclusive cores, an instance of one core has one, and
// no instance can be resized. The backend asks that once per node.
func TestCoresOfTheirOwn(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("*** NO CORE TO GIVE AWAY: cpusets are not tested ***")
	}
	r := newRig(t, "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n")
	// It keeps what it has started with, and the next one is not given more.
	for _, want := range []int64{900, 250} {
		awaited := r.startFor("serve", 250, true)
		r.await(awaited.ID, cluster.Ready)
		if cpu := r.ends(awaited.ID); cpu != want {
			t.Errorf("an instance for which requests waited has %dm, want %dm", cpu, want)
		}
		r.stop(awaited.ID)
		r.await(awaited.ID, cluster.Exited)
	}
	spec := r.start("serve", 1000)
	r.await(spec.ID, cluster.Ready)
	cores := ""
	// What it prints may come a moment after it answers.
	for end := time.Now().Add(time.Minute); cores == "" && time.Now().Before(end); {
		messages, err := podlogs.Source{Client: r.client}.Query(t.Context(), logs.Request{Name: "m", Namespace: namespace, Instance: string(spec.ID)})
		if err != nil {
			t.Fatal(err)
		}
		for m := range messages {
			if list, ok := strings.CutPrefix(m.Text, "cores "); ok {
				cores = list
			}
		}
	}
	if _, err := strconv.Atoi(cores); err != nil {
		t.Errorf("one CPU gives the cores %q", cores)
	}
	smaller := spec.Config
	smaller.CPU = 500
	if err := patiently(func() error { return r.Resize(t.Context(), spec.ID, smaller) }); err == nil || !strings.Contains(err.Error(), "Infeasible") {
		t.Errorf("resize what has a core of its own: %v", err)
	}
	list, err := r.Instances(t.Context())
	if err != nil || len(list) != 1 || list[0].InstanceSpec.Config != spec.Config {
		t.Errorf("after it was refused: %+v, %v", list, err)
	}
	before := r.version(spec.ID)
	if err := r.Park(t.Context(), spec.ID); err == nil || !strings.Contains(err.Error(), "Infeasible") {
		t.Errorf("park: %v", err)
	}
	if after := r.version(spec.ID); after != before {
		t.Errorf("the API server was written to again: %s, then %s", before, after)
	}
	r.stop(spec.ID)
}

// version returns the generation of a pod's spec.
func (r *rig) version(id cluster.InstanceID) string {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods(namespace).Get(r.t.Context(), string(id), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(pod.Generation)
}

// nothingIsLeft waits until all pods are being deleted. The exit of an instance may be
// reported before that.
func (r *rig) nothingIsLeft() {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		list, err := r.client.CoreV1().Pods(namespace).List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		var left []string
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil {
				left = append(left, p.Name)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("pods %v are left", left)
		}
	}
}

// patiently retries a change that a busy kubelet refuses.
func patiently(change func() error) (err error) {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = change()
		if err == nil || !strings.Contains(err.Error(), "has not changed the quota within") && !strings.Contains(err.Error(), "does not report its resources") {
			return err
		}
	}
	return err
}
