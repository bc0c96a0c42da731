package provider

import (
	"net/http"
	"runtime"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/metrics"
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

// gatewayRoutes serves what clients ask of a gateway.
type gatewayRoutes struct{ *Server }

// info is GET /system/info. Clients get a gateway's answer. A gateway gets the provider's part,
// which it puts into its own answer.
func (s gatewayRoutes) info(w http.ResponseWriter, r *http.Request) error {
	own := types.ProviderInfo{Name: providerName, Orchestration: providerName, Version: &s.version}
	// The stock gateway sends X-Forwarded-Host. Other proxies send X-Forwarded-Proto, too, which the
	// gateway passes on.
	if r.Header.Get("X-Forwarded-Host") != "" && (s.behindGateway || r.Header.Get("X-Forwarded-Proto") == "") {
		web.WriteJSON(w, own)
		return nil
	}
	web.WriteJSON(w, gatewayInfo{Arch: runtime.GOARCH, Provider: own, Version: s.version})
	return nil
}

// alert is POST /system/alert, to which an AlertManager configured for OpenFaaS sends the alerts by which
// a stock gateway scales. It checks the message and does nothing: the controller scales by the load.
func (s gatewayRoutes) alert(w http.ResponseWriter, r *http.Request) error {
	return s.changes.read(w, r, "a message of AlertManager", new(struct{}))
}

// Services lists the deployed functions with their numbers of instances.
func (s *Server) Services() []metrics.Service {
	var out []metrics.Service
	for _, list := range s.sorted().byNamespace {
		for _, d := range list {
			now := s.statusOf(d)
			out = append(out, metrics.Service{Function: d.Name, Replicas: now.Replicas, Ready: now.AvailableReplicas, Min: d.Replicas})
		}
	}
	return out
}
