package nodes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/gpu"
)

// The GPUs of an agent that has said nothing for long are not used. Its heartbeats are no changes
// of the node, and an inventory without any is trusted.
func TestTrust(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	read := func(alive, at time.Time) Node {
		n := Read(Trim(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{gpu.InventoryAnnotation: gpu.Inventory{
			Sharing: gpu.MPS, PipeDirectory: "/run/mps", Alive: alive, Devices: []gpu.Device{{UUID: "a", Memory: 8}, {UUID: "b", Memory: 8, Unshareable: "no", Whole: true}}}.String()}},
			Status: corev1.NodeStatus{Allocatable: list("4", "1Ki")}}))
		n.Trust(at)
		return n
	}
	living := read(now, now.Add(gpu.Heartbeat))
	if living.Allocatable.GPU != 200 || living.Complaint != "" {
		t.Errorf("%+v", living)
	}
	if !living.Same(read(now.Add(gpu.Heartbeat), now.Add(gpu.Heartbeat))) {
		t.Error("a heartbeat changes the node")
	}
	dead := read(now, now.Add(time.Hour))
	if dead.Allocatable.GPU != 0 || dead.Allocatable.GPUMemory != 0 || len(dead.GPUs.Usable()) != 0 || !strings.Contains(dead.Complaint, "2026-11-26T12:00:00Z") || living.Same(dead) {
		t.Errorf("%+v", dead)
	}
	if by := read(time.Time{}, now); by.Allocatable.GPU != 200 {
		t.Errorf("an administrator's: %+v", by)
	}
}
