package deployments

import (
	"slices"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/provider/deployments"
)

// A function becomes a Deployment and a Service that belong to its object. It answers, and
// both are gone when it is removed.
func TestLife(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	for name, kind := range map[string]corev1.SecretType{"api-key": corev1.SecretTypeOpaque, "hub": corev1.SecretTypeDockerConfigJson} {
		data := map[string][]byte{"api-key": []byte("x")}
		if kind == corev1.SecretTypeDockerConfigJson {
			data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, Data: data}
		if _, err := r.client.CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.profile("roomy", "tolerations: [{key: nvme, operator: Exists}]\npodSecurityContext: {runAsUser: 1001}")
	began := time.Now()
	f, d := p.deploy(types.FunctionDeployment{
		Service: "figlet", Image: "registry.example/figlet:1", EnvProcess: "figlet", EnvVars: map[string]string{"write_timeout": "1m"},
		Secrets: []string{"api-key", "hub"}, Constraints: []string{"type=kwok"}, ReadOnlyRootFilesystem: true,
		Labels:      pairs("com.openfaas.scale.min", "2", "team", "blue"),
		Annotations: pairs("com.openfaas.profile", "roomy", "com.openfaas.health.http.path", "/healthz"),
		Limits:      &types.FunctionResources{CPU: "1", Memory: "256Mi"}, Requests: &types.FunctionResources{CPU: "100m"},
	})
	answer, err := invoke(t.Context(), d, "/")
	if err != nil || answer.Status != 200 {
		t.Fatal(answer, err)
	}
	t.Logf("deployed and answered in %v", time.Since(began))
	p.ready(f, 2)
	var made *appsv1.Deployment
	r.await("its owner", func() string { // It was made before the object was.
		if made = r.deployment(f); len(made.OwnerReferences) == 0 {
			return "it has none"
		}
		return ""
	})
	pod := made.Spec.Template.Spec
	if owner := made.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Function" || made.Labels["team"] != "blue" || made.Spec.Template.Labels["com.openfaas.scale.min"] != "" {
		t.Errorf("made %+v", made.ObjectMeta)
	}
	if c := pod.Containers[0]; c.Image != "registry.example/figlet:1" || c.ReadinessProbe.HTTPGet.Path != "/healthz" || c.Resources.Limits.Cpu().String() != "1" || *pod.SecurityContext.RunAsUser != 1001 ||
		pod.NodeSelector["type"] != "kwok" || pod.ImagePullSecrets[0].Name != "hub" || *pod.TerminationGracePeriodSeconds <= 60 || c.Lifecycle.PreStop.Sleep == nil ||
		!slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.Key == "nvme" }) {
		t.Errorf("made %+v", pod)
	}
	service, err := r.client.CoreV1().Services(namespace).Get(t.Context(), "figlet", metav1.GetOptions{})
	if err != nil || service.Spec.Ports[0].Port != 8080 || service.Spec.Selector["faas_function"] != "figlet" || len(service.Spec.ClusterIPs) != 2 {
		t.Errorf("service %+v, %v", service, err)
	}
	if s, ok := p.Status(f.Name); !ok || s.Replicas != 2 || s.AvailableReplicas != 2 {
		t.Errorf("status %+v, %v", s, ok)
	}
	if d, _ := p.Describe(f.Name); d.Instances[0].Node == "" || d.Instances[0].Function != f.Name || d.Instances[0].Config.CPU != 100 {
		t.Errorf("instances %+v", d.Instances)
	}

	r.forget(f)
	if err := p.Remove(t.Context(), f.Name); err != nil {
		t.Fatal(err)
	}
	r.await("removal", func() string {
		_, err := r.client.AppsV1().Deployments(namespace).Get(t.Context(), "figlet", metav1.GetOptions{})
		_, other := r.client.CoreV1().Services(namespace).Get(t.Context(), "figlet", metav1.GetOptions{})
		if apierrors.IsNotFound(err) && apierrors.IsNotFound(other) && len(r.pods(f)) == 0 {
			return ""
		}
		return "something is left"
	})
	if _, err := invoke(t.Context(), d, "/"); err == nil {
		t.Error("a removed function answers")
	}
}

