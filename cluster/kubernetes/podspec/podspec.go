// Package podspec translates between functions and pods. Begin with [Ordinary], which
// makes the pod of an ordinary function, and [Model], which makes the pod of a model's
// instance. [ReadModel] and [Observe] translate a pod back. [Apply] serves both: it adds
// environment, secrets, constraints, the read-only root file system and profiles, as
// OpenFaaS documents them. The package is pure: it calls no API server.
package podspec

import (
	"maps"
	"slices"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
)

const (
	// Port is the port on which every instance serves HTTP.
	Port = 8080
	// PortName is that port's name.
	PortName = "http"
	// RelayPort is the port on which a shadow takes rows of its body's batches.
	RelayPort = 8090
	relayName = "relay"
	// SecretsPath is the directory in which instances find their secrets.
	SecretsPath = "/var/openfaas/secrets"
	// DefaultUser is the user that ordinary functions run as, the same as in
	// OpenFaaS' chart with functions.setNonRootUser.
	DefaultUser = 12000
	// NameVariable holds the function's name.
	NameVariable = "OPENFAAS_NAME"
	// ProcessVariable holds the watchdog's command.
	ProcessVariable = "fprocess"
)

// The annotations that this package reads; [Probes] reads more.
const (
	// ProfileAnnotation names profiles, separated by commas.
	ProfileAnnotation = "com.openfaas.profile"
	// ServiceAccountAnnotation names the service account of the function's instances,
	// in the function's namespace. Without it they have no token.
	ServiceAccountAnnotation = "com.openfaas.serviceaccount"
	// GPUKey, as a label or an annotation, is the number of whole GPUs for each
	// instance. It is for clients that cannot set limits.nvidia.com/gpu.
	GPUKey = "com.openfaas.limits.gpu"
)

const (
	secretsVolume = "openfaas-secrets"
	tmpVolume     = "tmp"
	tmpPath       = "/tmp"
)

// Settings hold what a pod is made from besides the deployment.
type Settings struct {
	// Profiles are those that the deployment names, in its order ([Named]).
	Profiles []Profile
	// Secrets maps the deployment's secrets to their types. A secret with a
	// registry's credentials is used to pull the image. Every other secret is
	// mounted, also one that is not in the map.
	Secrets map[string]corev1.SecretType
	// User is the user ID that instances run as. 0 leaves it to the image, which must
	// then set a numeric user other than root.
	User int64
	// AllowRoot lets instances run as root if User is 0 and the image sets root.
	AllowRoot bool
	// Local bounds what instances take of their nodes.
	Local Local
	// Watchdog is the arguments with which the image starts our watchdog, which then gets the
	// certificate in [CertificateSecret] and speaks TLS; nil for plain HTTP.
	Watchdog []string
}

// Apply adds to a pod what the deployment, its profiles and its secrets demand, and
// what makes the pod pass the restricted Pod Security Standard. The first container is
// the function's; Apply adds one if there is none. It does not change image, resources,
// arguments, probes, or anything else in the pod that does not conflict.
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
	s.Local.apply(spec, container)
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

// addEnvironment adds the deployment's variables that the container does not have yet.
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
	// A "$(NAME)" in a value is literal text.
	for i := range c.Env {
		if c.Env[i].ValueFrom == nil {
			c.Env[i].Value = escape(c.Env[i].Value)
		}
	}
}

// addTmp adds /tmp, the only directory that the instance can write to.
func addTmp(spec *corev1.PodSpec, c *corev1.Container) {
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tmpPath }) {
		return
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: tmpVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tmpVolume, MountPath: tmpPath})
}

// secure removes privileges that the instance does not need. It sets user and seccomp on
// the pod, where a profile's podSecurityContext can change them.
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

// identify sets the instances' identity for the API server: none, unless the deployment
// names a service account.
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
