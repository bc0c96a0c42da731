package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// fingerprintOf returns a hash that is equal for deployments that start the same instances. It
// covers the deployment, the content of the image (the bundle and the prepared model), the
// versions of secrets and the engine. It leaves out how many instances to start, when, and
// how to batch. Instances carry it, by which another or a later replica recognises them.
func fingerprintOf(d types.FunctionDeployment, bundle, model, secrets, engine string) string {
	d.Image, d.Labels, d.Annotations = "", withoutIgnored(d.Labels), withoutIgnored(d.Annotations)
	text, err := json.Marshal(struct {
		Deployment      types.FunctionDeployment
		Bundle, Model   string
		Secrets, Engine string
	}{d, bundle, model, secrets, engine})
	if err != nil {
		return "" // Strings always marshal. With "" only the revision identifies instances.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ignoredPrefixes begin the keys of labels and annotations that may change without replacing
// running instances. Those of papers may, too.
var ignoredPrefixes = []string{"com.openfaas.scale.", "com.openfaas.slo.", "com.openfaas.retry.", annotation.InferPolicy, annotation.InferKeepAlive, annotation.InferAnswerCache}

// withoutIgnored returns labels or annotations without the keys that may change.
func withoutIgnored(all *map[string]string) *map[string]string {
	if all == nil {
		return &map[string]string{}
	}
	kept := maps.Clone(*all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return annotation.Added(key) || annotation.OfCallers(key) || slices.ContainsFunc(ignoredPrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	})
	if kept == nil {
		kept = map[string]string{}
	}
	return &kept
}