// Updates replace all instances and lose no request, and neither does scaling down.
func TestUpdateUnderLoad(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	d := types.FunctionDeployment{Service: "busy", Image: "x:1", Labels: pairs("com.openfaas.scale.min", "3", "com.openfaas.scale.target", "100000")}
	f, dispatcher := p.deploy(d)
	p.ready(f, 3)
	l := r.load(dispatcher, 8, "/")
	slow := r.load(dispatcher, 2, "/slow")
	for range 3 {
		var same any
		f, same = p.deploy(d)
		if same != dispatcher {
			t.Error("an update changed the dispatcher")
		}
		want := f.Revision
		r.await("update", func() string {
			d, _ := p.Describe(f.Name)
			for _, in := range d.Instances {
				if in.Revision != want {
					return "an older instance is there"
				}
			}
			if d.Ready < 3 {
				return "too few are ready"
			}
			return ""
		})
	}
	if err := p.Scale(f.Name, 1); err != nil { // The minimum holds.
		t.Fatal(err)
	}
	if err := p.Scale(f.Name, 6); err != nil {
		t.Fatal(err)
	}
	p.ready(f, 6)
	if err := p.Scale(f.Name, 3); err != nil {
		t.Fatal(err)
	}
	p.ready(f, 3)
	l.end(r)
	slow.end(r)
}

// A function at zero has no pods. A request starts one and waits for it.
func TestToZeroAndBack(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, d := p.deploy(types.FunctionDeployment{Service: "sleeper", Image: "x"})
	p.ready(f, 1)
	for range 3 {
		if err := p.Scale(f.Name, 0); err != nil {
			t.Fatal(err)
		}
		r.await("zero", func() string {
			if d, _ := p.Describe(f.Name); len(d.Instances) == 0 && len(r.pods(f)) == 0 {
				return ""
			}
			return "an instance is there"
		})
		began := time.Now()
		answer, err := invoke(t.Context(), d, "/")
		if err != nil || answer.Status != 200 {
			t.Fatal(answer, err)
		}
		t.Logf("from zero in %v", time.Since(began))
		p.ready(f, 1)
	}
	f, d = p.deploy(types.FunctionDeployment{Service: "idler", Image: "x", Labels: pairs("com.openfaas.scale.zero", "true", "com.openfaas.scale.zero-duration", "1s")})
	if answer, err := invoke(t.Context(), d, "/"); err != nil || answer.Status != 200 {
		t.Fatal(answer, err)
	}
	p.ready(f, 0)
}

// A higher load adds instances.
func TestScalesWithLoad(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, d := p.deploy(types.FunctionDeployment{Service: "popular", Image: "x", Labels: pairs("com.openfaas.scale.max", "4", "com.openfaas.scale.target", "5")})
	p.ready(f, 1)
	l := r.load(d, 4, "/")
	p.ready(f, 4)
	l.end(r)
}

// The controller reverts manual changes of the objects.
func TestHandsOff(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, _ := p.deploy(types.FunctionDeployment{Service: "stubborn", Image: "x"})
	p.ready(f, 1)
	if out, err := r.cluster.Kubectl(t.Context(), "", "-n", namespace, "scale", "deployment/stubborn", "--replicas=3"); err != nil {
		t.Fatal(out, err)
	}
	r.await("replicas", func() string {
		if d := r.deployment(f); d.Generation > 2 && *d.Spec.Replicas == 1 {
			return ""
		}
		return "three are wanted"
	})
	if out, err := r.cluster.Kubectl(t.Context(), "", "-n", namespace, "delete", "deployment/stubborn"); err != nil {
		t.Fatal(out, err)
	}
	p.ready(f, 1)
}

// A provider that restarts finds the running instances and does not change them.
func TestTakesOver(t *testing.T) {
	r := newRig(t)
	p := r.replica()
	f, _ := p.deploy(types.FunctionDeployment{Service: "steady", Image: "x", Labels: pairs("com.openfaas.scale.min", "2")})
	p.ready(f, 2)
	if err := p.Scale(f.Name, 3); err != nil {
		t.Fatal(err)
	}
	p.ready(f, 3)
	before := r.deployment(f)
	p.stop()
	next := r.replica(func(o *deployments.Options) { o.Metrics = newMetrics() })
	d, err := next.Deploy(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := invoke(t.Context(), d, "/"); err != nil || answer.Status != 200 {
		t.Fatal(answer, err)
	}
	next.ready(f, 3)
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(50 * time.Millisecond) {
		if now := r.deployment(f); now.Generation != before.Generation || now.UID != before.UID {
			t.Fatalf("generation %d became %d", before.Generation, now.Generation)
		}
	}
}
