package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// recount marks a pod of a function, as the backend does with one of its instances.
func recount(client kubernetes.Interface) func(ctx context.Context, name, mark string) error {
	return func(ctx context.Context, full, mark string) error {
		name, namespace, _ := strings.Cut(full, ".")
		pods := client.CoreV1().Pods(namespace)
		found, err := pods.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.FunctionLabel + "=" + name, Limit: 1})
		if err != nil || len(found.Items) == 0 {
			return err
		}
		_, err = pods.Patch(ctx, found.Items[0].Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.CountedAnnotation, mark), metav1.PatchOptions{})
		return err
	}
}

// budget is a function with pods that are ready, and a PodDisruptionBudget on them.
type budget struct {
	t      *testing.T
	client kubernetes.Interface
	of     *replica
	name   string
	made   int
}

// startBudget deploys a function and makes its budget.
func startBudget(t *testing.T, of *replica, name, rule string) *budget {
	t.Helper()
	b := &budget{t: t, client: clientOf(t, cluster.Config()), of: of, name: name}
	kubectl(t, applied("openfaas-fn", name, name+":1", "50ms"), "apply", "-f", "-")
	of.invoked(t, name, name+":1")
	kubectl(t, fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":%q,"namespace":"openfaas-fn"},
		"spec":{%s,"selector":{"matchLabels":{"faas_function":%q}}}}`, name, rule, name), "apply", "-f", "-")
	return b
}

// wants sets how many instances the provider wants, and makes pods until so many are ready.
func (b *budget) wants(n int) {
	b.t.Helper()
	b.of.shows(b.name+".openfaas-fn", provider.Status{Replicas: uint64(n), AvailableReplicas: uint64(n)}, "")
	function := kubectl(b.t, "", "get", "fn", b.name, "-n", "openfaas-fn", "-o", "jsonpath={.metadata.uid}")
	pods := b.client.CoreV1().Pods("openfaas-fn")
	for have := len(b.pods()); have < n; have++ {
		b.made++
		isController := true
		pod, err := pods.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", b.name, b.made), Labels: map[string]string{v1alpha1.FunctionLabel: b.name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: b.name, UID: types.UID(function), Controller: &isController}},
		}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: b.name, Image: "i"}}, NodeSelector: map[string]string{"none": "such"}}}, metav1.CreateOptions{})
		if err == nil {
			// The budgets of pods that wait do not count.
			const ready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
			_, err = pods.Patch(b.t.Context(), pod.Name, types.StrategicMergePatchType, []byte(ready), metav1.PatchOptions{}, "status")
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// pods lists the function's pods.
func (b *budget) pods() []corev1.Pod {
	b.t.Helper()
	found, err := b.client.CoreV1().Pods("openfaas-fn").List(b.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.FunctionLabel + "=" + b.name})
	if err != nil {
		b.t.Fatal(err)
	}
	return found.Items
}

// allows waits until the disruption controller expects so many pods and allows so many
// evictions. The controller manager learns new kinds twice a minute, and calculates a budget that
// came earlier only when the provider makes it.
func (b *budget) allows(expected, allowed int32) {
	b.t.Helper()
	eventually(b.t, func() string {
		p, err := b.client.PolicyV1().PodDisruptionBudgets("openfaas-fn").Get(b.t.Context(), b.name, metav1.GetOptions{})
		if err != nil || p.Status.ExpectedPods != expected || p.Status.DisruptionsAllowed != allowed {
			text, _ := json.Marshal(p.Status)
			return fmt.Sprintf("%s: %s, %v, not %d allowed of %d", b.name, text, err, allowed, expected)
		}
		return ""
	})
}

// evicts evicts one pod and reports whether it may.
func (b *budget) evicts() bool {
	b.t.Helper()
	err := b.client.CoreV1().Pods("openfaas-fn").EvictV1(b.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: b.pods()[0].Name}})
	if err != nil && !apierrors.IsTooManyRequests(err) {
		b.t.Fatal(err)
	}
	return err == nil
}

// Users' PodDisruptionBudgets on a model with a minimum of 0 and five instances allow the
// evictions that they say, and no more until the evicted ones are replaced. They follow the
// number of instances up and down. One of 100 % blocks evictions, and no deletion.
func TestBudgets(t *testing.T) {
	a := start(t, true)
	for name, c := range map[string]struct {
		rule string
		// allowed are the evictions at five instances, fewer those at two.
		allowed, fewer int32
	}{
		"one-away":  {`"maxUnavailable":1`, 1, 1},
		"half-away": {`"minAvailable":"50%"`, 2, 1},
		"none-away": {`"minAvailable":"100%"`, 0, 0},
		"two-stay":  {`"minAvailable":2`, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBudget(t, a, name, c.rule)
			b.wants(5)
			counts := int32(5)
			b.allows(counts, c.allowed)
			for range c.allowed {
				if !b.evicts() {
					t.Error("an eviction is refused")
				}
			}
			if name == "two-stay" {
				counts = 2 // An absolute minimum counts the pods that there are.
			}
			b.allows(counts, 0)
			if b.evicts() {
				t.Error("one eviction more is allowed")
			}
			b.wants(5)
			b.allows(5, c.allowed)
			// The load falls: the provider deletes pods, whatever the budget says.
			b.wants(2)
			for _, pod := range b.pods()[2:] {
				if err := b.client.CoreV1().Pods("openfaas-fn").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
			b.allows(2, c.fewer)
			kubectl(t, "", "delete", "fn/"+name, "pdb/"+name, "-n", "openfaas-fn")
			eventually(t, func() string {
				if n := len(b.pods()); n > 0 {
					return fmt.Sprintf("%d pods are left", n)
				}
				return ""
			})
		})
	}
}

// A number that kubectl scale writes is the minimum, and the scale subresource shows the real
// number again, whoever leads then. A deployment keeps both.
func TestScaledByHand(t *testing.T) {
	a, b := start(t, true), start(t, false)
	kubectl(t, applied("openfaas-fn", "scaled", "scaled:1", "50ms"), "apply", "-f", "-")
	a.invoked(t, "scaled", "scaled:1")
	const full = "scaled.openfaas-fn"
	spec := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if got := kubectl(t, "", "get", "fn", "scaled", "-n", "openfaas-fn", "-o", "jsonpath={.spec.replicas} {.spec.instances}"); got != want {
				return fmt.Sprintf("replicas and instances are %q, not %q", got, want)
			}
			return ""
		})
	}
	a.shows(full, provider.Status{Replicas: 3, Pods: 6, AvailableReplicas: 3}, "")
	spec(" 6")
	kubectl(t, "", "scale", "fn/scaled", "-n", "openfaas-fn", "--replicas=2")
	spec("2 6")
	a.leading.Store(false)
	kubectl(t, "", "scale", "fn/scaled", "-n", "openfaas-fn", "--replicas=4", "--current-replicas=6")
	b.shows(full, provider.Status{Replicas: 7, AvailableReplicas: 7}, "")
	b.leading.Store(true)
	spec("4 7")
	eventually(t, func() string {
		b.controller.mu.Lock()
		defer b.controller.mu.Unlock()
		if n := b.scaled[full]; n != 4 {
			return fmt.Sprintf("scaled to %d", n)
		}
		return ""
	})
	b.must(t, 202, "PUT", "/system/functions", deployment("scaled", "scaled:2", nil))
	spec("4 7")
	if got := kubectl(t, "", "get", "fn", "scaled", "-n", "openfaas-fn", "-o", "jsonpath={.status.deployed.spec.instances}"); got != "" {
		t.Errorf("the deployment has %s instances", got)
	}
	kubectl(t, "", "delete", "fn/scaled", "-n", "openfaas-fn")
}

// A Function that kubectl applied with a value that no deployment may have is not accepted, and
// the condition names the key.
func TestBadValuesByHand(t *testing.T) {
	start(t, true)
	for name, c := range map[string]struct{ spec, names string }{
		"slo-of-zero":     {`"annotations":{"com.openfaas.slo.latency":"0"}`, "com.openfaas.slo.latency"},
		"slo-below-zero":  {`"annotations":{"com.openfaas.slo.latency":"-1s"}`, "com.openfaas.slo.latency"},
		"cpu-below-zero":  {`"limits":{"cpu":"-1"}`, "limits.cpu"},
		"memory-of-minus": {`"requests":{"memory":"-1"}`, "requests.memory"},
		"scale-of-minus":  {`"labels":{"com.openfaas.scale.min":"-1"}`, "com.openfaas.scale.min"},
	} {
		_, err := cluster.Kubectl(t.Context(), fmt.Sprintf(`{"apiVersion":"faas-infer.dev/v1alpha1","kind":"Function","metadata":{"name":%q,"namespace":"openfaas-fn"},"spec":{"image":"i",%s}}`, name, c.spec), "apply", "-f", "-")
		if err != nil { // The schema may refuse it at once.
			if _, key, _ := strings.Cut(c.names, "."); !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		eventually(t, func() string { return stillTelling(t, name, "Accepted", "False") })
		eventually(t, func() string { return stillTelling(t, name, "Why", c.names) })
	}
	kubectl(t, "", "delete", "fn", "--all", "-n", "openfaas-fn")
}
