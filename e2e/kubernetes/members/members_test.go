package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/provider/peer"
)

const (
	namespace = "openfaas"
	service   = "faas-infer"
	patience  = 4 * time.Minute
)

func options(client clientset.Interface) kubernetes.MemberOptions[peer.Member] {
	return kubernetes.MemberOptions[peer.Member]{
		Client: client, Namespace: namespace, Service: service, Port: "http", Self: "provider-0",
		Make: func(id, url string) peer.Member { return peer.Member{ID: id, URL: url} },
	}
}

func TestMembersFollowTheService(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.AddNodes(ctx, 1, "8", "32Gi", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces(ctx, nil, namespace); err != nil {
		t.Fatal(err)
	}
	client := clientset.NewForConfigOrDie(c.Config())
	makeService(t, ctx, client)
	for i := range 2 {
		makePod(t, ctx, client, i)
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	m, err := kubernetes.NewMembers(following, ctx, options(client))
	if err != nil {
		t.Fatal(err)
	}
	var group peer.Membership = m
	if group.Self() != "provider-0" {
		t.Errorf("this replica is called %q", group.Self())
	}
	awaitMembers(t, group, "provider-0", "provider-1")
	for _, one := range group.Members() {
		if !strings.HasPrefix(one.URL, "http://") || !strings.HasSuffix(one.URL, ":8081") {
			t.Errorf("%s is at %q", one.ID, one.URL)
		}
	}
	makePod(t, ctx, client, 2)
	awaitMembers(t, group, "provider-0", "provider-1", "provider-2")
	// A pod that terminates is no member. It is still asked, until it is gone.
	finalizers := func(list string) {
		t.Helper()
		if _, err := client.CoreV1().Pods(namespace).Patch(ctx, "provider-1", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["faas-infer.dev/test"]`)
	if err := client.CoreV1().Pods(namespace).Delete(ctx, "provider-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, group, "provider-0", "provider-2")
	awaitReplicas(t, group.Leaving, "provider-1")
	finalizers("null")
	awaitReplicas(t, group.Leaving)
	// What is known stays while the API server is away.
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	awaitMembers(t, group, "provider-0", "provider-2")
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	notAllowed(t, ctx, c)
	// And what happens later is seen again.
	makePod(t, ctx, client, 3)
	awaitMembers(t, group, "provider-0", "provider-2", "provider-3")
}

// notAllowed checks that a user without the right to read slices gets an error that says
// so.
func notAllowed(t *testing.T, ctx context.Context, c *testcluster.Cluster) {
	t.Helper()
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:openfaas:narrow"}
	// It is tried for as long as it may take, so that little has to do on an idle machine.
	var err error
	for _, patience := range []time.Duration{3 * time.Second, patience} {
		opening, cancel := context.WithTimeout(ctx, patience)
		_, err = kubernetes.NewMembers(opening, opening, options(clientset.NewForConfigOrDie(config)))
		cancel()
		if err != nil && strings.Contains(err.Error(), "list and watch endpointslices") {
			return
		}
	}
	t.Errorf("without the right to read EndpointSlices: %v", err)
}

func makeService(t *testing.T, ctx context.Context, client clientset.Interface) {
	t.Helper()
	_, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: namespace},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": service},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8081, TargetPort: intstr.FromInt32(8081)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func makePod(t *testing.T, ctx context.Context, client clientset.Interface, i int) {
	t.Helper()
	_, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("provider-%d", i), Namespace: namespace, Labels: map[string]string{"app": service}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "provider", Image: "provider"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// awaitMembers waits until these are the members.
func awaitMembers(t *testing.T, m peer.Membership, want ...string) {
	t.Helper()
	awaitReplicas(t, m.Members, want...)
}

// awaitReplicas waits until list returns these.
func awaitReplicas(t *testing.T, list func() []peer.Member, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got = nil
		for _, one := range list() {
			got = append(got, one.ID)
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the replicas are %v, want %v", got, want)
}
