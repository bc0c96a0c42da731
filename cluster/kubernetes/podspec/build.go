package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

// ModelPlan is all that [Model] makes a pod from.
type ModelPlan struct {
	Spec cluster.InstanceSpec
	// Owner is the function. Kubernetes deletes its pods when it is deleted.
	Owner *v1alpha1.Function
	// Profiles and Secrets are the function's, as in [Settings].
	Profiles []Profile
	Secrets  map[string]corev1.SecretType
	// StartingCPU is the CPU in millicores that it asks for and may use until a resize gives it that of its config; 0 for
	// that from the beginning.
	StartingCPU int
	// Args are the arguments of the image's program.
	Args []string
	// Share is its share of a GPU; nil for none. Claim is the name of the ResourceClaim by which
	// the GPU is allocated to it; "" for none.
	Share *gpu.Share
	Claim string
	// Copies is the PersistentVolumeClaim with the node's prepared copies of models, in the function's
	// namespace; "" for none.
	Copies string
	// Content names the model's content, which the provider sends to the instance; "" if the image has the model.
	Content string
	// Certificate: it speaks TLS with the certificate in [CertificateSecret].
	Certificate bool
	// Local bounds what it takes of its node.
	Local Local
	// Grace is how long it may take to exit if the deletion gives no other grace
	// period.
	Grace time.Duration
	// StartedAt is when the backend was asked to start the instance.
	StartedAt time.Time
}

// Model makes the pod of a model's instance. Its requests equal its limits, so a kubelet
// with the static CPU manager gives it whole CPUs as exclusive cores.
func Model(p ModelPlan) (*corev1.Pod, error) {
	name, namespace, err := SplitName(p.Spec.Function)
	if err != nil {
		return nil, err
	}
	if p.Spec.Kind != cluster.Model {
		return nil, errors.New("only an instance of a model is a pod of its own; an ordinary function has a Deployment")
	}
	if p.Owner == nil || p.Owner.Name != name || p.Owner.Namespace != namespace {
		return nil, fmt.Errorf("function %s does not exist any more", p.Spec.Function)
	}
	meta, err := metadata(p, name, namespace)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: skeleton(p, name)}
	if p.Copies != "" {
		addCopies(&pod.Spec, p)
	}
	if p.Content != "" {
		addContent(&pod.Spec, p)
	}
	addPair(pod, p.Spec)
	if p.Certificate {
		addCertificate(&pod.Spec)
	}
	d := p.Owner.Spec.Deployment(name, namespace)
	d.EnvProcess, d.EnvVars, d.Secrets = "", p.Spec.Env, slices.Sorted(maps.Keys(p.Spec.Secrets))
	if err := Apply(&pod.Spec, d, Settings{Profiles: p.Profiles, Secrets: p.Secrets, Local: p.Local}); err != nil {
		return nil, err
	}
	Pin(&pod.Spec, p.Spec.Node)
	if p.Share != nil {
		addGPU(pod, *p.Share, p.Claim)
	}
	return pod, nil
}

func skeleton(p ModelPlan, name string) corev1.PodSpec {
	requests, limits := amounts(p)
	grace := int64(max(1, (p.Grace+time.Second-1)/time.Second))
	if p.Grace <= 0 {
		grace = corev1.DefaultTerminationGracePeriodSeconds
	}
	return corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever, // The scaling engine decides on a replacement.
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: name, Image: p.Spec.Bundle, Args: p.Args,
			Ports:          []corev1.ContainerPort{{Name: PortName, ContainerPort: Port, Protocol: corev1.ProtocolTCP}},
			Resources:      corev1.ResourceRequirements{Requests: requests, Limits: limits},
			ReadinessProbe: readiness(), LivenessProbe: liveness(),
			// A resize of the CPU quota must not restart it.
			ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}},
			// The pod's status then says why the program failed.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
}

// readiness returns the pod's readiness probe. It serves other observers and providers
// that start later; the provider that started the instance probes it more often itself.
func readiness() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: ReadyPath, Port: intstr.FromInt32(Port)}},
		PeriodSeconds: 2, TimeoutSeconds: 2, FailureThreshold: 3,
	}
}

