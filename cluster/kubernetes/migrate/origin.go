package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// object is the spec of a Function of openfaas.com/v1.
type object struct {
	Name                   string            `json:"name"`
	Image                  string            `json:"image"`
	Handler                string            `json:"handler"`
	Environment            map[string]string `json:"environment"`
	Labels                 map[string]string `json:"labels"`
	Annotations            map[string]string `json:"annotations"`
	Constraints            []string          `json:"constraints"`
	Secrets                []string          `json:"secrets"`
	Limits                 map[string]string `json:"limits"`
	Requests               map[string]string `json:"requests"`
	ReadOnlyRootFilesystem bool              `json:"readOnlyRootFilesystem"`
}

// objectFields are the fields of object.
var objectFields = []string{"name", "image", "handler", "environment", "labels", "annotations", "constraints", "secrets", "limits", "requests", "readOnlyRootFilesystem"}

// fromObject reads a Function of openfaas.com.
func fromObject(u *unstructured.Unstructured) (o Origin) {
	o = Origin{Namespace: u.GetNamespace(), Name: u.GetName(), Source: FromObject}
	fields, _, err := unstructured.NestedMap(u.Object, "spec")
	var spec object
	if err == nil {
		var text []byte
		if text, err = json.Marshal(fields); err == nil {
			err = json.Unmarshal(text, &spec)
		}
	}
	if err != nil {
		o.Err = fmt.Errorf("its spec cannot be read: %w", err)
		return o
	}
	if spec.Name != "" {
		o.Name = spec.Name // faas-netes names the Deployment after it.
	}
	o.Spec = v1alpha1.FunctionSpec{
		Image: spec.Image, Process: spec.Handler, Environment: spec.Environment, Labels: spec.Labels, Annotations: spec.Annotations,
		Constraints: spec.Constraints, Secrets: spec.Secrets, ReadOnlyRootFilesystem: spec.ReadOnlyRootFilesystem,
	}
	o.Spec.Limits = o.amounts("limits", spec.Limits)
	o.Spec.Requests = o.amounts("requests", spec.Requests)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(objectFields, field) {
			o.lose("the field %s", field)
		}
	}
	return o.checked()
}

func (o *Origin) lose(format string, arguments ...any) {
	o.Lost = append(o.Lost, fmt.Sprintf(format, arguments...))
}

// amounts converts amounts by their names.
func (o *Origin) amounts(field string, amounts map[string]string) *v1alpha1.Resources {
	var r v1alpha1.Resources
	to := map[string]*string{"cpu": &r.CPU, "memory": &r.Memory, string(podspec.NvidiaGPU): &r.GPU, string(podspec.AmdGPU): &r.AMDGPU, string(podspec.IntelGPU): &r.IntelGPU}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if place := to[name]; place != nil {
			*place = amounts[name]
		} else {
			o.lose("%s of %s", field, name)
		}
	}
	if r == (v1alpha1.Resources{}) {
		return nil
	}
	return &r
}

// checked refuses what no provider could run.
func (o Origin) checked() Origin {
	d := o.Spec.Deployment(o.Name, o.Namespace)
	if o.Spec.Image == "" {
		o.Err = errors.New("it names no image")
	} else if _, err := podspec.Ordinary(d, podspec.Settings{}, ""); err != nil {
		o.Err = err
	} else if _, err := podspec.Labels(d); err != nil {
		o.Err = err
	}
	return o
}

// Names of faas-netes' own labels, annotations and variables.
const (
	scrape        = "prometheus.io.scrape"
	specText      = "com.openfaas.function.spec"
	openfaas      = "com.openfaas."
	lockFile      = "/tmp/.lock"
	oldSecretsDir = "/run/secrets"
)

