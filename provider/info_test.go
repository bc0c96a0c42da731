package provider

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	sdk "github.com/openfaas/go-sdk"
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
	for _, header := range [][]string{{"User-Agent", "faas-cli/0.17", "X-Forwarded-Host", "gateway:8080"}, {"User-Agent", "Go-http-client/1.1"}} {
		if w := r.do("GET", "/system/info", "", header...); !strings.HasPrefix(w.Body.String(), `{"provider":"faas-infer"`) {
			t.Errorf("with %v it is not a provider's: %s", header, w.Body)
		}
	}
}
