package deployments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

func newMetrics() *metrics.Metrics { return metrics.New(prometheus.NewRegistry()) }

// An invalid deployment is refused with a sentence that says why, and creates no objects.
func TestRefused(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	r.profile("perhaps", "tolerations: [{key: a, operator: Perhaps}]")
	for _, c := range []struct {
		name string
		d    types.FunctionDeployment
		want string
	}{
		{"secret", types.FunctionDeployment{Service: "f", Image: "x", Secrets: []string{"absent"}}, `there is no secret "absent" in namespace openfaas-fn`},
		{"constraint", types.FunctionDeployment{Service: "f", Image: "x", Constraints: []string{"ssd"}}, `constraints is "ssd"`},
		{"profile", types.FunctionDeployment{Service: "f", Image: "x", Annotations: pairs("com.openfaas.profile", "none")}, `com.openfaas.profile is "none"`},
		{"probe", types.FunctionDeployment{Service: "f", Image: "x", Annotations: pairs("com.openfaas.ready.http.periodSeconds", "often")}, "com.openfaas.ready.http.periodSeconds"},
		{"name", types.FunctionDeployment{Service: "3d", Image: "x"}, `service is "3d"`},
		{"label", types.FunctionDeployment{Service: "f", Image: "x", Labels: pairs("owner", "two words")}, "labels.owner"},
		{"what only the cluster knows", types.FunctionDeployment{Service: "f", Image: "x", Annotations: pairs("com.openfaas.profile", "perhaps")}, "the cluster refuses this deployment"},
	} {
		_, err := p.Deploy(t.Context(), r.function(c.d))
		var status web.HTTPError
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &status) || status.HTTPStatus() != 400 {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, ok := p.Status(r.function(c.d).Name); ok {
			t.Errorf("%s: it is deployed", c.name)
		}
	}
}

// A constraint that no node meets is reported in the description and to requests. An update
// that corrects it helps.
func TestNoNode(t *testing.T) {
	r := newRig(t)
	p := r.replica(func(o *deployments.Options) { o.ColdWait = 2 * time.Second })
	d := types.FunctionDeployment{Service: "picky", Image: "x", Constraints: []string{"disktype=diamond"}}
	f, dispatcher := p.deploy(d)
	r.await("description", func() string {
		d, _ := p.Describe(f.Name)
		return contains(d.Unplaced, "node affinity/selector")
	})
	answered := make(chan error, 1)
	go func() {
		_, err := invoke(context.Background(), dispatcher, "/")
		answered <- err
	}()
	if err := <-answered; err == nil || !strings.Contains(err.Error(), "no node takes an instance") {
		t.Errorf("answered %v", err)
	}
	d.Constraints = nil
	f, dispatcher = p.deploy(d)
	r.await("an answer", func() string { // Each request waits for a short time only.
		if answer, err := invoke(t.Context(), dispatcher, "/"); err != nil || answer.Status != 200 {
			return fmt.Sprint(answer, err)
		}
		return ""
	})
	p.ready(f, 1)
	// What runs goes on, and it is said that this is not the latest.
	d.Constraints = []string{"disktype=diamond"}
	f, dispatcher = p.deploy(d)
	r.await("that what was deployed before is served", func() string {
		s, _ := p.Status(f.Name)
		return contains(s.Problem, provider.Before("no node takes an instance"))
	})
	if answer, err := invoke(t.Context(), dispatcher, "/"); err != nil || answer.Status != 200 {
		t.Error(answer, err)
	}
}

// A request to a function whose image cannot be pulled gets an error at once.
func TestImageThatCannotBePulled(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	r.ownNode("mine")
	f, d := p.deploy(types.FunctionDeployment{Service: "unpullable", Image: "registry.example/no:such", Constraints: []string{"type=mine"}})
	pod := r.placed(f, "mine")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "unpullable", Image: "registry.example/no:such",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "manifest unknown"}}}}
	r.says(pod)
	began := time.Now()
	_, err := invoke(t.Context(), d, "/")
	if err == nil || !strings.Contains(err.Error(), `the image "registry.example/no:such" cannot be pulled (ImagePullBackOff): manifest unknown`) {
		t.Errorf("answered %v", err)
	}
	if took := time.Since(began); took > coldWait/2 {
		t.Errorf("it took %v", took)
	}
	if d, _ := p.Describe(f.Name); !strings.Contains(d.Crash, "cannot be pulled") {
		t.Errorf("description %+v", d)
	}
	zero := int64(0)
	_ = r.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

