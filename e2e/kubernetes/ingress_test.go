package kubernetes_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
)

// edge is what an administrator makes for Traefik: a class of Ingresses, and a Gateway with one listener.
const edge = `apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: traefik}
spec: {controller: traefik.io/ingress-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: traefik}
spec: {controllerName: traefik.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: kube-public}
spec:
  gatewayClassName: traefik
  listeners: [{name: web, protocol: HTTP, port: %d, allowedRoutes: {namespaces: {from: All}}}]
`

// Traefik leads clients to the provider by the chart's Ingress with TLS and by its HTTPRoute: faas-cli, requests
// to functions and gRPC. Wrong passwords and wrong hosts are refused.
func TestControllerLeadsToProvider(t *testing.T) {
	if os.Getenv("FAAS_INFER_TRAEFIK") == "" {
		t.Skip("run by make test-ingress: Traefik takes minutes to build")
	}
	f := start(t, testcluster.Options{})
	f.kubectl(t, "", "delete", "crd/functions.faas-infer.dev") // The chart has it.
	web, secure := f.traefik(t)
	f.kubectl(t, fmt.Sprintf(edge, web), "apply", "-f", "-")
	authority, pair := mutualtest.NewAuthority(t, time.Now().Add(time.Hour)), t.TempDir()
	authority.Issue(t, pair, mutualtest.Certificate{Names: []string{"localhost"}})
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "tls", "edge", "--cert", filepath.Join(pair, "tls.crt"),
		"--key", filepath.Join(pair, "tls.key"))
	image := f.RegistryHost() + "/faas-infer/provider"
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", image+":latest")
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth",
		"--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=secret")
	f.helm(t, "install", "faas-infer", "../../yaml/chart/faas-infer", "--set", "image.repository="+image+",image.tag=latest,"+
		"resources.requests.cpu=100m,resources.requests.memory=128Mi,resources.requests.ephemeral-storage=128Mi,"+
		"service.appProtocol=kubernetes.io/h2c,service.annotations.traefik\\.ingress\\.kubernetes\\.io/service\\.serversscheme=h2c,"+
		"ingress.enabled=true,ingress.className=traefik,ingress.hosts[0].host=localhost,"+
		"ingress.tls[0].secretName=edge,ingress.tls[0].hosts[0]=localhost,"+
		"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,httpRoute.parentRefs[0].namespace=kube-public")

	trusted := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(pair, "ca.crt"))
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal("the authority's certificate cannot be read", err)
	}
	byIngress, byRoute := fmt.Sprintf("https://localhost:%d", secure), fmt.Sprintf("http://localhost:%d", web)
	client := &http.Client{Timeout: moment, Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	f.deploysThrough(t, byIngress)
	for _, url := range []string{byIngress, byRoute} {
		c := newClients(url)
		c.client = client
		await(t, "an answer of the model at "+url, func() error { return c.post(t.Context()) })
		status(t, client, url+"/system/functions", "", http.StatusUnauthorized)
	}
	status(t, client, byIngress+"/healthz", "other.example.com", http.StatusNotFound)
	await(t, "gRPC at "+byIngress, func() error {
		return modelReady(t.Context(), fmt.Sprintf("localhost:%d", secure), &tls.Config{RootCAs: trusted})
	})
}

// traefik starts Traefik on the node, and returns the ports of its entrypoints without and with TLS.
func (f *fixture) traefik(t *testing.T) (web, secure int) {
	t.Helper()
	program, err := run("../../scripts/traefik.sh")
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := run("../../scripts/definitions.sh")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(definitions), "gateway.networking.k8s.io_*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatal("there are no definitions of the Gateway API", files, err)
	}
	for _, file := range files {
		if err := f.Define(t.Context(), file); err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []*int{&web, &secure} {
		if *port, err = engine.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(t.TempDir(), "traefik.log")
	p, err := node.StartProcess(log, append(os.Environ(), "KUBECONFIG="+f.Kubeconfig()), strings.TrimSpace(program),
		"--providers.kubernetesingress", "--providers.kubernetesgateway", "--log.level=INFO",
		"--global.sendanonymoususage=false", "--global.checknewversion=false",
		fmt.Sprintf("--entrypoints.web.address=127.0.0.1:%d", web),
		fmt.Sprintf("--entrypoints.secure.address=127.0.0.1:%d", secure), "--entrypoints.secure.http.tls=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Alive(), p.Kill()); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("Traefik's log ends with\n%s%v", text[max(0, len(text)-6000):], err)
		}
	})
	return web, secure
}

// deploysThrough deploys the model digits with faas-cli.
func (f *fixture) deploysThrough(t *testing.T, url string) {
	t.Helper()
	f.pushDigits(t)
	t.Setenv("OPENFAAS_CONFIG", t.TempDir())
	cli := os.Getenv(faasCLIVariable)
	await(t, "faas-cli to log in through "+url, func() error {
		_, err := run(cli, "login", "--gateway", url, "--tls-no-verify", "--username", "admin", "--password", "secret")
		return err
	})
	if _, err := run(cli, "deploy", "--gateway", url, "--tls-no-verify", "--name", "digits", "--image",
		f.RegistryHost()+"/functions/digits:latest", "--annotation", "com.openfaas.slo.latency=500ms"); err != nil {
		t.Fatal(err)
	}
}

// status fails the test unless a URL answers with a status. A host takes the place of the URL's.
func status(t *testing.T, client *http.Client, url, host string, want int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != want {
		t.Errorf("%s for host %q answers %s %v; want %d", url, host, response.Status, err, want)
	}
}

// modelReady asks over gRPC whether the model digits is ready.
func modelReady(ctx context.Context, address string, trusted *tls.Config) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(trusted)))
	if err != nil {
		return err
	}
	defer conn.Close()
	// ModelReadyRequest and ModelReadyResponse have the fields of these messages.
	var ready wrapperspb.BoolValue
	err = conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelReady", wrapperspb.String("digits"), &ready)
	if err == nil && !ready.Value {
		err = errors.New("the model is not ready")
	}
	return err
}
