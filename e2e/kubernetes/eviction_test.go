package kubernetes_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Instances are evicted under load, as by kubectl drain. No request is lost, although none may
// be executed twice.
func TestEvictedUnderLoad(t *testing.T) {
	f := shared(t)
	f.pushDigits(t)
	url := f.provider(t, "one")
	f.kubectl(t, strings.Replace(fmt.Sprintf(digits, f.RegistryHost()), `1s}, labels: {com.openfaas.scale.min: "1"`, `1s, com.openfaas.infer.hedge: "off"}, labels: {com.openfaas.scale.min: "2"`, 1), "apply", "-f", "-")
	ready := func() (names []string) {
		for line := range strings.Lines(f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function=digits", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}{"\n"}{end}`)) {
			if w := strings.Fields(line); len(w) == 2 && w[1] == "True" {
				names = append(names, w[0])
			}
		}
		return names
	}
	await(t, "two instances", func() error {
		if got := ready(); len(got) < 2 {
			return fmt.Errorf("ready are %v", got)
		}
		return nil
	})
	var clients sync.WaitGroup
	var mu sync.Mutex
	failures, answered := map[string]int{}, 0
	stop := make(chan struct{})
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, err := get(t.Context(), http.MethodPost, url+"/function/digits", blackPicture)
				mu.Lock()
				if answered++; err != nil {
					failures[err.Error()]++
				}
				mu.Unlock()
			}
		})
	}
	const evictions = 6
	for range evictions {
		name := ready()[0]
		f.kubectl(t, fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":"openfaas-fn"}}`, name),
			"create", "--raw", "/api/v1/namespaces/openfaas-fn/pods/"+name+"/eviction", "-f", "-")
		await(t, "its replacement", func() error {
			if got := ready(); len(got) < 2 || slices.Contains(got, name) {
				return fmt.Errorf("ready are %v", got)
			}
			return nil
		})
	}
	close(stop)
	clients.Wait()
	t.Logf("%d requests during %d evictions, lost %v", answered, evictions, failures)
	if len(failures) > 0 || answered < 100 {
		t.Errorf("%d requests, of which are lost: %v", answered, failures)
	}
}
