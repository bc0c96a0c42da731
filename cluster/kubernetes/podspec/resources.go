package podspec

import (
	"maps"
	"slices"
	"strconv"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The names under which device plugins offer whole GPUs.
const (
	NvidiaGPU corev1.ResourceName = "nvidia.com/gpu"
	AmdGPU    corev1.ResourceName = "amd.com/gpu"
	IntelGPU  corev1.ResourceName = "intel.com/gpu"
)

// Resources returns the requests and limits of each instance of an ordinary function.
// The deployment takes precedence over its profiles, a later profile over an earlier one.
func Resources(d types.FunctionDeployment, profiles []Profile) (corev1.ResourceRequirements, error) {
	out := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	for _, p := range profiles {
		if p.Resources != nil {
			maps.Copy(out.Limits, p.Resources.Limits)
			maps.Copy(out.Requests, p.Resources.Requests)
		}
	}
	if err := setAmounts("limits", out.Limits, d.Limits); err != nil {
		return out, err
	}
	if err := setAmounts("requests", out.Requests, d.Requests); err != nil {
		return out, err
	}
	if err := setGPU(out.Limits, d); err != nil {
		return out, err
	}
	return out, agree(out, d)
}

func setAmounts(field string, list corev1.ResourceList, r *types.FunctionResources) error {
	if r == nil {
		return nil
	}
	for _, a := range []struct {
		name    corev1.ResourceName
		value   string
		example string
	}{{corev1.ResourceCPU, r.CPU, "500m"}, {corev1.ResourceMemory, r.Memory, "128Mi"}} {
		if a.value == "" {
			continue
		}
		q, err := resource.ParseQuantity(a.value)
		if err != nil || q.Sign() <= 0 {
			return &Error{Key: field + "." + string(a.name), Value: a.value, Why: "it must be a Kubernetes quantity above 0", Example: a.example}
		}
		list[a.name] = q
	}
	for name, value := range gpus(r) {
		if err := setWhole(list, field+"."+string(name), name, value); err != nil {
			return err
		}
	}
	return nil
}

// gpus returns the numbers of GPUs that a deployment's resources set.
func gpus(r *types.FunctionResources) map[corev1.ResourceName]string {
	all := map[corev1.ResourceName]string{NvidiaGPU: r.NvidiaGPU, AmdGPU: r.AmdGPU, IntelGPU: r.IntelGPU}
	maps.DeleteFunc(all, func(_ corev1.ResourceName, v string) bool { return v == "" })
	return all
}

// setWhole reads a number of GPUs. 0 means none, even if a profile gives some.
func setWhole(list corev1.ResourceList, key string, name corev1.ResourceName, value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return &Error{Key: key, Value: value, Why: "it must be a whole number of GPUs; only a function with an objective (com.openfaas.slo.latency) gets a part of one", Example: "1"}
	}
	if n == 0 {
		delete(list, name)
		return nil
	}
	list[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	return nil
}

// setGPU reads [GPUKey].
func setGPU(list corev1.ResourceList, d types.FunctionDeployment) error {
	for _, source := range []*map[string]string{d.Labels, d.Annotations} {
		if source == nil {
			continue
		}
		if value, ok := (*source)[GPUKey]; ok {
			if err := setWhole(list, GPUKey, NvidiaGPU, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// agree makes limits and requests consistent. GPUs cannot be overcommitted, so their
// request must equal their limit. No other request may be above its limit.
func agree(r corev1.ResourceRequirements, d types.FunctionDeployment) error {
	for _, name := range []corev1.ResourceName{NvidiaGPU, AmdGPU, IntelGPU} {
		limit, isLimited := r.Limits[name]
		request, isRequested := r.Requests[name]
		switch {
		case isLimited && isRequested && limit.Cmp(request) != 0:
			return &Error{Key: "requests." + string(name), Value: request.String(), Why: "it must equal limits." + string(name) + ", which is " + limit.String() + "; leave it out"}
		case isLimited:
			r.Requests[name] = limit
		case isRequested:
			r.Limits[name] = request
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		limit, isLimited := r.Limits[name]
		if request := r.Requests[name]; isLimited && request.Cmp(limit) > 0 {
			if !isSet(d.Requests, name) {
				// A profile's request yields to the deployment's own limit.
				r.Requests[name] = limit
				continue
			}
			return &Error{Key: "requests." + string(name), Value: request.String(), Why: "it must not be above limits." + string(name) + ", which is " + limit.String()}
		}
	}
	return nil
}

// isSet reports whether the deployment itself sets an amount.
func isSet(r *types.FunctionResources, name corev1.ResourceName) bool {
	return r != nil && (name == corev1.ResourceCPU && r.CPU != "" || name == corev1.ResourceMemory && r.Memory != "")
}
