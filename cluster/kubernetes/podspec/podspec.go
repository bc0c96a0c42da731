// Package podspec translates between functions and pods. Begin with [Ordinary], which
// makes the pod of an ordinary function, and [Model], which makes that of a model's
// instance; [ReadModel] and [Observe] are the way back. [Apply] is for both: secrets,
// constraints, resources, probes, the read-only root file system and profiles, as OpenFaaS
// documents them. The package is pure: it reads no cluster.
package podspec

import (
	"maps"
	"slices"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
)

const (
	// Port is where every instance answers HTTP.
	Port = 8080
	// PortName is that port's name.
	PortName = "http"
	// SecretsPath is where instances find their secrets.
	SecretsPath = "/var/openfaas/secrets"
	// DefaultUser is the user that ordinary functions run as, the one that
	// OpenFaaS' chart gives them with functions.setNonRootUser.
	DefaultUser = 12000
	// NameVariable tells an instance its function's name.
	NameVariable = "OPENFAAS_NAME"
	// ProcessVariable is the watchdog's command.
	ProcessVariable = "fprocess"
)

// The annotations that are read here; probes have more of them.
const (
	// ProfileAnnotation names profiles, separated by commas.
	ProfileAnnotation = "com.openfaas.profile"
	// ServiceAccountAnnotation is the service account in the function's namespace
	// that its instances act as. Without it they have no token.
	ServiceAccountAnnotation = "com.openfaas.serviceaccount"
	// GPUKey, as a label or an annotation, is a number of whole GPUs for each
	// instance, where a client cannot say limits.nvidia.com/gpu.
	GPUKey = "com.openfaas.limits.gpu"
)

const (
	secretsVolume = "openfaas-secrets"
	tmpVolume     = "tmp"
	tmpPath       = "/tmp"
)

// Settings are what a pod is made from besides the deployment.
type Settings struct {
	// Profiles are those that the deployment names, in its order ([Named]).
	Profiles []Profile
	// Secrets are the types of the deployment's secrets. Those of a registry's
	// credentials serve to pull the image, all others are mounted, those that are
	// not in the map as well.
	Secrets map[string]corev1.SecretType
	// User is the user that instances run as; 0 leaves it to the image, which must
	// then name one by number that is not root.
	User int64
	// AllowRoot lets instances run as root where User is 0 and the image says so.
	AllowRoot bool
}

// Apply adds to a pod what the deployment, its profiles and its secrets say, and
// what makes it pass the restricted Pod Security Standard. The first container is
// the function's; one is added if there is none. Image, resources, arguments and
// probes are left alone, as is everything in the pod that does not contradict.
func Apply(spec *corev1.PodSpec, d types.FunctionDeployment, s Settings) error {
	selector, err := NodeSelector(d.Constraints)
	if err != nil {
		return err
	}
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{Name: d.Service}}
	}
	container := &spec.Containers[0]
	if len(selector) > 0 {
		if spec.NodeSelector == nil {
			spec.NodeSelector = map[string]string{}
		}
		maps.Copy(spec.NodeSelector, selector)
	}
	addEnvironment(container, d)
	addSecrets(spec, container, d, s.Secrets)
	if d.ReadOnlyRootFilesystem {
		addTmp(spec, container)
	}
	secure(spec, container, d, s)
	if err := identify(spec, d); err != nil {
		return err
	}
	for _, p := range s.Profiles {
		if err := p.apply(spec); err != nil {
			return err
		}
	}
	return nil
}

// addEnvironment adds variables that the container does not have yet.
func addEnvironment(c *corev1.Container, d types.FunctionDeployment) {
	add := func(name, value string) {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	if d.EnvProcess != "" {
		add(ProcessVariable, d.EnvProcess)
	}
	for _, name := range slices.Sorted(maps.Keys(d.EnvVars)) {
		add(name, d.EnvVars[name])
	}
	add(NameVariable, d.Service)
	// A "$(NAME)" in a value is the user's own text.
	for i := range c.Env {
		if c.Env[i].ValueFrom == nil {
			c.Env[i].Value = escape(c.Env[i].Value)
		}
	}
}

// addTmp gives the instance the one place that it can write to.
func addTmp(spec *corev1.PodSpec, c *corev1.Container) {
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tmpPath }) {
		return
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: tmpVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tmpVolume, MountPath: tmpPath})
}

// secure takes from the instance what it has no need for. User and seccomp are the
// pod's, so that a profile's podSecurityContext can change them.
func secure(spec *corev1.PodSpec, c *corev1.Container, d types.FunctionDeployment, s Settings) {
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	pod := spec.SecurityContext
	if pod.SeccompProfile == nil {
		pod.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if s.User != 0 && pod.RunAsUser == nil {
		pod.RunAsUser = &s.User
	}
	if pod.RunAsNonRoot == nil && (s.User != 0 || !s.AllowRoot) {
		pod.RunAsNonRoot = new(bool)
		*pod.RunAsNonRoot = true
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	own := c.SecurityContext
	readOnly, escalation := d.ReadOnlyRootFilesystem, false
	own.ReadOnlyRootFilesystem, own.AllowPrivilegeEscalation = &readOnly, &escalation
	own.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
}

// identify says who the instances are to the API server: nobody, unless the
// deployment names a service account.
func identify(spec *corev1.PodSpec, d types.FunctionDeployment) error {
	links := false
	spec.EnableServiceLinks = &links
	account, ok := annotation(d, ServiceAccountAnnotation)
	if !ok {
		token := false
		spec.AutomountServiceAccountToken = &token
		return nil
	}
	if !isSubdomain(account) {
		return &Error{Key: ServiceAccountAnnotation, Value: account,
			Why: "it must be the name of a service account in the function's namespace", Example: "reader"}
	}
	spec.ServiceAccountName = account
	return nil
}

// annotation reads one annotation.
func annotation(d types.FunctionDeployment, key string) (value string, ok bool) {
	if d.Annotations == nil {
		return "", false
	}
	value, ok = (*d.Annotations)[key]
	return value, ok
}
