package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

const (
	podsMetrics = "/apis/metrics.k8s.io/v1beta1/pods"
	// account is whom the provider is in the cluster.
	account = "system:serviceaccount:openfaas:faas-infer"
)

// warnings are the provider's messages about ordinary functions and models whose usage it
// cannot read.
var warnings = []string{"could not read the functions' usage", "instances' usage is unknown"}

// metricsServer starts the metrics server until the test ends.
func (f *fixture) metricsServer(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := f.StopMetricsServer(); err != nil {
			t.Error(err)
		}
		// Without a server it would keep namespaces from being deleted.
		if _, err := f.Kubectl(context.Background(), "", "delete", "apiservice/v1beta1.metrics.k8s.io", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartMetricsServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// showsUsage sends requests to functions, each with its own input, until the provider shows
// the metrics server's values for each. The values may be a while old because the two are
// not read at the same time.
func (f *fixture) showsUsage(t *testing.T, url string, inputs map[string]string) {
	t.Helper()
	began, readings := time.Now(), map[string][]types.FunctionUsage{}
	await(t, "what functions use", func() error {
		for function, input := range inputs {
			if _, err := get(t.Context(), http.MethodPost, url+"/function/"+function, input); err != nil {
				return err
			}
			measured, err := f.measured(t, function)
			if err != nil {
				return err
			}
			readings[function] = append(readings[function], measured)
		}
		for function := range inputs {
			used, err := f.usage(t, url, function)
			if err != nil {
				return err
			}
			// More than nothing, and a megabyte: a program that runs has no less.
			if used.CPU < 1 || used.TotalMemoryBytes < 1<<20 || !slices.Contains(readings[function], used) {
				return fmt.Errorf("%s is said to use %+v; the metrics server has measured %+v", function, used, readings[function])
			}
		}
		return nil
	})
	for function := range inputs {
		last := readings[function][len(readings[function])-1]
		t.Logf("after %v %s uses %.0f thousandths of a CPU and %.1f MB", time.Since(began).Round(time.Second), function, last.CPU, last.TotalMemoryBytes/1e6)
	}
}

// usage returns the provider's usage of a function.
func (f *fixture) usage(t *testing.T, url, function string) (types.FunctionUsage, error) {
	text, err := get(t.Context(), http.MethodGet, url+"/system/function/"+function+"?usage=1", "")
	if err != nil {
		return types.FunctionUsage{}, err
	}
	var status types.FunctionStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return types.FunctionUsage{}, fmt.Errorf("the status is %s: %w", text, err)
	}
	if status.Usage == nil {
		return types.FunctionUsage{}, fmt.Errorf("there is no usage in %s", text)
	}
	return *status.Usage, nil
}

// measured returns the metrics server's values of a function's containers, as the provider
// may read them, rounded up to thousandths of a CPU as Kubernetes does.
func (f *fixture) measured(t *testing.T, function string) (types.FunctionUsage, error) {
	text, err := f.Kubectl(t.Context(), "", "get", "--raw", podsMetrics+"?labelSelector=faas_function%3D"+function, "--as", account)
	if err != nil {
		return types.FunctionUsage{}, err
	}
	var list metrics.PodMetricsList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return types.FunctionUsage{}, fmt.Errorf("the metrics are %s: %w", text, err)
	}
	var sum types.FunctionUsage
	for _, pod := range list.Items {
		for _, c := range pod.Containers {
			sum.CPU += float64(c.Usage.Cpu().MilliValue())
			sum.TotalMemoryBytes += float64(c.Usage.Memory().Value())
		}
	}
	return sum, nil
}

// missesUsage stops the metrics server. It waits until the provider has warned for both
// kinds of functions that their usage is unknown, and shows none. The returned function
// fails the test if a warning was repeated by then.
func (f *fixture) missesUsage(t *testing.T, url string, functions ...string) (onceOnly func()) {
	t.Helper()
	before := f.warned(t) // On a busy machine one question may have gone without an answer.
	if err := f.StopMetricsServer(); err != nil {
		t.Fatal(err)
	}
	await(t, "the metrics server to be missed", func() error {
		for i, n := range f.warned(t) {
			if n == 0 {
				return errors.New("it does not say that " + warnings[i])
			}
		}
		for _, function := range functions {
			got, err := f.usage(t, url, function)
			if err != nil {
				return err
			}
			if got != (types.FunctionUsage{}) {
				return fmt.Errorf("%s is said to use %+v", function, got)
			}
		}
		return nil
	})
	return func() {
		t.Helper()
		for i, n := range f.warned(t) {
			if n > before[i]+1 {
				t.Errorf("%q is said %d times more", warnings[i], n-before[i])
			}
		}
	}
}

// warned returns the number of each warning.
func (f *fixture) warned(t *testing.T) []int {
	t.Helper()
	text, err := os.ReadFile(f.providerLog)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, len(warnings))
	for i, w := range warnings {
		counts[i] = strings.Count(string(text), w)
	}
	return counts
}
