package kubernetes_test

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// The stock gateway asks the provider over TLS, and the provider a model's pod. Nobody else gets an
// answer of the pod's, except about its health. An instance from before the option goes on serving, and a
// renewed certificate reaches the namespace.
func TestTLS(t *testing.T) {
	f := shared(t)
	host := f.RegistryHost()
	f.pushDigits(t)
	ask := func(url string) error {
		got, err := get(t.Context(), http.MethodPost, url+"/function/digits", blackPicture)
		if err == nil && !strings.Contains(got, "predictions") {
			err = errors.New(got)
		}
		return err
	}
	url := f.provider(t, "plain")
	f.kubectl(t, fmt.Sprintf(digits, host), "apply", "-f", "-")
	await(t, "an answer without TLS", func() error { return ask(url) })
	before := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-o", "jsonpath={.items[*].metadata.name}")
	f.killProvider()

	a := mutualtest.NewAuthority(t, time.Now().Add(time.Hour))
	own, instances, trusted := t.TempDir(), t.TempDir(), t.TempDir()
	a.Issue(t, own, mutualtest.Certificate{Names: []string{mutual.ProviderName, node.NodeAddress}})
	a.Issue(t, instances, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
	text, err := os.ReadFile(filepath.Join(own, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(trusted, "ca.crt"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	url = f.provider(t, "secure", "--tls", own, "--instance-tls", instances)
	if err := ask(url); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("without TLS: %v", err)
	}
	f.gateway(t, "https://"+strings.TrimPrefix(url, "http://")+"/", trusted)
	const gateway = "http://127.0.0.1:8080"
	await(t, "an answer of the instance from before", func() error { return ask(gateway) })
	f.kubectl(t, "", "delete", "pods", "-n", "openfaas-fn", "--all", "--wait=false")
	var address string
	await(t, "an answer of an instance with a certificate", func() error {
		pod := strings.Fields(f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "--field-selector=status.phase=Running", "-o", `jsonpath={range .items[?(@.spec.volumes[0].name=="faas-infer-tls")]}{.metadata.name} {.status.podIP} {.status.containerStatuses[0].ready}{"\n"}{end}`))
		if len(pod) != 3 || strings.Contains(before, pod[0]) || pod[2] != "true" {
			return fmt.Errorf("the pods are %v", pod)
		}
		address = pod[1] + ":8080"
		return ask(gateway)
	})
	// The gateway adds its counts, for which it asks the provider without TLS.
	if list, err := get(t.Context(), http.MethodGet, gateway+"/system/functions", ""); err != nil || !strings.Contains(list, `"digits"`) {
		t.Errorf("the gateway lists %s, %v", list, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for target, want := range map[string]int{
		"GET http://" + address + "/_/ready": 200, "POST http://" + address + "/": 401, "POST https://" + address + "/": 401,
	} {
		method, at, _ := strings.Cut(target, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		said, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s %s, want %d", target, answer.Status, said, want)
		}
	}
	a.Issue(t, instances, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
	renewed, err := os.ReadFile(filepath.Join(instances, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the renewed certificate in the namespace", func() error {
		if got := f.kubectl(t, "", "get", "secret", "faas-infer-instance-tls", "-n", "openfaas-fn", "-o", `jsonpath={.data.tls\.crt}`); got != base64.StdEncoding.EncodeToString(renewed) {
			return errors.New("it is the one of before")
		}
		return ask(gateway)
	})
}

// gateway runs the stock gateway with authorities until the test ends.
func (f *fixture) gateway(t *testing.T, provider, authorities string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(os.Getenv(gatewayVariable))
	c.Dir, c.Stdout, c.Stderr = filepath.Dir(c.Path), log, log
	c.Env = append(os.Environ(), "functions_provider_url="+provider, "SSL_CERT_DIR="+authorities, "direct_functions=false", "scale_from_zero=false", "basic_auth=false",
		"faas_prometheus_host="+node.NodeAddress, "faas_prometheus_port=8081", "function_namespace=openfaas-fn", "read_timeout=1m", "write_timeout=1m", "upstream_timeout=1m")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // Killed.
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the gateway's log ends with\n%s%v", text[max(0, len(text)-4000):], err)
		}
	})
}
