package provider

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	sdk "github.com/openfaas/go-sdk"

	"github.com/faas-infer/faas-infer/provider/metrics"
)

func TestInfoForClientsThatAskDirectly(t *testing.T) {
	r := newRig(t, nil)
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sdk.NewClient(at, nil, http.DefaultClient).GetInfo(t.Context())
	if err != nil || got.Provider.Provider != providerName || got.Provider.Orchestration == "" || got.Arch == "" {
		t.Errorf("OpenFaaS's client reads %+v, %v", got, err)
	}
	const ofProvider, ofGateway = `{"provider":"faas-infer"`, `{"arch":`
	behind := newRig(t, func(o *Options) { o.BehindGateway = true })
	for _, c := range []struct {
		at     *rig
		header []string
		want   string
	}{
		{r, []string{"User-Agent", "curl/8"}, ofGateway},
		{r, []string{"User-Agent", "faas-cli/0.17", "X-Forwarded-Host", "gateway:8080"}, ofProvider}, // The stock gateway.
		{r, []string{"X-Forwarded-Host", "faas.example.com", "X-Forwarded-Proto", "https"}, ofGateway},
		{behind, []string{"X-Forwarded-Host", "faas.example.com", "X-Forwarded-Proto", "https"}, ofProvider},
		{behind, nil, ofGateway},
	} {
		if w := c.at.do("GET", "/system/info", "", c.header...); !strings.HasPrefix(w.Body.String(), c.want) {
			t.Errorf("with %v, behind a gateway %v: %s", c.header, c.at.behindGateway, w.Body)
		}
	}
}

// An AlertManager that is configured for OpenFaaS gets no error, and changes nothing.
func TestAlerts(t *testing.T) {
	r := newRig(t, nil)
	r.deploy(t, nil)
	w := r.do("POST", "/system/alert", `{"status": "firing", "alerts": [{"status": "firing", "labels": {"function_name": "mnist.openfaas-fn"}}]}`)
	if w.Code != http.StatusOK || w.Body.Len() > 0 || len(r.controller.scaled) > 0 {
		t.Errorf("%d %q, scaled %v", w.Code, w.Body, r.controller.scaled)
	}
	wantSentence(t, r.do("POST", "/system/alert", "none"), http.StatusBadRequest, "AlertManager")
	guarded := newRig(t, func(o *Options) { o.Credentials = credentials })
	wantSentence(t, guarded.do("POST", "/system/alert", "{}"), http.StatusUnauthorized)
}

// OpenFaaS' own names are there for dashboards and alerts, with the values of the provider's metrics.
func TestGatewayMetrics(t *testing.T) {
	r := newRig(t, nil)
	r.registry.MustRegister(metrics.NewGateway(r.metrics, r.Services))
	labels := map[string]string{"com.openfaas.scale.min": "1"}
	r.deploy(t, func(d *types.FunctionDeployment) { d.Labels = &labels })
	for _, body := range []string{"x", "y"} {
		r.do("POST", "/function/mnist", body)
	}
	text := r.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`gateway_function_invocation_total{code="200",function_name="mnist.openfaas-fn"} 2`,
		`gateway_function_invocation_started{function_name="mnist.openfaas-fn"} 2`,
		`gateway_functions_seconds_count{function_name="mnist.openfaas-fn"} 2`,
		`gateway_functions_seconds_bucket{function_name="mnist.openfaas-fn",le="+Inf"} 2`,
		`gateway_service_count{function_name="mnist.openfaas-fn"} 2`,
		`gateway_service_ready_count{function_name="mnist.openfaas-fn"} 1`,
		`gateway_service_min{function_name="mnist.openfaas-fn"} 1`,
		`faas_infer_requests_in_flight{function="mnist.openfaas-fn"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	r.do("DELETE", "/system/functions", `{"functionName": "mnist"}`)
	if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, `function_name="mnist`) {
		t.Error("a deleted function has metrics")
	}
}
