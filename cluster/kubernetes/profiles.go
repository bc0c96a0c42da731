package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

const (
	// ProfileLabel marks a ConfigMap of the provider's namespace as a profile.
	ProfileLabel = "faas-infer.dev/profile"
	// ProfileKey is the ConfigMap's key that holds the profile's fields as YAML.
	ProfileKey = "profile.yaml"
)

// ProfileResource is the resource of OpenFaaS' Profile objects.
var ProfileResource = schema.GroupVersionResource{Group: "openfaas.com", Version: "v1", Resource: "profiles"}

const (
	// fresh is how long a profile is cached. Instances that start meanwhile get the
	// cached one.
	fresh = 10 * time.Second
	// profileTimeout bounds one reading.
	profileTimeout = 5 * time.Second
)

// Profiles reads profiles from one namespace. It is safe for concurrent use.
type Profiles struct {
	dynamic   dynamic.Interface
	client    kubernetes.Interface
	namespace string

	mu   sync.Mutex
	read map[string]reading
}

// reading is the result of one reading.
type reading struct {
	profile podspec.Profile
	err     error
	at      time.Time
}

var _ podspec.Profiles = (*Profiles)(nil)

// NewProfiles returns the profiles of the provider's namespace.
func NewProfiles(d dynamic.Interface, c kubernetes.Interface, namespace string) *Profiles {
	return &Profiles{dynamic: d, client: c, namespace: namespace, read: map[string]reading{}}
}

// Profile implements [podspec.Profiles]. While the API server does not answer, the
// profile that was read last stays valid.
func (p *Profiles) Profile(name string) (podspec.Profile, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.read[name]
	if known && time.Since(last.at) < fresh {
		return last.profile, last.err
	}
	now := reading{at: time.Now()}
	now.profile, now.err = p.find(name)
	if known && now.err != nil && apierrors.ReasonForError(now.err) == metav1.StatusReasonUnknown && !refused(now.err) {
		now.profile, now.err = last.profile, last.err
	}
	p.read[name] = now
	return now.profile, now.err
}

// refused reports whether the profile itself is at fault: it is missing or invalid.
func refused(err error) bool {
	_, wrong := err.(*podspec.Error)
	return wrong || err == podspec.ErrNoProfile
}

func (p *Profiles) find(name string) (podspec.Profile, error) {
	ctx, cancel := context.WithTimeout(context.Background(), profileTimeout)
	defer cancel()
	object, err := p.dynamic.Resource(ProfileResource).Namespace(p.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		text, err := json.Marshal(object.Object["spec"])
		if err != nil {
			return podspec.Profile{}, fmt.Errorf("read the profile object: %w", err)
		}
		return podspec.ParseProfile(name, text)
	case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
		return podspec.Profile{}, fmt.Errorf("read the profile object: %w", err)
	}
	config, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && config.Labels[ProfileLabel] == "" {
		return podspec.Profile{}, podspec.ErrNoProfile
	}
	if err != nil {
		return podspec.Profile{}, fmt.Errorf("read the profile's ConfigMap: %w", err)
	}
	text, ok := config.Data[ProfileKey]
	if !ok {
		return podspec.Profile{}, &podspec.Error{Key: "profile", Value: name, Why: "its ConfigMap has no key " + ProfileKey}
	}
	return podspec.ParseProfile(name, []byte(text))
}