func metadata(p ModelPlan, name, namespace string) (metav1.ObjectMeta, error) {
	spec, err := json.Marshal(p.Spec)
	if err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("instance's spec: %w", err)
	}
	labels := map[string]string{}
	for key, value := range p.Owner.Spec.Labels {
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	labels[v1alpha1.FunctionLabel] = name
	labels[v1alpha1.ManagedByLabel] = v1alpha1.ManagedBy
	labels[v1alpha1.InstanceLabel] = string(p.Spec.ID)
	for _, key := range []string{v1alpha1.MemberLabel, v1alpha1.PairLabel, v1alpha1.BodyLabel} {
		delete(labels, key) // A function must not choose whom it may reach.
	}
	switch {
	case p.Spec.Set != "" && p.Spec.Member == 0:
		labels[v1alpha1.MemberLabel] = v1alpha1.MemberMaster
	case p.Spec.Set != "":
		labels[v1alpha1.MemberLabel] = v1alpha1.MemberWorker
	}
	annotations := map[string]string{}
	for key, value := range p.Owner.Spec.Annotations {
		if len(validation.IsQualifiedName(key)) == 0 {
			annotations[key] = value
		}
	}
	delete(annotations, gpu.DeviceAnnotation) // A function must not claim to have a share.
	if annotations[SafeToEvict] == "" {       // The provider starts it again elsewhere.
		annotations[SafeToEvict] = "true"
	}
	delete(annotations, StartingCPUAnnotation) // Nor to be given more CPU for a while.
	if p.StartingCPU > 0 {
		annotations[StartingCPUAnnotation] = strconv.Itoa(p.StartingCPU)
	}
	annotations[v1alpha1.SpecAnnotation] = string(spec)
	annotations[StartedAnnotation] = p.StartedAt.UTC().Format(time.RFC3339Nano)
	controller := true
	return metav1.ObjectMeta{
		Name: string(p.Spec.ID), Namespace: namespace, Labels: labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: p.Owner.Name, UID: p.Owner.UID, Controller: &controller,
		}},
	}, nil
}

// amounts converts what an instance holds and may use to Kubernetes' quantities.
func amounts(p ModelPlan) (requests, limits corev1.ResourceList) {
	spec, has := p.Spec, Quota{p.Spec.Config.CPU, p.Spec.Config.Quota()}
	if p.StartingCPU > 0 {
		has = Quota{p.StartingCPU, p.StartingCPU}
	}
	quota := has.Requirements()
	if requests, limits = quota.Requests, quota.Limits; spec.Config.Memory > 0 {
		memory := *resource.NewQuantity(spec.Config.Memory, resource.BinarySI)
		requests[corev1.ResourceMemory], limits[corev1.ResourceMemory] = memory, memory
	}
	return requests, limits
}

// CPU returns millicores as a quantity.
func CPU(millicores int) resource.Quantity {
	return *resource.NewMilliQuantity(int64(millicores), resource.DecimalSI)
}

// Quota is the CPU that an instance's container asks for and may use, in millicores. Both are
// equal but for a set's members that share their CPU.
type Quota struct{ Request, Limit int }

// QuotaOf returns the quota of an instance. That of a parked member that shares its CPU stays
// unequal, because a resize must not change the pod's class of quality of service.
func QuotaOf(spec cluster.InstanceSpec) Quota {
	switch {
	case spec.Parked && spec.Config.Most > 0:
		return Quota{ParkedCPU, sharedParkedCPU}
	case spec.Parked:
		return Quota{ParkedCPU, ParkedCPU}
	}
	return Quota{spec.Config.CPU, spec.Config.Quota()}
}

// Requirements returns the quota as a container has it.
func (q Quota) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: CPU(q.Request)}, Limits: corev1.ResourceList{corev1.ResourceCPU: CPU(q.Limit)},
	}
}

// claimName is the name of a claim within a pod.
const claimName = "gpu"

// addGPU gives the pod its share of a GPU. The driver of a claim brings the GPU into the
// container; otherwise NVIDIA's container runtime does.
func addGPU(pod *corev1.Pod, s gpu.Share, claim string) {
	pod.Annotations[gpu.DeviceAnnotation] = s.Device
	pod.Spec.HostUsers = nil
	c := &pod.Spec.Containers[0]
	env := s.Env()
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { _, set := env[e.Name]; return set || gpu.Ours(e.Name) })
	switch {
	case claim != "":
		delete(env, gpu.VisibleEnv)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claimName, ResourceClaimName: &claim})
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claimName})
	case s.RuntimeClass != "" && pod.Spec.RuntimeClassName == nil:
		pod.Spec.RuntimeClassName = &s.RuntimeClass
	}
	if s.Grant != "" {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			list[corev1.ResourceName(s.Grant)] = *resource.NewQuantity(1, resource.DecimalSI)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	for _, m := range s.Mounts() {
		directory := corev1.HostPathDirectory
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: m.Name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.Host, Type: &directory}}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.Name, MountPath: m.Path})
	}
}
