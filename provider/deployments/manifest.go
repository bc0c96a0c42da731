package deployments

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// AppliedAnnotation on a Deployment holds the [Manifest.Hash] that it was made from.
const AppliedAnnotation = "faas-infer.dev/applied"

// ManifestSettings hold the provider's settings for all ordinary functions, and the secrets and
// profiles of this one.
type ManifestSettings struct {
	podspec.Settings
	// Name is the objects' name, "" for the function's.
	Name string
	// PullPolicy is when nodes pull the image again.
	PullPolicy corev1.PullPolicy
}

// Manifest holds the Kubernetes objects of one deployment of an ordinary function.
type Manifest struct {
	deployment appsv1.Deployment
	service    corev1.Service
	// Hash covers the objects without their owner and number of replicas.
	Hash string
}

// NewManifest makes the objects, or returns an error that names the wrong part of the deployment.
func NewManifest(f *provider.Function, s ManifestSettings) (*Manifest, error) {
	d := f.Deployment
	if problems := validation.IsDNS1035Label(d.Service); len(problems) > 0 {
		return nil, &podspec.Error{Key: "service", Value: d.Service,
			Why: "on Kubernetes an ordinary function's name must begin with a letter, since it names a Service; lower-case letters, digits and hyphens may follow", Example: "f-" + d.Service}
	}
	pod, err := podspec.Ordinary(d, s.Settings, s.PullPolicy)
	if err != nil {
		return nil, err
	}
	labels, err := podspec.Labels(d)
	if err != nil {
		return nil, err
	}
	annotations, err := podspec.Annotations(d)
	if err != nil {
		return nil, err
	}
	name, selector := cmp.Or(s.Name, d.Service), map[string]string{v1alpha1.FunctionLabel: d.Service}
	if name != d.Service { // Others have pods with the label, too.
		selector[v1alpha1.ManagedByLabel] = v1alpha1.ManagedBy
	}
	delete(labels, v1alpha1.InstanceLabel) // Only models' pods have it: ordinarySelector excludes it.
	for _, key := range []string{v1alpha1.MemberLabel, v1alpha1.PairLabel, v1alpha1.BodyLabel} {
		delete(labels, key) // Network policies let only members reach workers, and bodies shadows.
	}
	maps.Copy(labels, selector)
	labels[v1alpha1.ManagedByLabel] = v1alpha1.ManagedBy
	// Every deployment replaces the instances, even an equal one: the image's tag may name
	// other content now.
	podspec.AllowEviction(annotations, &pod)
	annotations[v1alpha1.RevisionAnnotation] = strconv.FormatUint(f.Revision, 10)
	meta := metav1.ObjectMeta{Name: name, Namespace: d.Namespace, Labels: labels, Annotations: maps.Clone(annotations)}
	history := int32(2)
	m := &Manifest{
		deployment: appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: *meta.DeepCopy(),
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: selector}, Strategy: podspec.Strategy(s.Profiles), RevisionHistoryLimit: &history,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: pod},
			},
		},
		service: corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: *meta.DeepCopy(),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), Selector: selector, Ports: []corev1.ServicePort{
				{Name: podspec.PortName, Port: podspec.Port, TargetPort: intstr.FromInt32(podspec.Port), Protocol: corev1.ProtocolTCP}}},
		},
	}
	if s.Watchdog != nil {
		args, err := json.Marshal(s.Watchdog)
		if err != nil {
			return nil, fmt.Errorf("write the watchdog's arguments: %w", err)
		}
		m.deployment.Annotations[WatchdogAnnotation] = string(args)
	}
	if m.Hash, err = hash(m.deployment, m.service); err != nil {
		return nil, err
	}
	m.deployment.Annotations[AppliedAnnotation] = m.Hash
	return m, nil
}

// secure reports whether the pods need the instances' certificate.
func (m *Manifest) secure() bool { return m.deployment.Annotations[WatchdogAnnotation] != "" }

// Name returns the name of the Deployment and of the Service.
func (m *Manifest) Name() string { return m.deployment.Name }

// otherName returns the objects' name where somebody else has a Deployment with the function's.
func otherName(function string) string {
	const suffix = "-faas-infer"
	return strings.TrimRight(function[:min(len(function), validation.DNS1035LabelMaxLength-len(suffix))], "-") + suffix
}

func hash(objects ...any) (string, error) {
	text, err := json.Marshal(objects)
	if err != nil {
		return "", fmt.Errorf("compare deployments: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// Deployment returns the Deployment as JSON for a server-side apply. owner may be nil.
func (m *Manifest) Deployment(owner *v1alpha1.Function, replicas int) ([]byte, error) {
	d := m.deployment
	d.OwnerReferences = owners(owner)
	n := int32(replicas)
	d.Spec.Replicas = &n
	return without(d, "status")
}

// Service returns the Service as JSON for a server-side apply.
func (m *Manifest) Service(owner *v1alpha1.Function) ([]byte, error) {
	s := m.service
	s.OwnerReferences = owners(owner)
	return without(s, "status")
}

// without returns an object as JSON without one of its fields.
func without(object any, field string) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write an object: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("write an object: %w", err)
	}
	delete(fields, field)
	return json.Marshal(fields)
}

func owners(f *v1alpha1.Function) []metav1.OwnerReference {
	if f == nil {
		return nil
	}
	yes := true
	return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: f.Name, UID: f.UID, Controller: &yes}}
}
