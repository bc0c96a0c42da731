package provider

import (
	"net/http"
	"runtime"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/web"
)

// providerName is what the provider tells of itself.
const providerName = "faas-infer"

// gatewayInfo is what a gateway tells of itself and of its provider.
type gatewayInfo struct {
	Arch     string             `json:"arch"`
	Provider types.ProviderInfo `json:"provider"`
	Version  types.VersionInfo  `json:"version"`
}

// info is GET /system/info. A gateway wants to know of a provider, and puts that
// into what it tells; a client of OpenFaaS that asks directly expects what a
// gateway tells, since it knows of nothing else.
func (s *Server) info(w http.ResponseWriter, r *http.Request) error {
	own := types.ProviderInfo{Name: providerName, Orchestration: providerName, Version: &s.version}
	if takesForGateway(r) {
		web.WriteJSON(w, gatewayInfo{Arch: runtime.GOARCH, Provider: own, Version: s.version})
		return nil
	}
	web.WriteJSON(w, own)
	return nil
}

// takesForGateway reports whether the request is one that OpenFaaS's clients,
// faas-cli and its SDK, send to a gateway, and no gateway has passed on.
func takesForGateway(r *http.Request) bool {
	if r.Header.Get("X-Forwarded-Host") != "" {
		return false
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "faas-cli/") || strings.HasPrefix(agent, "openfaas-go-sdk")
}
