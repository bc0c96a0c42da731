package kubernetes_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// In a cluster without IPv4, pods get ready by the kubelet's probes, and the provider's Service and both
// replicas answer for a model and an ordinary function. One of them hands each request on. The members of a
// cut model find each other through the network policies, and the provider reads logs.
func TestIPv6(t *testing.T) {
	began := time.Now()
	f := start(t, testcluster.Options{IPv6: true})
	url := f.installed(t)
	t.Logf("the provider is installed after %v", time.Since(began).Round(time.Second))
	f.kubectl(t, "", "apply", "-f", "../../yaml/network-policies.yaml")
	f.pushAlpine(t)
	f.pushDigits(t)
	host := f.RegistryHost()
	f.image(t, "function", chain(t), "--base", f.base, "--push", host+"/functions/cut:latest")
	ordinary := strings.Replace(fmt.Sprintf(echo, "sh"), "image: functions", "image: "+host+"/functions", 1)
	f.kubectl(t, fmt.Sprintf(digits, host)+"---\n"+ordinary+"---\n"+fmt.Sprintf(cut, host), "apply", "-f", "-")

	urls := []string{url}
	for _, ip := range strings.Fields(f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", ofProvider, "-o", "jsonpath={.items[*].status.podIP}")) {
		urls = append(urls, "http://"+net.JoinHostPort(ip, "8081"))
	}
	if len(urls) != 3 {
		t.Errorf("the provider is at %v", urls)
	}
	for _, url := range urls {
		f.answers(t, url, "digits", blackPicture, "predictions")
		f.answers(t, url, "echo", "echo said", "said")
	}
	await(t, "the function's log", func() error {
		got, err := get(t.Context(), http.MethodGet, strings.Replace(url, "http://", "http://admin:secret@", 1)+"/system/logs?name=echo&namespace=openfaas-fn&follow=false", "")
		if err == nil && !strings.Contains(got, "Forking fprocess") {
			err = errors.New(got)
		}
		return err
	})
	t.Logf("the functions answer after %v", time.Since(began).Round(time.Second))
	f.answers(t, url, "cut", chainInput(), "predictions")
	t.Logf("the cut model answers after %v", time.Since(began).Round(time.Second))
	f.allIPv6(t)
}

// answers awaits an answer of a function in which there is a text.
func (f *fixture) answers(t *testing.T, url, function, input, want string) {
	t.Helper()
	await(t, function+"'s answer at "+url, func() error {
		got, err := get(t.Context(), http.MethodPost, url+"/function/"+function, input)
		if err == nil && !strings.Contains(got, want) {
			err = errors.New(got)
		}
		return err
	})
}

// allIPv6 checks that all addresses in the cluster are of IPv6, and that functions' pods of all kinds are ready that
// no probe has made start again.
func (f *fixture) allIPv6(t *testing.T) {
	t.Helper()
	for _, ask := range []string{"get nodes -o jsonpath={.items[*].status.addresses[?(@.type=='InternalIP')].address}", "get pods -A -o jsonpath={.items[*].status.podIPs[*].ip}",
		"get services -A -o jsonpath={.items[*].spec.clusterIPs[*]}", "get endpointslices -A -o jsonpath={.items[*].endpoints[*].addresses[*]}"} {
		all := strings.Fields(f.kubectl(t, "", strings.Fields(ask)...))
		if len(all) == 0 {
			t.Errorf("%s: none", ask)
		}
		for _, text := range all {
			if ip, err := netip.ParseAddr(text); err != nil || !ip.Is6() {
				t.Errorf("%s: %q", ask, text)
			}
		}
	}
	for selector, want := range map[string]int{ofDigits: 1, "faas_function=echo": 1, "faas_function=cut": 2} {
		if ready := f.readyPods(t, "openfaas-fn", selector); len(ready) < want {
			t.Errorf("ready with %s are %v", selector, ready)
		}
	}
	restarts := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if strings.Trim(restarts, "0 ") != "" {
		t.Errorf("functions' containers have been started again: %s", restarts)
	}
}