// fromDeployment reads a Deployment that faas-netes has made.
func fromDeployment(d *appsv1.Deployment) Origin {
	name := d.Labels[v1alpha1.FunctionLabel]
	o := Origin{Namespace: d.Namespace, Name: d.Name, Source: FromDeployment, Deployment: d}
	pod := &d.Spec.Template.Spec
	if name != d.Name {
		o.Err = fmt.Errorf("its label %s is %q; faas-netes names a Deployment after its function, so another tool has made this one", v1alpha1.FunctionLabel, name)
		return o
	}
	if len(pod.Containers) == 0 {
		o.Err = errors.New("its Deployment has no container")
		return o
	}
	c := &pod.Containers[max(0, slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name }))]
	o.Spec.Image, o.Spec.Labels, o.Spec.Annotations = c.Image, labelsOf(d), annotationsOf(d)
	o.environment(c)
	o.Spec.Limits, o.Spec.Requests = o.amounts("limits", texts(c.Resources.Limits)), o.amounts("requests", texts(c.Resources.Requests))
	for _, key := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		o.Spec.Constraints = append(o.Spec.Constraints, key+"="+pod.NodeSelector[key])
	}
	if s := c.SecurityContext; s != nil && s.ReadOnlyRootFilesystem != nil {
		o.Spec.ReadOnlyRootFilesystem = *s.ReadOnlyRootFilesystem
	}
	o.volumes(pod, c)
	o.container(c)
	o.pod(pod, c.Name)
	return o.checked()
}

// texts returns amounts as text.
func texts(list corev1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, amount := range list {
		all[string(name)] = amount.String()
	}
	return all
}

// labelsOf returns the labels that a user gave the function. faas-netes puts them on the pods only.
func labelsOf(d *appsv1.Deployment) map[string]string {
	labels := map[string]string{}
	for key, value := range d.Labels {
		if strings.HasPrefix(key, openfaas) {
			labels[key] = value
		}
	}
	maps.Copy(labels, d.Spec.Template.Labels)
	// faas-netes' own: the operator's app and controller hold the function's name.
	for _, key := range []string{"app", "controller"} {
		if labels[key] == d.Name {
			delete(labels, key)
		}
	}
	for _, key := range []string{v1alpha1.FunctionLabel, "uid", appsv1.DefaultDeploymentUniqueLabelKey} {
		delete(labels, key)
	}
	return labels
}

// annotationsOf returns the annotations that a user gave the function.
func annotationsOf(d *appsv1.Deployment) map[string]string {
	annotations := map[string]string{}
	for key, value := range d.Annotations {
		if strings.HasPrefix(key, openfaas) {
			annotations[key] = value
		}
	}
	maps.Copy(annotations, d.Spec.Template.Annotations)
	if annotations[scrape] == "false" { // Every function has it.
		delete(annotations, scrape)
	}
	delete(annotations, specText)
	delete(annotations, "kubectl.kubernetes.io/restartedAt")
	return annotations
}

// environment reads the container's variables.
func (o *Origin) environment(c *corev1.Container) {
	o.Spec.Environment = map[string]string{}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom != nil:
			o.lose("the variable %s, whose value comes from elsewhere", e.Name)
		case e.Name == podspec.ProcessVariable:
			o.Spec.Process = e.Value
		case e.Name == podspec.NameVariable: // The provider sets it.
		default:
			if o.Spec.Environment[e.Name] = e.Value; strings.Contains(e.Value, "$(") {
				o.lose("the meaning of $(…) in the variable %s, which becomes literal text", e.Name)
			}
		}
	}
	if len(c.EnvFrom) > 0 {
		o.lose("variables from ConfigMaps or secrets (envFrom)")
	}
}

