package provider

import (
	"net/http"
	"runtime"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/web"
)

// providerName is the provider's name in /system/info and /system/telemetry.
const providerName = "faas-infer"

// gatewayInfo is a gateway's answer to GET /system/info.
type gatewayInfo struct {
	Arch     string             `json:"arch"`
	Provider types.ProviderInfo `json:"provider"`
	Version  types.VersionInfo  `json:"version"`
}

// info is GET /system/info. A gateway gets the provider's part, which it puts into its
// own answer. An OpenFaaS client that asks the provider directly expects a gateway's
// answer, and gets one.
func (s *Server) info(w http.ResponseWriter, r *http.Request) error {
	own := types.ProviderInfo{Name: providerName, Orchestration: providerName, Version: &s.version}
	if fromGatewayClient(r) {
		web.WriteJSON(w, gatewayInfo{Arch: runtime.GOARCH, Provider: own, Version: s.version})
		return nil
	}
	web.WriteJSON(w, own)
	return nil
}

// fromGatewayClient reports whether the request comes directly from faas-cli or the
// OpenFaaS SDK, and not through a gateway.
func fromGatewayClient(r *http.Request) bool {
	if r.Header.Get("X-Forwarded-Host") != "" {
		return false
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "faas-cli/") || strings.HasPrefix(agent, "openfaas-go-sdk")
}
