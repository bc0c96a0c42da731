package deployments

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
)

func pod(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "figlet-1", Namespace: "fns", Labels: map[string]string{"faas_function": "figlet"}, Annotations: map[string]string{"faas-infer.dev/revision": "42"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}
	edit(p)
	return p
}

func container(s corev1.ContainerStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{s} }
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return container(corev1.ContainerStatus{Image: "x", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
}

func TestRead(t *testing.T) {
	p := ReadPod(pod(func(p *corev1.Pod) {
		p.Status.PodIP = "fd00::1"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(9, 0))}}
	}))
	if p.ID != "figlet-1" || p.Function != "figlet.fns" || p.Node != "n1" || p.Revision != 42 || p.Address != "[fd00::1]:8080" || !p.Started || !p.Ready || p.Leaving || p.Problem.Text != "" {
		t.Errorf("%+v", p)
	}
	if in := p.Instance(cluster.Config{Batch: 1}); in.State != cluster.Ready || in.Kind != cluster.Process || in.ReadyAt.Unix() != 9 {
		t.Errorf("%+v", in)
	}
	for _, edit := range []func(*corev1.Pod){
		func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" },
	} {
		if p := ReadPod(pod(edit)); !p.Leaving || p.Instance(cluster.Config{}).State != cluster.Stopping {
			t.Errorf("%+v", p)
		}
	}
}

func TestProblems(t *testing.T) {
	crashed := corev1.ContainerStatus{RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}
	young := crashed
	young.RestartCount = 1
	for _, c := range []struct {
		name     string
		edit     func(*corev1.Pod)
		want     string
		unplaced bool
		hopeless bool
	}{
		{"nothing", func(*corev1.Pod) {}, "", false, false},
		{"starting", waitingFor("ContainerCreating", ""), "", false, false},
		{"unplaced", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}
		}, "no node takes an instance: 0/3 nodes", true, false},
		{"first pull", waitingFor("ErrImagePull", "timeout"), "(ErrImagePull): timeout", false, false},
		{"pull", waitingFor("ImagePullBackOff", "manifest unknown"), `the image "x" cannot be pulled (ImagePullBackOff): manifest unknown`, false, true},
		{"name", waitingFor("InvalidImageName", strings.Repeat("long", 500)), "…", false, true},
		{"secret", waitingFor("CreateContainerConfigError", `secret "a" not found`), `cannot be started (CreateContainerConfigError): secret "a" not found`, false, false},
		{"memory", container(crashed), "out of memory", false, true},
		{"memory, once", container(young), "limits.memory", false, false},
		{"exit", container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: "no handler"}}}), "exit code 2: no handler", false, false},
		{"signal", container(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Signal: 11}}}), "killed by signal 11", false, false},
	} {
		p := ReadPod(pod(c.edit)).Problem
		if c.want == "" && p.Text != "" || !strings.Contains(p.Text, c.want) || p.Unplaced != c.unplaced || p.Hopeless != c.hopeless || len(p.Text) > 500 {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

// A sidecar's state is not the function's, also where a webhook put it first. An init container
// that has done its work is no problem.
func TestSidecars(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	read := func(initialised, proxy, own corev1.ContainerState) Pod {
		stripped, err := strip(pod(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: "istio-proxy"}, {Name: "figlet"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "istio-init", State: initialised}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "istio-proxy", State: proxy}, {Name: "figlet", State: own}}
		}))
		if err != nil {
			t.Fatal(err)
		}
		return ReadPod(stripped.(*corev1.Pod))
	}
	creating := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	if p := read(ended(0), running, creating); p.Started || p.Problem.Text != "" {
		t.Errorf("only the sidecar runs: %+v", p)
	}
	if p := read(ended(0), creating, running); !p.Started || p.Problem.Text != "" {
		t.Errorf("the function runs: %+v", p)
	}
	if p := read(ended(1), creating, creating); p.Problem.Text != "the container istio-init of an instance exited: exit code 1" {
		t.Errorf("the initialisation failed: %+v", p)
	}
	if p := read(ended(0), running, ended(2)); p.Problem.Text != "an instance exited: exit code 2" {
		t.Errorf("the function exited: %+v", p)
	}
}
