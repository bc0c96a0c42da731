package pool

import (
	"cmp"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// onlyRevision is the revision of every pool: members whose instances would differ have another pool, so an instance fits
// whatever comes, also after a restart.
const onlyRevision = 1

// together returns the function that answers for the members, at least one. Its objective is the shortest of theirs, so
// its capacity keeps each of them, and it keeps as many instances without load as the member that asks for the most. It
// may have as many as all of them together, and counts as much as all against other functions. Everything else is equal, by their key. Members that the model
// is too slow for, hopeless, count for nothing, unless all are.
func together(key string, members map[string]*provider.Function, hopeless map[string]string) *provider.Function {
	if len(hopeless) > 0 && len(hopeless) < len(members) {
		members = maps.Clone(members)
		maps.DeleteFunc(members, func(name string, _ *provider.Function) bool { return hopeless[name] != "" })
	}
	names := slices.Sorted(maps.Keys(members))
	like := slices.MinFunc(names, func(a, b string) int { // The choice must not change when members come in another order.
		return cmp.Compare(members[a].Deployment.Image, members[b].Deployment.Image)
	})
	f := *members[like]
	namespace := namespaceOf(&f)
	f.Name, f.Deployment.Service = name(key, namespace)
	f.Deployment.Namespace = namespace
	f.Deployment.Labels, f.Deployment.Annotations = nil, nil // The name has them, as far as instances depend on them.
	f.Revision, f.Hash, f.BackTo, f.Promoted = onlyRevision, key, 0, false
	f.Inference.Access = ""
	f.Inference.Weight, f.Inference.MaxReplicas = 0, 0
	for _, m := range members {
		f.Inference.Weight += cmp.Or(m.Inference.Weight, 1)
		f.Inference.SLO = min(f.Inference.SLO, m.Inference.SLO)
		f.Inference.Shortest = min(f.Inference.Shortest, m.Inference.Shortest)
		f.Inference.MaxReplicas += m.Inference.MaxReplicas
		f.Inference.MinReplicas = max(f.Inference.MinReplicas, m.Inference.MinReplicas)
		f.Replicas = max(f.Replicas, m.Replicas)
		f.Restored, f.Warm = f.Restored && m.Restored, f.Warm || m.Warm
	}
	return &f
}

// namespaceOf is the namespace in a pool's name: "all" if its members may be of any.
func namespaceOf(f *provider.Function) string {
	if f.Inference.Share == annotation.ShareAll {
		return annotation.ShareAll
	}
	return f.Deployment.Namespace
}

// same reports whether the controller need not be told of a change of a pool.
func same(before, after *provider.Function) bool {
	if before == nil || after.Warm {
		return false
	}
	is, was := &after.Inference, &before.Inference
	return was.SLO == is.SLO && was.Shortest == is.Shortest && was.Weight == is.Weight &&
		was.MinReplicas == is.MinReplicas && was.MaxReplicas == is.MaxReplicas && before.Replicas == after.Replicas &&
		before.Deployment.Image == after.Deployment.Image && before.Learnt == after.Learnt
}
