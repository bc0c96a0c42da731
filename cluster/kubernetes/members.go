package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// MemberOptions say whose replicas. M is what the caller has for one.
type MemberOptions[M any] struct {
	Client kubernetes.Interface
	// Namespace and Service name the provider's Service; Port is the name of its port,
	// the only one if it has one.
	Namespace, Service, Port string
	// Self is the name of this replica's pod.
	Self string
	// Make makes a member of a pod's name and its URL.
	Make func(id, url string) M
}

// Members follows the replicas. It is safe for concurrent use.
type Members[M any] struct {
	options MemberOptions[M]
	lister  listers.EndpointSliceLister
	now     atomic.Pointer[[]M]
}

// NewMembers follows the replicas until ctx ends. It returns once it knows them, or with an
// error when opening ends before.
func NewMembers[M any](ctx, opening context.Context, o MemberOptions[M]) (*Members[M], error) {
	if o.Service == "" || o.Self == "" {
		return nil, errors.New("the provider's Service and the name of its pod must be given for it to find its other replicas")
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = discovery.LabelServiceName + "=" + o.Service }))
	slices := factory.Discovery().V1().EndpointSlices()
	m := &Members[M]{options: o, lister: slices.Lister()}
	m.now.Store(&[]M{})
	changed := func() { m.read() }
	handled, err := slices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("follow the replicas of the provider: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(opening.Done(), handled.HasSynced) {
		return nil, fmt.Errorf("the EndpointSlices of service %s in namespace %s cannot be read: %w; may the provider's service account list and watch endpointslices there?", o.Service, o.Namespace, opening.Err())
	}
	return m, nil
}

// Members lists the replicas that are ready. Nobody may change what it returns.
func (m *Members[M]) Members() []M { return *m.now.Load() }

// Self is this replica's ID.
func (m *Members[M]) Self() string { return m.options.Self }

// read takes in what the cache has.
func (m *Members[M]) read() {
	all, err := m.lister.EndpointSlices(m.options.Namespace).List(labels.Everything())
	if err != nil {
		return // The cache's lister has no error to give.
	}
	var members []M
	for _, f := range ready(all, m.options.Port) {
		members = append(members, m.options.Make(f.id, f.url))
	}
	m.now.Store(&members)
}

// found is a pod that is ready.
type found struct{ id, url string }

// ready lists the pods that are ready, by name, each once: in a cluster with two
// families of addresses there is a slice of each, and the first by name counts.
func ready(all []*discovery.EndpointSlice, port string) (out []found) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *discovery.EndpointSlice) int {
		return cmp.Or(strings.Compare(string(a.AddressType), string(b.AddressType)), strings.Compare(a.Name, b.Name))
	})
	for _, s := range all {
		number, ok := portOf(s.Ports, port)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			if !serves(e) {
				continue
			}
			id := e.Addresses[0]
			if e.TargetRef != nil && e.TargetRef.Name != "" {
				id = e.TargetRef.Name
			}
			url := "http://" + net.JoinHostPort(e.Addresses[0], strconv.Itoa(number))
			if !slices.ContainsFunc(out, func(f found) bool { return f.id == id }) {
				out = append(out, found{id, url})
			}
		}
	}
	slices.SortFunc(out, func(a, b found) int { return strings.Compare(a.id, b.id) })
	return out
}

// serves reports whether an endpoint takes requests; unknown means yes.
func serves(e discovery.Endpoint) bool {
	if len(e.Addresses) == 0 || e.Conditions.Terminating != nil && *e.Conditions.Terminating {
		return false
	}
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

// portOf finds a port by its name; the only one has any.
func portOf(ports []discovery.EndpointPort, name string) (int, bool) {
	for _, p := range ports {
		named := p.Name != nil && *p.Name == name
		if p.Port != nil && (named || len(ports) == 1) {
			return int(*p.Port), true
		}
	}
	return 0, false
}