// An instance whose server does not answer gets no requests until it does, whatever status
// Kubernetes shows.
func TestInstanceThatTakesNoConnection(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, d := p.deploy(types.FunctionDeployment{Service: "shaky", Image: "x", Labels: pairs("com.openfaas.scale.min", "2")})
	p.ready(f, 2)
	pod := r.pods(f)[0]
	// What may be sent twice is, where a connection turns out to be closed.
	l := r.loadOf(d, 4, http.MethodGet, "/")
	r.network.lose(&pod, 0)
	p.serving(f, 1)
	r.network.see(t, &pod)
	p.ready(f, 2)
	l.end(r)
}

// serving waits until n of a function's instances are ready, whatever number it should
// have.
func (p *replica) serving(f *provider.Function, n int) {
	p.rig.Helper()
	p.rig.await(f.Name, func() string {
		if d, _ := p.Describe(f.Name); d.Ready == n {
			return ""
		}
		return "another number is ready"
	})
}

// While the API server is away, requests are answered as before. Changes take effect when
// it is back.
func TestAPIServerAway(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, d := p.deploy(types.FunctionDeployment{Service: "lonely", Image: "x", Labels: pairs("com.openfaas.scale.target", "100000")})
	p.ready(f, 1)
	// The network learns of the pod from the API server as well, later on a busy machine.
	if answer, err := invoke(t.Context(), d, "/"); err != nil || answer.Status != http.StatusOK {
		t.Fatal(answer, err)
	}
	l := r.load(d, 4, "/")
	if err := r.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := p.Scale(f.Name, 2); err != nil {
		t.Fatal(err)
	}
	back := sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		return r.cluster.StartAPIServer(ctx)
	})
	// The tests after this one need it as well.
	t.Cleanup(func() { _ = back() })
	sent := l.sent.Load()
	r.await("requests", func() string {
		if l.sent.Load() > sent+200 {
			return ""
		}
		select {
		case why := <-l.failures:
			return why
		default:
			return fmt.Sprintf("only %d are answered", l.sent.Load()-sent)
		}
	})
	if err := back(); err != nil {
		t.Fatal(err)
	}
	// The scheduler and the others look for it less and less often.
	p.readyWithin(4*patience, f, 2)
	l.end(r)
}

// An instance that reports itself ready is used before Kubernetes shows it as ready. One
// that is no longer ready gets no requests.
func TestReadiness(t *testing.T) {
	r := newRig(t)
	p := r.replica(func(o *deployments.Options) { o.ColdWait = 2 * time.Second })
	r.ownNode("by-hand")
	r.network.setUnready("modest", true)
	f, d := p.deploy(types.FunctionDeployment{Service: "modest", Image: "x", Constraints: []string{"type=by-hand"}})
	pod := r.placed(f, "by-hand")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.9.8.7", PodIPs: []corev1.PodIP{{IP: "10.9.8.7"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "modest", Image: "x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	pod = r.says(pod)
	if _, err := invoke(t.Context(), d, "/"); err == nil {
		t.Fatal("an instance that is not ready answered")
	}
	r.network.setUnready("modest", false)
	r.await("an answer", func() string {
		if answer, err := invoke(t.Context(), d, "/"); err != nil || answer.Status != 200 {
			return fmt.Sprint(answer, err)
		}
		return ""
	})
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionTrue} {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		r.network.setUnready("modest", ready == corev1.ConditionFalse)
		pod = r.says(pod)
		want := 0
		if ready == corev1.ConditionTrue {
			want = 1
		}
		p.serving(f, want)
		if _, err := invoke(t.Context(), d, "/"); (err == nil) != (want == 1) {
			t.Errorf("ready is %s, and a request: %v", ready, err)
		}
	}
	zero := int64(0)
	_ = r.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