// volumes reads the secrets that are mounted where OpenFaaS puts them, and those that pull the image.
func (o *Origin) volumes(pod *corev1.PodSpec, c *corev1.Container) {
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range pod.Volumes {
		at := strings.TrimSuffix(mounts[v.Name], "/")
		secrets, only := secretsIn(v)
		switch {
		case only && (at == podspec.SecretsPath || at == oldSecretsDir || at == "/var/openfaas"):
			o.Spec.Secrets = append(o.Spec.Secrets, secrets...)
			if at != podspec.SecretsPath {
				o.lose("secrets in %s: they are in %s", at, podspec.SecretsPath)
			}
		case v.EmptyDir != nil && at == "/tmp" && v.EmptyDir.Medium == "" && v.EmptyDir.SizeLimit == nil && o.Spec.ReadOnlyRootFilesystem:
		default:
			o.lose("the volume %s", v.Name)
		}
	}
	for _, s := range pod.ImagePullSecrets {
		o.Spec.Secrets = append(o.Spec.Secrets, s.Name)
	}
	slices.Sort(o.Spec.Secrets)
	o.Spec.Secrets = slices.Compact(o.Spec.Secrets)
}

// secretsIn returns the names of a volume's secrets; only says that it has nothing else.
func secretsIn(v corev1.Volume) (names []string, only bool) {
	if v.Secret != nil {
		return []string{v.Secret.SecretName}, true
	}
	if v.Projected == nil {
		return nil, false
	}
	for _, s := range v.Projected.Sources {
		if s.Secret == nil {
			return nil, false
		}
		names = append(names, s.Secret.Name)
	}
	return names, true
}

// container says what of the container has no field here. A health path that differs from OpenFaaS'
// becomes an annotation.
func (o *Origin) container(c *corev1.Container) {
	if len(c.Command)+len(c.Args) > 0 {
		o.lose("the container's command and arguments")
	}
	for _, p := range c.Ports {
		if p.ContainerPort != podspec.Port {
			o.lose("port %d: a function serves HTTP on port %d", p.ContainerPort, podspec.Port)
		}
	}
	o.probe("liveness", podspec.HealthPrefix, c.LivenessProbe)
	o.probe("readiness", podspec.ReadyPrefix, c.ReadinessProbe)
	if c.Lifecycle != nil {
		o.lose("the container's lifecycle hooks")
	}
}

func (o *Origin) probe(what, prefix string, p *corev1.Probe) {
	switch {
	case p == nil:
	case p.HTTPGet != nil && p.HTTPGet.Port.IntValue() == podspec.Port:
		if _, set := o.Spec.Annotations[prefix+"path"]; !set && p.HTTPGet.Path != podspec.HealthPath {
			o.Spec.Annotations[prefix+"path"] = p.HTTPGet.Path
		}
	case p.Exec != nil && slices.Contains(p.Exec.Command, lockFile): // Watchdogs answer over HTTP, too.
	default:
		o.lose("the %s probe: GET %s on port %d takes its place", what, podspec.HealthPath, podspec.Port)
	}
}

// pod says what of the pod has no field here. A profile brings most of it along.
func (o *Origin) pod(pod *corev1.PodSpec, container string) {
	if n := pod.ServiceAccountName; n != "" && n != "default" && o.Spec.Annotations[podspec.ServiceAccountAnnotation] == "" {
		o.Spec.Annotations[podspec.ServiceAccountAnnotation] = n
	}
	for _, c := range pod.InitContainers {
		o.lose("the init container %s", c.Name)
	}
	for _, c := range pod.Containers {
		if c.Name != container {
			o.lose("the container %s", c.Name)
		}
	}
	if o.Spec.Annotations[podspec.ProfileAnnotation] != "" {
		return
	}
	user := pod.SecurityContext
	for what, set := range map[string]bool{
		"tolerations": len(pod.Tolerations) > 0, "the affinity": pod.Affinity != nil, "topology spread": len(pod.TopologySpreadConstraints) > 0,
		"the runtime class": pod.RuntimeClassName != nil, "the priority class": pod.PriorityClassName != "", "the host's network": pod.HostNetwork,
		"the user ID": user != nil && user.RunAsUser != nil && *user.RunAsUser != podspec.DefaultUser,
	} {
		if set {
			o.lose("%s: a profile (%s) can set it", what, podspec.ProfileAnnotation)
		}
	}
	slices.Sort(o.Lost)
}
