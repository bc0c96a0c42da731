// Package failures tests that a provider on Kubernetes keeps serving, and reaches the same
// final state, under failures of the API server, watches, nodes, pods and other replicas.
// API server, scheduler and controller manager are real. kwok simulates pods, and stand-ins
// answer for them. Begin with helper_test.go.
package failures

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
)

// shared is what all tests use. Those that are apart run beside each other, when the others are over.
var shared struct {
	*testcluster.Cluster
	client    *clientset.Clientset
	instances *testprovider.StandIns
}

const (
	// patience is how long anything may take on a busy machine.
	patience = 3 * time.Minute
	// modelTime is a batch of one's, objective the functions', which is beyond what a busy
	// machine stands still: what is refused as too late was held up by what the test does.
	modelTime = 5 * time.Millisecond
	objective = 5 * time.Second
)

func TestMain(m *testing.M) {
	flag.Parse()
	// They mostly wait, whatever the machine's cores.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	shared.Cluster = c
	if err := c.Namespaces(ctx, nil, testprovider.Namespace, leaseNamespace); err != nil {
		return 1, err
	}
	if err := c.Define(ctx, "../../../yaml/crd.yaml"); err != nil {
		return 1, err
	}
	if shared.client, err = clientset.NewForConfig(c.Config()); err != nil {
		return 1, err
	}
	shared.instances, err = testprovider.StartStandIns(func(batch int) time.Duration { return testprovider.Times(modelTime, batch) })
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, shared.instances.Close()) }()
	return m.Run(), nil
}
