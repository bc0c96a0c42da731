package podspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openfaas/faas-provider/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Profile holds pod settings that an administrator defines and functions use by name. Its
// fields are those of OpenFaaS' Profile objects.
type Profile struct {
	PodSecurityContext        *corev1.PodSecurityContext        `json:"podSecurityContext,omitempty"`
	Tolerations               []corev1.Toleration               `json:"tolerations,omitempty"`
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	RuntimeClassName          *string                           `json:"runtimeClassName,omitempty"`
	// RuntimeClass is another way to write RuntimeClassName.
	RuntimeClass      *string              `json:"runtimeClass,omitempty"`
	PriorityClassName string               `json:"priorityClassName,omitempty"`
	DNSPolicy         corev1.DNSPolicy     `json:"dnsPolicy,omitempty"`
	DNSConfig         *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`
	// Resources apply to ordinary functions whose deployment sets none. The scaling
	// engine chooses the resources of models.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Strategy of type Recreate stops an ordinary function's instances before their
	// replacements start.
	Strategy *appsv1.DeploymentStrategy `json:"strategy,omitempty"`
}

// ErrNoProfile means that a profile does not exist.
var ErrNoProfile = errors.New("there is no such profile")

// Profiles finds profiles.
type Profiles interface {
	// Profile returns [ErrNoProfile] if there is no profile of that name.
	Profile(name string) (Profile, error)
}

// ProfileNames returns the profiles that a deployment names, each once.
func ProfileNames(d types.FunctionDeployment) []string {
	value, _ := annotation(d, ProfileAnnotation)
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Named finds the profiles that a deployment names. p may be nil if it names none. An
// error names the profile that is missing or cannot be used.
func Named(p Profiles, d types.FunctionDeployment) ([]Profile, error) {
	var found []Profile
	for _, name := range ProfileNames(d) {
		if p == nil || !isSubdomain(name) {
			return nil, missing(name)
		}
		profile, err := p.Profile(name)
		if errors.Is(err, ErrNoProfile) {
			return nil, missing(name)
		}
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", name, err)
		}
		found = append(found, profile)
	}
	return found, nil
}

func missing(name string) error {
	return &Error{Key: ProfileAnnotation, Value: name, Why: "there is no such profile; an administrator creates profiles in the provider's namespace"}
}

// ParseProfile reads a profile's fields as YAML or JSON. An unknown field is an error,
// because ignoring it would drop the administrator's intent.
func ParseProfile(name string, text []byte) (Profile, error) {
	var p Profile
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return p, &Error{Key: "profile", Value: name, Why: "it cannot be read: " + strings.TrimPrefix(err.Error(), "error unmarshaling JSON: ")}
	}
	if s := p.Strategy; s != nil && s.Type != "" && s.Type != appsv1.RecreateDeploymentStrategyType && s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return p, &Error{Key: "profile", Value: name, Why: fmt.Sprintf("its strategy.type is %q; it must be Recreate or RollingUpdate", s.Type)}
	}
	return p, nil
}

// apply puts the profile's fields into a pod. It appends to lists and replaces other
// fields.
func (p Profile) apply(spec *corev1.PodSpec) error {
	if p.PodSecurityContext != nil {
		if err := merge(&spec.SecurityContext, p.PodSecurityContext); err != nil {
			return err
		}
	}
	p.applyAffinity(spec)
	spec.Tolerations = append(spec.Tolerations, p.Tolerations...)
	spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, p.TopologySpreadConstraints...)
	if class := p.runtimeClass(); class != nil {
		spec.RuntimeClassName = class
	}
	if p.PriorityClassName != "" {
		spec.PriorityClassName = p.PriorityClassName
	}
	if p.DNSPolicy != "" {
		spec.DNSPolicy = p.DNSPolicy
	}
	if p.DNSConfig != nil {
		spec.DNSConfig = p.DNSConfig.DeepCopy()
	}
	return nil
}

// applyAffinity sets the kinds of affinity that the profile has.
func (p Profile) applyAffinity(spec *corev1.PodSpec) {
	from := p.Affinity.DeepCopy()
	if from == nil {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	to := spec.Affinity
	to.NodeAffinity = cmp.Or(from.NodeAffinity, to.NodeAffinity)
	to.PodAffinity = cmp.Or(from.PodAffinity, to.PodAffinity)
	to.PodAntiAffinity = cmp.Or(from.PodAntiAffinity, to.PodAntiAffinity)
}

func (p Profile) runtimeClass() *string {
	if p.RuntimeClassName != nil {
		return p.RuntimeClassName
	}
	return p.RuntimeClass
}

// merge sets the fields of *to that are set in from. *to must not be shared.
func merge[T any](to **T, from *T) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("read a profile: %w", err)
	}
	if *to == nil {
		*to = new(T)
	}
	if err := json.Unmarshal(text, *to); err != nil {
		return fmt.Errorf("apply a profile: %w", err)
	}
	return nil
}

// recreates reports whether the last profile with a strategy has the type Recreate.
func recreates(profiles []Profile) bool {
	recreate := false
	for _, p := range profiles {
		if p.Strategy != nil && p.Strategy.Type != "" {
			recreate = p.Strategy.Type == appsv1.RecreateDeploymentStrategyType
		}
	}
	return recreate
}
