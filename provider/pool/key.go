// Package pool lets functions that serve one model in the same way share instances: a pool is one function of
// the controller that answers for several deployments, its members. The package decides who shares with whom and
// divides what the instances use among the members. It neither scales the pool nor batches its requests: that is
// the controller's work, which takes a pool for a function. Begin with KeyOf, the rule, then [Pools.Place].
package pool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Artefact identifies what the instances of a function load.
type Artefact struct {
	// Models is the number of models that the function may load.
	Models int
	// Content is a hash of the model and of the other files of its bundle.
	Content string
	// Secrets changes when a secret that instances get is replaced.
	Secrets string
	// program: what runs is a program, which may keep something between requests, and no graph.
	program bool
	// apart is why the model's files cannot be shared, "" if they can.
	apart string
}

// prefix begins the names of pools.
const prefix = "shared-"

// KeyOf returns a key that is equal for functions that may share instances, "" for a function that shares with
// nobody. why says why not, "" if the deployment does not ask to share. policy is the provider's default policy.
func KeyOf(f *provider.Function, a Artefact, policy string) (key, why string) {
	if !asks(f) {
		return "", ""
	}
	in, share := f.Inference, cmp.Or(f.Inference.Share, annotation.DefaultShare)
	if in.Policy == "" {
		in.Policy = policy
	}
	if why = apart(f, &in, a, share); why != "" {
		return "", why
	}
	d := f.Deployment
	namespace := d.Namespace
	if share == annotation.ShareAll {
		namespace = ""
	}
	text, err := json.Marshal(struct {
		Share, Namespace string
		Artefact         Artefact
		Settings         []string
		EnvProcess       string
		EnvVars          map[string]string
		Constraints      []string
		Secrets          []string
		Limits, Requests *types.FunctionResources
		ReadOnly         bool
	}{
		share, namespace, a, settings(in), d.EnvProcess, d.EnvVars, d.Constraints, slices.Sorted(slices.Values(d.Secrets)),
		d.Limits, d.Requests, d.ReadOnlyRootFilesystem,
	})
	if err != nil {
		return "", fmt.Sprintf("its deployment cannot be compared with others: %v", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), ""
}

// asks reports whether a function asks to share instances.
func asks(f *provider.Function) bool {
	return f.Inference.IsInference && cmp.Or(f.Inference.Share, annotation.DefaultShare) != annotation.ShareNone
}

// apart says why a function that asks to share cannot, "" if it can.
func apart(f *provider.Function, in *annotation.Inference, a Artefact, share string) string {
	switch {
	case a.program && f.Inference.Share == "":
		return "it is a program, which may keep something between requests; set " + annotation.InferShare + " to " + share + " if it does not"
	case a.apart != "":
		return a.apart
	case a.Models != 1:
		return fmt.Sprintf("its model has %d variants, and only functions of one model share instances", a.Models)
	case in.Variants != "" || in.Auto || in.Accuracy > 0:
		return "it chooses among variants, and only functions of one model share instances"
	case in.Partition != "":
		return "its model may be cut, and the parts of a cut model are not shared"
	case in.Shadow != "":
		return "its instances may have shadows, and these are not shared"
	case in.Canary.Gradual || strings.HasSuffix(f.Deployment.Service, provider.CandidateSuffix):
		return "its revisions take over step by step, and one that proves itself needs instances of its own"
	case in.Policy != batching.SharedName:
		return fmt.Sprintf("its batching policy is %s, and only %s keeps each request's own objective", in.Policy, batching.SharedName)
	case share == annotation.ShareAll && len(f.Deployment.Secrets) > 0:
		return "it has secrets, which belong to its namespace; set " + annotation.InferShare + " to " + annotation.ShareNamespace
	}
	return ""
}

// settings is equal for functions whose instances are planned, started and batched alike. It leaves out what each member
// keeps: objective, number of instances without load, and who may call. It lists only what a deployment sets, by name: a
// later version with more settings must find the pools again that this one has started.
func settings(in annotation.Inference) (set []string) {
	in.SLO, in.Shortest, in.MinReplicas, in.Share = 0, 0, 0, ""
	in.Access, in.Rate = "", access.Rate{}
	in.Model, in.Source, in.Canary, in.PercentileStated = "", "", annotation.Canary{}, false
	v := reflect.ValueOf(in)
	for i := range v.NumField() {
		if field := v.Field(i); !field.IsZero() {
			set = append(set, fmt.Sprintf("%s=%+v", v.Type().Field(i).Name, field))
		}
	}
	slices.Sort(set)
	return set
}

// name returns the full name of a key's pool, its service and its namespace. No user's function has that
// name: it has one dot more.
func name(key, namespace string) (full, service string) {
	service = prefix + key
	return service + ".pool." + namespace, service
}

// Is reports whether a full name is that of a pool.
func Is(full string) bool {
	service, rest, _ := strings.Cut(full, ".")
	return strings.HasPrefix(service, prefix) && strings.HasPrefix(rest, "pool.")
}
