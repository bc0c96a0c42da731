package v1alpha1

import (
	"maps"
	"slices"

	"github.com/openfaas/faas-provider/types"
)

// SpecOf converts a deployment to a spec. It leaves out empty fields, so equivalent
// deployments give the same spec. A deployment has no replicas.
func SpecOf(d types.FunctionDeployment) FunctionSpec {
	return FunctionSpec{
		Image: d.Image, Process: d.EnvProcess, Environment: filled(d.EnvVars),
		Constraints: some(d.Constraints), Secrets: some(d.Secrets),
		Labels: filled(valueOf(d.Labels)), Annotations: filled(valueOf(d.Annotations)),
		Limits: resources(d.Limits), Requests: resources(d.Requests), ReadOnlyRootFilesystem: d.ReadOnlyRootFilesystem,
	}
}

// Deployment is the inverse of SpecOf. The result shares nothing with s.
func (s FunctionSpec) Deployment(name, namespace string) types.FunctionDeployment {
	return types.FunctionDeployment{
		Service: name, Namespace: namespace, Image: s.Image, EnvProcess: s.Process, EnvVars: filled(s.Environment),
		Constraints: some(s.Constraints), Secrets: some(s.Secrets),
		Labels: pointer(filled(s.Labels)), Annotations: pointer(filled(s.Annotations)),
		Limits: s.Limits.deployed(), Requests: s.Requests.deployed(), ReadOnlyRootFilesystem: s.ReadOnlyRootFilesystem,
	}
}

func resources(r *types.FunctionResources) *Resources {
	if r == nil || *r == (types.FunctionResources{}) {
		return nil
	}
	return &Resources{CPU: r.CPU, Memory: r.Memory, GPU: r.NvidiaGPU, AMDGPU: r.AmdGPU, IntelGPU: r.IntelGPU}
}

func (r *Resources) deployed() *types.FunctionResources {
	if r == nil || *r == (Resources{}) {
		return nil
	}
	return &types.FunctionResources{CPU: r.CPU, Memory: r.Memory, NvidiaGPU: r.GPU, AmdGPU: r.AMDGPU, IntelGPU: r.IntelGPU}
}

// filled returns a copy of m, nil if m is empty.
func filled(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// some returns a copy of s, nil if s is empty.
func some(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return slices.Clone(s)
}

func valueOf(m *map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	return *m
}

func pointer(m map[string]string) *map[string]string {
	if m == nil {
		return nil
	}
	return &m
}
