package provider

import (
	"context"
	"net/http"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/web"
)

// telemetry is the answer to GET /system/telemetry. The provider does not send it
// anywhere by itself.
type telemetry struct {
	Provider string            `json:"provider"`
	Version  types.VersionInfo `json:"version"`
	// UptimeSeconds is the time since the provider started.
	UptimeSeconds float64           `json:"uptimeSeconds"`
	Functions     functionCounts    `json:"functions"`
	Namespaces    []namespaceCounts `json:"namespaces"`
	Instances     instanceCounts    `json:"instances"`
	Nodes         []nodeTelemetry   `json:"nodes,omitempty"`
}

// functionCounts counts functions with an objective (Inference) and without (Ordinary).
type functionCounts struct {
	Inference int `json:"inference"`
	Ordinary  int `json:"ordinary"`
}

type namespaceCounts struct {
	Name string `json:"name"`
	functionCounts
}

// instanceCounts counts the planned instances, and those of them that are ready.
type instanceCounts struct {
	Wanted uint64 `json:"wanted"`
	Ready  uint64 `json:"ready"`
}

// nodeTelemetry is one machine: the resources for instances, and those that are free.
type nodeTelemetry struct {
	Name  string        `json:"name"`
	Total nodeResources `json:"total"`
	Free  nodeResources `json:"free"`
}

type nodeResources struct {
	// CPU is in millicores, memory in bytes.
	CPU    int64 `json:"cpuMillicores"`
	Memory int64 `json:"memoryBytes"`
}

// telemetry is GET /system/telemetry.
func (s *Server) telemetry(w http.ResponseWriter, r *http.Request) error {
	if err := s.restored.wait(r.Context()); err != nil {
		return err
	}
	names, err := s.namespaces.names()
	if err != nil {
		return err
	}
	out := telemetry{Provider: providerName, Version: s.version, UptimeSeconds: s.now().Sub(s.started).Seconds()}
	for _, name := range names {
		n := namespaceCounts{Name: name}
		for _, d := range s.restored.with(name, s.sorted) {
			n.count(d)
			out.Functions.count(d)
			if now, ok := s.controller.Status(d.Name); ok {
				out.Instances.Wanted += now.Replicas
				out.Instances.Ready += now.AvailableReplicas
			}
		}
		out.Namespaces = append(out.Namespaces, n)
	}
	if out.Nodes, err = nodesOf(r.Context(), s.nodes); err != nil {
		return err
	}
	web.WriteJSON(w, out)
	return nil
}

func (c *functionCounts) count(d *deployed) {
	if d.Inference.IsInference {
		c.Inference++
	} else {
		c.Ordinary++
	}
}

func nodesOf(ctx context.Context, all func(context.Context) ([]cluster.Node, error)) ([]nodeTelemetry, error) {
	if all == nil {
		return nil, nil
	}
	nodes, err := all(ctx)
	if err != nil {
		return nil, err
	}
	var out []nodeTelemetry
	for _, n := range nodes {
		out = append(out, nodeTelemetry{Name: n.Name, Total: resources(n.Total), Free: resources(n.Free)})
	}
	return out, nil
}

func resources(r cluster.Resources) nodeResources {
	return nodeResources{CPU: int64(r.CPU), Memory: int64(r.Memory)}
}
