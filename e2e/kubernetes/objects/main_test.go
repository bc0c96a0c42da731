// Package objects tests the provider's state in Kubernetes against a real API server:
// several replicas of the provider's server side by side, and kubectl. Begin with
// replica_test.go.
package objects

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// cluster is the control plane of all tests.
var cluster *testcluster.Cluster

// patience is how long each step may take on a busy machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if config := os.Getenv(candidateVariable); config != "" {
		os.Exit(candidate(config))
	}
	flag.Parse()
	// Those that are parallel mostly wait, whatever the machine's cores.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := run(m)
	// The client's own goroutines, of its certificates, never end.
	left := ours()
	for end := time.Now().Add(patience); left != "" && time.Now().Before(end); left = ours() {
		time.Sleep(10 * time.Millisecond) // One that is about to end.
	}
	if left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// ours returns the goroutines of this project's packages, of which none may run at the end.
func ours() string {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	var left []string
	for i, stack := range strings.Split(string(all), "\n\n") {
		if i > 0 && strings.Contains(stack, "faas-infer/provider/") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	var err error
	if cluster, err = testcluster.Start(ctx, testcluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if err := prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// bare is the error of opening functions before the installation.
var bare error

// prepare makes the objects of an installation.
func prepare(ctx context.Context) error {
	bare = openAs(ctx, "")
	if err := cluster.Define(ctx, "../../../yaml/crd.yaml"); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	for _, name := range []string{"openfaas", "openfaas-fn"} {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubectl runs kubectl or fails the test.
func kubectl(t *testing.T, stdin string, arguments ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), stdin, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually fails the test unless ok returns "" within patience. Otherwise ok returns what
// is wrong.
func eventually(t *testing.T, ok func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	why := ok()
	for tick := time.NewTicker(10 * time.Millisecond); why != ""; why = ok() {
		if time.Now().After(deadline) {
			tick.Stop()
			t.Fatalf("after %v: %s", patience, why)
		}
		<-tick.C
	}
}
