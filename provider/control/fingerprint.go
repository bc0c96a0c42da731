package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// fingerprintOf is equal for deployments whose instances would be started in the same way: all
// that was deployed, the content of the image (bundle, and the prepared model) and the
// versions of secrets included, but for what says when to start how many, and how to
// batch. Instances carry it, so that another replica, or a later one, knows them.
func fingerprintOf(d types.FunctionDeployment, bundle, model, secrets, engine string) string {
	d.Image, d.Labels, d.Annotations = "", lasting(d.Labels), lasting(d.Annotations)
	text, err := json.Marshal(struct {
		Deployment      types.FunctionDeployment
		Bundle, Model   string
		Secrets, Engine string
	}{d, bundle, model, secrets, engine})
	if err != nil {
		return "" // It cannot fail for strings; the revision then says it.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// passing begin the keys of what running instances need not be replaced for.
var passing = []string{"com.openfaas.scale.", "com.openfaas.slo.", "com.openfaas.retry.", annotation.InferPolicy, annotation.InferKeepAlive}

// lasting are labels or annotations without the passing ones.
func lasting(all *map[string]string) *map[string]string {
	if all == nil {
		return &map[string]string{}
	}
	kept := maps.Clone(*all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		for _, p := range passing {
			if strings.HasPrefix(key, p) {
				return true
			}
		}
		return false
	})
	if kept == nil {
		kept = map[string]string{}
	}
	return &kept
}
