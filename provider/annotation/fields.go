package annotation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
)

// longestLabel is the length of a DNS label (RFC 1123).
const longestLabel = 63

// IsName reports whether s can name a function or a namespace: a DNS label.
func IsName(s string) bool {
	if s == "" || len(s) > longestLabel {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// checkFields checks the name, namespace, image, environment and secrets.
func checkFields(d types.FunctionDeployment) error {
	const label = "it must be at most 63 lower-case letters, digits and hyphens, with no hyphen first or last"
	if !IsName(d.Service) {
		return &Error{Key: "service", Value: d.Service, Why: label, Example: "resnet-50"}
	}
	if d.Namespace != "" && !IsName(d.Namespace) {
		return &Error{Key: "namespace", Value: d.Namespace, Why: label, Example: "openfaas-fn"}
	}
	if strings.TrimSpace(d.Image) == "" {
		return &Error{Key: "image", Why: "it must name the bundle with the model or program", Example: "resnet-50:latest"}
	}
	if err := checkEnvironment(d); err != nil {
		return err
	}
	for _, name := range d.Secrets {
		// The name becomes a file's name under /var/openfaas/secrets.
		if !IsSecret(name) {
			return &Error{Key: "secrets", Value: name,
				Why: SecretRule, Example: "api-key"}
		}
	}
	return nil
}

const (
	// maxVariable is the maximum size in bytes of a variable. Linux starts no program with one of 128 KiB, and the
	// provider puts a prefix before its name.
	maxVariable = 127 << 10
	// maxEnvironment bounds the sizes of all variables together: Linux takes 2 MiB, with the program's arguments.
	maxEnvironment = 1 << 20
	// variableOverhead is how many bytes of that a variable takes beside its name and value: the prefix and a pointer.
	variableOverhead = 32
)

// checkEnvironment checks the names and values of variables, and that a program can be started with them.
func checkEnvironment(d types.FunctionDeployment) error {
	if len(d.EnvProcess) > maxVariable || strings.Contains(d.EnvProcess, "\x00") {
		return &Error{Key: "envProcess", Value: d.EnvProcess,
			Why: "it must have at most 127 KiB and no NUL", Example: "wc -w"}
	}
	total := len(d.EnvProcess)
	for _, name := range slices.Sorted(maps.Keys(d.EnvVars)) {
		value := d.EnvVars[name]
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return &Error{Key: "envVars." + shorten(name), Value: value,
				Why: `an environment variable needs a name without "=", and no NUL in name or value`}
		}
		size := len(name) + len(value)
		if size > maxVariable {
			return &Error{Key: "envVars." + shorten(name), Value: value,
				Why: "a variable must have at most 127 KiB: no program can be started with more"}
		}
		total += size + variableOverhead
	}
	if total > maxEnvironment {
		return &Error{Key: "envVars", Value: fmt.Sprintf("%d variables", len(d.EnvVars)),
			Why: "together they must have at most 1 MiB, with 32 bytes for each beside its name and value: " +
				"no program can be started with more"}
	}
	return nil
}

// SecretRule says what [IsSecret] accepts.
const SecretRule = "a secret's name must be at most 253 lower-case letters, digits, hyphens and dots, at most 63 between two dots, with a letter or digit first and last"

// IsSecret reports whether s can name a secret: a DNS subdomain, that is labels joined
// by dots. Such a name can also name a file, and not a hidden one.
func IsSecret(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !IsName(label) {
			return false
		}
	}
	return true
}

// resources reads limits and requests.
func (in *Inference) resources(d types.FunctionDeployment) (err error) {
	if in.Limits, err = parseResources("limits", d.Limits); err != nil {
		return err
	}
	if in.Requests, err = parseResources("requests", d.Requests); err != nil {
		return err
	}
	if in.Limits.Memory > 0 && in.Limits.Memory < LeastMemory {
		return tooLittleMemory(d, LeastMemory, "a process takes")
	}
	if in.Limits.CPU > 0 && in.Requests.CPU > in.Limits.CPU {
		return &Error{Key: "requests.cpu", Value: d.Requests.CPU, Why: fmt.Sprintf("it must not be above limits.cpu, which is %q", d.Limits.CPU)}
	}
	if in.Limits.Memory > 0 && in.Requests.Memory > in.Limits.Memory {
		return &Error{Key: "requests.memory", Value: d.Requests.Memory, Why: fmt.Sprintf("it must not be above limits.memory, which is %q", d.Limits.Memory)}
	}
	return nil
}

// tooLittleMemory is the error of a limit below the least, in bytes.
func tooLittleMemory(d types.FunctionDeployment, least int64, taken string) error {
	return &Error{Key: "limits.memory", Value: d.Limits.Memory, Example: "256Mi",
		Why: fmt.Sprintf("it must be at least %dMi, which %s before it does anything; without a unit, it is bytes", least>>20, taken)}
}

func parseResources(field string, r *types.FunctionResources) (out cluster.Resources, err error) {
	if r == nil {
		return out, nil
	}
	if r.CPU != "" {
		if out.CPU, err = ParseCPU(r.CPU); err != nil {
			return out, &Error{Key: field + ".cpu", Value: r.CPU, Why: "it must be " + err.Error(), Example: "500m"}
		}
	}
	if r.Memory != "" {
		if out.Memory, err = ParseMemory(r.Memory); err != nil {
			return out, &Error{Key: field + ".memory", Value: r.Memory, Why: "it must be " + err.Error(), Example: "128Mi"}
		}
	}
	for _, gpu := range gpus(r) {
		n, err := strconv.ParseUint(cmp.Or(gpu.value, "0"), 10, 16)
		if err != nil {
			return out, &Error{Key: field + "." + gpu.name, Value: gpu.value, Why: "it must be a whole number of GPUs", Example: "1"}
		}
		out.GPU += wholeGPU * int(n)
	}
	return out, nil
}

// wholeGPU is one GPU in the unit of cluster.Resources, % of its SMs.
const wholeGPU = 100

type gpuField struct{ name, value string }

// gpus returns the numbers of whole GPUs that resources name.
func gpus(r *types.FunctionResources) []gpuField {
	if r == nil {
		return nil
	}
	return []gpuField{{"nvidia.com/gpu", r.NvidiaGPU}, {"amd.com/gpu", r.AmdGPU}, {"intel.com/gpu", r.IntelGPU}}
}

// refuseWholeGPUs refuses whole GPUs for a model: the provider gives it a part of one.
func (in *Inference) refuseWholeGPUs(d types.FunctionDeployment) error {
	if !in.IsInference || in.Limits.GPU+in.Requests.GPU == 0 {
		return nil
	}
	for field, r := range map[string]*types.FunctionResources{"limits": d.Limits, "requests": d.Requests} {
		for _, gpu := range gpus(r) {
			if gpu.value != "" && gpu.value != "0" {
				return &Error{Key: field + "." + gpu.name, Value: gpu.value, Why: "the provider chooses a model's part of a GPU from its objective; leave the field out (com.openfaas.infer.device: cuda keeps a model off cores)"}
			}
		}
	}
	return nil
}