// ownNode makes a node without kwok. The test sets the status of its pods.
func (r *rig) ownNode(name string) {
	r.Helper()
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("10")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"type": name}},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if _, err := r.client.CoreV1().Nodes().Create(r.Context(), node, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = r.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// placed waits until the function's only pod is on a node.
func (r *rig) placed(f *provider.Function, node string) *corev1.Pod {
	r.Helper()
	var pod corev1.Pod
	r.await("pod", func() string {
		if all := r.pods(f); len(all) == 1 && all[0].Spec.NodeName == node {
			pod = all[0]
			return ""
		}
		return "it is not placed"
	})
	return &pod
}

// says sets a pod's status, as its node would.
func (r *rig) says(pod *corev1.Pod) *corev1.Pod {
	r.Helper()
	var out *corev1.Pod
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // Others write to it, too.
		now, err := r.client.CoreV1().Pods(namespace).Get(r.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status = pod.Status
		out, err = r.client.CoreV1().Pods(namespace).UpdateStatus(r.Context(), now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// All objects of a function are deleted with it, even if no provider runs.
func TestObjectsGoWithTheFunction(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, _ := p.deploy(types.FunctionDeployment{Service: "gone", Image: "x"})
	p.ready(f, 1)
	p.stop()
	r.forget(f)
	// The garbage collector looks for new kinds of objects every 30 s.
	r.awaitFor(2*patience, "garbage collection", func() string {
		if _, err := r.client.AppsV1().Deployments(namespace).Get(t.Context(), "gone", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return ""
		}
		return "the Deployment is there"
	})
}

// The objects of a function that has become a model's are deleted.
func TestStray(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, _ := p.deploy(types.FunctionDeployment{Service: "stray", Image: "x"})
	p.ready(f, 1)
	p.stop()
	next := r.replica()
	if err := next.Release(t.Context(), f.Name); err != nil {
		t.Fatal(err)
	}
	next.Wake()
	r.await("the stray's end", func() string {
		if _, err := r.client.AppsV1().Deployments(namespace).Get(t.Context(), "stray", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return ""
		}
		return "it is there"
	})
}

// A missing right is named when the provider starts.
func TestRightsTooNarrow(t *testing.T) {
	r := newRig(t)
	config := r.cluster.Config()
	config.Impersonate.UserName = "nobody"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// It is tried for as long as it may take, so that little has to do on an idle machine.
	for _, patience := range []time.Duration{3 * time.Second, patience} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = deployments.New(ctx, deployments.Options{Client: client, Metrics: newMetrics(), Functions: r.object})
		cancel()
		if err != nil && strings.Contains(err.Error(), "cannot list resource") {
			return
		}
	}
	t.Errorf("opened: %v", err)
}

// OpenFaaS' own Profile objects are used if the cluster has their definition.
func TestProfileObjects(t *testing.T) {
	r := newRig(t)
	for _, manifest := range []string{profileDefinition, profileObject} {
		r.await("profile", func() string {
			out, err := r.cluster.Kubectl(t.Context(), manifest, "apply", "-f", "-")
			if err != nil {
				return out + err.Error()
			}
			return ""
		})
	}
	p := r.replica()
	f, _ := p.deploy(types.FunctionDeployment{Service: "spread", Image: "x", Annotations: pairs("com.openfaas.profile", "tsc")})
	p.ready(f, 1)
	if spread := r.deployment(f).Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 1 || spread[0].TopologyKey != "kubernetes.io/hostname" {
		t.Errorf("%+v", spread)
	}
}

const profileDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: profiles.openfaas.com}
spec:
  group: openfaas.com
  names: {kind: Profile, plural: profiles, singular: profile}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const profileObject = `
apiVersion: openfaas.com/v1
kind: Profile
metadata: {name: tsc, namespace: openfaas}
spec:
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {faas_function: spread}}}
`
