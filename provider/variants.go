package provider

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Variant is a variant of a function's model, or its only model, as
// GET /system/variants/NAME shows it.
type Variant struct {
	// Name is "model" for the only model of a function. Model is the name of the bundle's
	// model of which it is a variant. Accuracy is in percent, 0 if it is not known.
	Name     string  `json:"name"`
	Model    string  `json:"model,omitempty"`
	Accuracy float64 `json:"accuracy,omitempty"`
	// State is the worst state of its instances, inactive if there are none. Nodes has the
	// state on each node with instances.
	State     string        `json:"state"`
	Instances int           `json:"instances"`
	Nodes     []VariantNode `json:"nodes"`
	// Config is that of its largest instance, otherwise the config that serves most
	// requests per CPU within the objective. An instance with it takes LatencyMS for one
	// request and serves RPS requests per second. Price is what it holds.
	Config    string           `json:"config,omitempty"`
	LatencyMS float64          `json:"latencyMs,omitempty"`
	RPS       float64          `json:"rps,omitempty"`
	Price     VariantResources `json:"price"`
	// LoadMS is how long an instance last took to load it, 0 if that is not known.
	LoadMS float64 `json:"loadMs,omitempty"`
	// Holds is what its instances hold together.
	Holds VariantResources `json:"holds"`
}

// VariantNode is the state of a variant on one node.
type VariantNode struct {
	Node      string `json:"node"`
	State     string `json:"state"`
	Instances int    `json:"instances"`
}

// VariantResources are what instances hold: CPU in millicores, GPU in percent of one GPU,
// and memory in bytes.
type VariantResources struct {
	CPU    int   `json:"cpuMillicores"`
	GPU    int   `json:"gpuPercent,omitempty"`
	Memory int64 `json:"memoryBytes"`
}

// VariantController is a [Controller] whose functions' models may have variants. Variants
// returns false for a function that has no model or is not known.
type VariantController interface {
	Variants(name string) ([]Variant, bool)
}

// variantRoutes serves the route of functions' variants.
type variantRoutes struct{ *Server }

// list is GET /system/variants/NAME.
func (s variantRoutes) list(w http.ResponseWriter, r *http.Request) error {
	a, err := resolve(mux.Vars(r)["name"], r.URL.Query().Get("namespace"))
	if err != nil {
		return err
	}
	d, err := s.findOrAdopt(r.Context(), a, listPatience)
	if err != nil {
		return err
	}
	if c, ok := s.controller.(VariantController); ok {
		if all, ok := c.Variants(d.Name); ok {
			web.WriteJSON(w, all)
			return nil
		}
	}
	return web.Refuse(http.StatusNotFound, "function %s has no model: only functions with an objective (com.openfaas.slo.latency) have variants", d.Name)
}
