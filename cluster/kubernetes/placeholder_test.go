package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// placeholders is a driver with an API server in memory.
type placeholders struct {
	*Placeholders
	t      *testing.T
	client *fake.Clientset
	log    bytes.Buffer
}

func newPlaceholders(t *testing.T, edit func(o *PlaceholderOptions)) *placeholders {
	p := &placeholders{t: t, client: fake.NewClientset()}
	o := PlaceholderOptions{Client: p.client, Namespace: "functions", Image: "registry.k8s.io/pause:3.10", PriorityClass: "low", NodeSelector: "pool=models", Logger: zerolog.New(&p.log)}
	if edit != nil {
		edit(&o)
	}
	var err error
	if p.Placeholders, err = NewPlaceholders(o); err != nil {
		t.Fatal(err)
	}
	return p
}

// names lists the pods.
func (p *placeholders) names() (names []string) {
	p.t.Helper()
	all, err := p.client.CoreV1().Pods("functions").List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, pod := range all.Items {
		names = append(names, pod.Name)
	}
	return names
}

// run runs f while the driver runs, in a bubble.
func (p *placeholders) run(f func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	f()
	cancel()
	<-done
}

func missing(cpu, gpu int) []MissingNodes {
	size := cluster.Resources{CPU: 4000, Memory: 10 << 30}
	return []MissingNodes{{Kind: "cpu", Count: cpu, Size: size}, {Kind: "gpu", GPU: true, Count: gpu, Size: size}}
}

// A placeholder is created when a node is wanted, and deleted when it is there or not wanted any
// more. A replica that does not lead touches nothing.
func TestPlaceholders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaceholders(t, nil)
		p.run(func() {
			want := func(what string, names ...string) {
				t.Helper()
				synctest.Wait()
				if got := p.names(); !slices.Equal(got, names) {
					t.Errorf("%s: %v, want %v", what, got, names)
				}
			}
			p.Want(missing(0, 0))
			want("none is missing")
			p.Want(missing(1, 0))
			want("one is missing", "faas-infer-node-cpu-0")
			p.Want(missing(1, 1))
			want("one with a GPU, too", "faas-infer-node-cpu-0", "faas-infer-node-gpu-0")
			time.Sleep(time.Hour)
			want("an hour later", "faas-infer-node-cpu-0", "faas-infer-node-gpu-0")
			p.Want(missing(0, 1))
			want("the first has come", "faas-infer-node-gpu-0")
			p.Want(nil)
			time.Sleep(time.Hour)
			want("this replica does not lead any more", "faas-infer-node-gpu-0")
			p.Want(missing(0, 0))
			want("it leads again")
		})
	})
}

// A pod that somebody has deleted, or that has ended, is made again.
func TestPlaceholderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaceholders(t, nil)
		p.run(func() {
			p.Want(missing(1, 0))
			synctest.Wait()
			pods := p.client.CoreV1().Pods("functions")
			if err := pods.Delete(t.Context(), "faas-infer-node-cpu-0", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(placeholderPause + time.Second)
			pod, err := pods.Get(t.Context(), "faas-infer-node-cpu-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod.Status.Phase = corev1.PodFailed
			if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2*placeholderPause + time.Second)
			if pod, err := pods.Get(t.Context(), "faas-infer-node-cpu-0", metav1.GetOptions{}); err != nil || pod.Status.Phase == corev1.PodFailed {
				t.Errorf("%v, %v", pod, err)
			}
		})
	})
}

// What the API server refuses is said once and tried again.
func TestPlaceholderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaceholders(t, nil)
		var accept atomic.Bool
		p.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !accept.Load(), nil, errors.New("exceeded quota")
		})
		p.run(func() {
			p.Want(missing(1, 0))
			time.Sleep(10 * placeholderPause)
			synctest.Wait()
			if n := strings.Count(p.log.String(), "exceeded quota"); n != 1 || !strings.Contains(p.log.String(), "create pod faas-infer-node-cpu-0") {
				t.Errorf("said %d times:\n%s", n, p.log.String())
			}
			accept.Store(true)
			time.Sleep(placeholderPause + time.Second)
			if got := p.names(); len(got) != 1 {
				t.Errorf("%v", got)
			}
		})
	})
}

