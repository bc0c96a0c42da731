package kubernetes_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
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

// stockGateway is where gateway serves.
const stockGateway = "http://127.0.0.1:8080"

// certified are the directories with certificates of one authority: the provider's own, the instances', and
// what the gateway trusts.
type certified struct {
	*mutualtest.Authority
	own, instances, trusted string
}

func newCertified(t *testing.T) *certified {
	t.Helper()
	c := &certified{mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), t.TempDir(), t.TempDir(), t.TempDir()}
	c.Issue(t, c.own, mutualtest.Certificate{Names: []string{mutual.ProviderName, node.NodeAddress}})
	c.renew(t)
	text, err := os.ReadFile(filepath.Join(c.own, "ca.crt"))
	if err == nil {
		err = os.WriteFile(filepath.Join(c.trusted, "ca.crt"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// renew issues a certificate for instances.
func (c *certified) renew(t *testing.T) {
	t.Helper()
	c.Issue(t, c.instances, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
}

// client returns an HTTP client that trusts the authority, and shows what is in a directory, "" for nothing.
func (c *certified) client(t *testing.T, shown string) *http.Client {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.trusted, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	if shown != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(shown, "tls.crt"), filepath.Join(shown, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

// flags are those of a provider with the certificates.
func (c *certified) flags() []string {
	return []string{"--tls", c.own, "--instance-tls", c.instances, "--copies", "openfaas-fn", "--service", "faas-infer", "--lease-duration", "5s"}
}

// The stock gateway asks two replicas of the provider over TLS, these each other, and the pods of a model, of
// a program, of a cut model and of a pair. Nobody else gets an answer of a pod's, except about its health.
// Instances from before the option go on serving, and a renewed certificate reaches the namespace. Refused
// certificates are in the logs.
func TestTLS(t *testing.T) {
	f := shared(t)
	f.shareCopies(t, "resnet-20", "functions/shadowed:latest", 10*time.Second)
	f.pushDigits(t)
	f.pushAlpine(t)
	f.pushChain(t)
	url := f.provider(t, "plain")
	f.kubectl(t, fmt.Sprintf(digits, f.RegistryHost()), "apply", "-f", "-")
	f.kubectl(t, fmt.Sprintf(echo, "cat"), "apply", "-f", "-")
	await(t, "the answers without TLS", func() error { return askBoth(t, url) })
	before := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-o", "jsonpath={.items[*].metadata.name}")
	f.killProvider()

	c := newCertified(t)
	f.kubectl(t, fmt.Sprintf(twoReplicas, node.NodeAddress), "apply", "-f", "-")
	urls := []string{f.provider(t, "secure-0", c.flags()...)}
	killFirst := f.killProvider
	urls = append(urls, f.providerAt(t, 8083, "secure-1", c.flags()...))
	if err := askBoth(t, urls[0]); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("without TLS: %v", err)
	}
	f.gateway(t, strings.Replace(urls[0], "http://", "https://", 1)+"/", c.trusted)
	await(t, "the answers of the instances from before", func() error { return askBoth(t, stockGateway) })
	began := time.Now()
	f.kubectl(t, cutChain+"---\n"+fmt.Sprintf(shadowed, "pairs", "auto"), "apply", "-f", "-") // Their preparations take time.
	f.kubectl(t, "", "delete", "pods", "-n", "openfaas-fn", "-l", "faas_function=digits", "--wait=false")
	f.kubectl(t, fmt.Sprintf(echo, "cat -u"), "apply", "-f", "-") // Programs' pods keep the setting of their deployment.
	for _, name := range []string{"digits", "echo"} {
		var pod, address string
		await(t, "an answer of an instance of "+name+" with a certificate", func() (err error) {
			if pod, address, err = f.securePod(t, name, before); err != nil {
				return err
			}
			return askBoth(t, stockGateway)
		})
		f.refuses(t, c, name, pod, address)
	}
	c.renew(t)
	// The gateway adds its counts, for which it asks the provider without TLS.
	if list, err := get(t.Context(), http.MethodGet, stockGateway+"/system/functions", ""); err != nil || !strings.Contains(list, `"digits"`) {
		t.Errorf("the gateway lists %s, %v", list, err)
	}
	f.handOn(t, c, urls)
	t.Logf("certificates looked at in %v", time.Since(began).Round(time.Second))
	f.answersInParts(t)
	t.Logf("a cut model's answer after %v", time.Since(began).Round(time.Second))
	f.pairs(t, urls)
	t.Logf("a pair's rows after %v", time.Since(began).Round(time.Second))
	await(t, "the renewed certificate in the namespace", func() error {
		renewed, err := os.ReadFile(filepath.Join(c.instances, "tls.crt"))
		if err != nil {
			return err
		}
		if got := f.kubectl(t, "", "get", "secret", "faas-infer-instance-tls", "-n", "openfaas-fn", "-o", `jsonpath={.data.tls\.crt}`); got != base64.StdEncoding.EncodeToString(renewed) {
			return errors.New("it is the one of before")
		}
		return askBoth(t, stockGateway)
	})
	killFirst()
	f.killProvider()
	f.distrusts(t)
}

// askBoth returns an error unless the model digits and the program echo answer at a gateway or a provider.
func askBoth(t *testing.T, url string) error {
	got, err := get(t.Context(), http.MethodPost, url+"/function/digits", blackPicture)
	if err == nil && !strings.Contains(got, "predictions") {
		err = errors.New(got)
	}
	if err != nil {
		return err
	}
	if got, err = get(t.Context(), http.MethodPost, url+"/function/echo", "hello"); err == nil && got != "hello" {
		err = fmt.Errorf("echo answers %q", got)
	}
	return err
}

// securePod returns the only pod of a function that does not end, and its address. It has a certificate, is
// ready and is none of those before.
func (f *fixture) securePod(t *testing.T, function, before string) (name, address string, err error) {
	t.Helper()
	list := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function="+function, "--field-selector=status.phase=Running", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.status.containerStatuses[0].ready} {.spec.volumes[*].name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 3 && !strings.Contains(before, fields[0]) && fields[2] == "true" && strings.Contains(line, "faas-infer-tls") {
			return fields[0], fields[1] + ":8080", nil
		}
	}
	return "", "", fmt.Errorf("the pods are %s", list)
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
