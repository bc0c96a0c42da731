package podspec

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
}

func ended(reason string, code int32, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Message: message}}}}}
}

func with(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodStatus {
	return corev1.PodStatus{PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Unix(9, 0)}}}
}

func TestObserve(t *testing.T) {
	failed := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
	}
	for name, c := range map[string]struct {
		status  corev1.PodStatus
		deleted bool
		want    Observation
	}{
		"nothing yet":     {want: Observation{State: cluster.Starting}},
		"ready":           {status: with(corev1.PodReady, corev1.ConditionTrue, "", ""), want: Observation{State: cluster.Ready, ReadyAt: time.Unix(9, 0), Running: true}},
		"not ready":       {status: with(corev1.PodReady, corev1.ConditionFalse, "", ""), want: Observation{State: cluster.Starting}},
		"creating":        {status: waiting("ContainerCreating", ""), want: Observation{State: cluster.Starting, Reason: "ContainerCreating"}},
		"pull":            {status: waiting("ErrImagePull", "not found"), want: Observation{State: cluster.Starting, Reason: "ErrImagePull: not found", Stuck: true}},
		"brake":           {status: waiting("ErrImagePull", "pull QPS exceeded"), want: Observation{State: cluster.Starting, Reason: "ErrImagePull: pull QPS exceeded", Stuck: true, Patience: retryPatience}},
		"no room":         {status: with(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/1 nodes"), want: Observation{State: cluster.Starting, Reason: "Unschedulable: 0/1 nodes", Refused: true, Stuck: true, Patience: roomPatience}},
		"out of memory":   {status: ended("OOMKilled", 137, ""), want: Observation{State: cluster.Exited, Reason: "out of memory (limit 64 MiB)"}},
		"killed":          {status: ended("Error", 139, ""), want: Observation{State: cluster.Exited, Reason: "killed by signal 11"}},
		"failed":          {status: ended("Error", 1, "begins\nno such model\n"), want: Observation{State: cluster.Exited, Reason: "exit status 1: no such model"}},
		"crashed":         {status: ended("Error", 2, "rax    0x0\nfs     0x0\ngs     0x0\n"), want: Observation{State: cluster.Exited, Reason: "exit status 2: it crashed; the output has only the end of its crash report"}},
		"out of cpu":      {status: failed("OutOfcpu", "Node has no room"), want: Observation{State: cluster.Exited, Reason: "OutOfcpu: Node has no room", Refused: true}},
		"evicted by node": {status: failed("Evicted", "low on memory"), want: Observation{State: cluster.Exited, Reason: "evicted: low on memory", Refused: true}},
		"wrong node":      {status: failed("TopologyAffinityError", "Pod was rejected"), want: Observation{State: cluster.Exited, Reason: "TopologyAffinityError: Pod was rejected", Refused: true}},
		"node forgot it":  {status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", ContainerStatuses: ended("Error", 1, "").ContainerStatuses}, want: Observation{State: cluster.Exited, Reason: "exit status 1"}},
		"evicted by API":  {status: with(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI", "drain"), deleted: true, want: Observation{State: cluster.Stopping, Reason: "evicted: drain", Disrupted: true}},
		"taint":           {status: with(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager", ""), deleted: true, want: Observation{State: cluster.Stopping, Reason: "node lost", Disrupted: true}},
		"deleted":         {deleted: true, want: Observation{State: cluster.Stopping, Reason: "deleted"}},
		"stopped":         {status: ended("Completed", 0, ""), deleted: true, want: Observation{State: cluster.Exited, Reason: "stopped"}},
		"just failed":     {status: corev1.PodStatus{Phase: corev1.PodFailed}, want: Observation{State: cluster.Exited, Reason: "the pod has failed"}},
	} {
		pod := &corev1.Pod{Status: c.status, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}}}}}
		if c.deleted {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		if got := Observe(pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	if got := Observe(pod); !got.Running || got.State != cluster.Starting {
		t.Errorf("running: %+v", got)
	}
}

// injected is a model's pod into which a webhook has put a sidecar before the function's container.
func injected(sidecar, own corev1.ContainerState) *corev1.Pod {
	share := func(device string) (env []corev1.EnvVar) {
		for name, value := range (gpu.Share{Device: device, Percent: 20}).Env() {
			env = append(env, corev1.EnvVar{Name: name, Value: value})
		}
		return env
	}
	half, whole := resource.MustParse("500m"), resource.MustParse("2")
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "m-1", Namespace: "n", Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, v1alpha1.InstanceLabel: "m-1", v1alpha1.FunctionLabel: "m"},
			Annotations: map[string]string{v1alpha1.SpecAnnotation: `{"id":"m-1","function":"m.n","config":{"batch":1,"cpu":1000,"gpu":20}}`}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "istio-proxy", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: half}, Limits: corev1.ResourceList{corev1.ResourceCPU: half}},
				Env: share("GPU-other")},
			{Name: "m", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: whole}, Limits: memory},
				Env: share("GPU-own")}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "istio-proxy", State: sidecar}, {Name: "m", State: own}}},
	}
}

// The function's container is found by its name, wherever a webhook has put others.
func TestSidecarBeforeTheFunction(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	over := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	pulls := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	for name, c := range map[string]struct {
		sidecar, own corev1.ContainerState
		want         Observation
	}{
		"the sidecar runs already": {running, pulls, Observation{State: cluster.Starting, Reason: "ContainerCreating"}},
		"the sidecar comes later":  {pulls, running, Observation{State: cluster.Starting, Running: true, Reason: "container istio-proxy: ContainerCreating"}},
		"the function has exited":  {running, over, Observation{State: cluster.Exited, Reason: "out of memory (limit 64 MiB)"}},
		"both run":                 {running, running, Observation{State: cluster.Starting, Running: true}},
	} {
		for _, pod := range []*corev1.Pod{injected(c.sidecar, c.own), Trim(injected(c.sidecar, c.own))} {
			if got := Observe(pod); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
	}
	in, err := ReadModel(Trim(injected(running, running)))
	if err != nil || in.Config.CPU != 2000 || in.Device() != "GPU-own" {
		t.Errorf("%+v, %v", in, err)
	}
}