// The pod is as large as a node, may run on any of the selected ones, and obeys the restricted pod
// security standard.
func TestPlaceholderPod(t *testing.T) {
	p := newPlaceholders(t, nil)
	for _, m := range missing(1, 1) {
		pod := p.pod(placeholder{m, 0})
		c, spec := pod.Spec.Containers[0], pod.Spec
		if asked := c.Resources.Requests; asked.Cpu().MilliValue() != 3600 || asked.Memory().Value() != 9<<30 || c.Image != "registry.k8s.io/pause:3.10" {
			t.Errorf("%s asks for %v of %s", pod.Name, asked, c.Image)
		}
		if spec.Affinity != nil || spec.NodeName != "" || spec.NodeSelector["pool"] != "models" || spec.PriorityClassName != "low" || pod.Labels[PlaceholderLabel] != m.Kind {
			t.Errorf("%+v", spec)
		}
		if pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] != "true" { // It would keep a node that the provider does not count.
			t.Errorf("annotations %v", pod.Annotations)
		}
		if (spec.NodeSelector[gpuNodeLabel] == "true") != m.GPU || (len(spec.Tolerations) > 0) != m.GPU {
			t.Errorf("%s: %v, %v", pod.Name, spec.NodeSelector, spec.Tolerations)
		}
		if !*spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities.Drop[0] != "ALL" || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%+v, %+v", spec.SecurityContext, c.SecurityContext)
		}
	}
}

// A pod that has got a node stays while the node is missing, so that a node that does not count
// calls for no other.
func TestArrange(t *testing.T) {
	named := func(name, node string, edit func(*corev1.Pod)) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
		if edit != nil {
			edit(&pod)
		}
		return pod
	}
	for what, test := range map[string]struct {
		missing        []MissingNodes
		found          []corev1.Pod
		create, remove []string
	}{
		"nothing":                {nil, nil, nil, nil},
		"two":                    {missing(2, 0), nil, []string{"faas-infer-node-cpu-0", "faas-infer-node-cpu-1"}, nil},
		"one of two is there":    {missing(2, 0), []corev1.Pod{named("faas-infer-node-cpu-1", "", nil)}, []string{"faas-infer-node-cpu-0"}, nil},
		"it has a node":          {missing(1, 0), []corev1.Pod{named("faas-infer-node-cpu-0", "n", nil)}, nil, nil},
		"its node counts":        {missing(0, 0), []corev1.Pod{named("faas-infer-node-cpu-0", "n", nil)}, nil, []string{"faas-infer-node-cpu-0"}},
		"one less than nothing":  {missing(-1, 0), nil, nil, nil},
		"one that ends already":  {missing(0, 0), []corev1.Pod{named("faas-infer-node-cpu-0", "n", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })}, nil, nil},
		"one that has ended":     {missing(1, 0), []corev1.Pod{named("faas-infer-node-cpu-0", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, nil, []string{"faas-infer-node-cpu-0"}},
		"one of an unknown kind": {missing(0, 0), []corev1.Pod{named("faas-infer-node-tpu-0", "", nil)}, nil, []string{"faas-infer-node-tpu-0"}},
	} {
		var create []string
		made, remove := arrange(test.missing, test.found)
		for _, c := range made {
			create = append(create, c.name())
		}
		if !slices.Equal(create, test.create) || !slices.Equal(remove, test.remove) {
			t.Errorf("%s: create %v, remove %v", what, create, remove)
		}
	}
}

func TestPlaceholderOptions(t *testing.T) {
	good := PlaceholderOptions{Client: fake.NewClientset(), Namespace: "n", Image: "pause"}
	for want, edit := range map[string]func(o *PlaceholderOptions){
		"LABEL=VALUE": func(o *PlaceholderOptions) { o.NodeSelector = "pool in (a, b)" },
		"Image":       func(o *PlaceholderOptions) { o.Image = "" },
	} {
		o := good
		edit(&o)
		if _, err := NewPlaceholders(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if _, err := NewPlaceholders(good); err != nil {
		t.Error(err)
	}
}
