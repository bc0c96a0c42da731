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

// MemberOptions say which replicas to follow. M is the caller's type for a replica.
type MemberOptions[M any] struct {
	Client kubernetes.Interface
	// Namespace and Service name the provider's Service; Port is the name of its port.
	// If the Service has one port, any name will do.
	Namespace, Service, Port string
	// Self is the name of this replica's pod.
	Self string
	// Make returns the member for a pod's name and its URL.
	Make func(id, url string) M
}

// Members follows the replicas of the provider through its Service's EndpointSlices. It
// is safe for concurrent use.
type Members[M any] struct {
	options MemberOptions[M]
	lister  listers.EndpointSliceLister
	now     atomic.Pointer[replicas[M]]
}

// replicas are the members and the leaving replicas.
type replicas[M any] struct{ ready, leaving []M }

// NewMembers follows the replicas until ctx ends. It returns once it knows them, or with
// an error if opening ends first.
func NewMembers[M any](ctx, opening context.Context, o MemberOptions[M]) (*Members[M], error) {
	if o.Service == "" || o.Self == "" {
		return nil, errors.New("MemberOptions: set Service and Self, the provider's Service and the name of its pod, to find the other replicas")
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = discovery.LabelServiceName + "=" + o.Service }))
	slices := factory.Discovery().V1().EndpointSlices()
	m := &Members[M]{options: o, lister: slices.Lister()}
	m.now.Store(&replicas[M]{})
	changed := func() { m.read() }
	handled, err := slices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("follow the replicas of the provider: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(opening.Done(), handled.HasSynced) {
		return nil, fmt.Errorf("cannot read the EndpointSlices of service %s in namespace %s: %w; let the provider's service account list and watch endpointslices there", o.Service, o.Namespace, opening.Err())
	}
	return m, nil
}

// Members lists the ready replicas. The caller must not change the slice.
func (m *Members[M]) Members() []M { return m.now.Load().ready }

// Leaving lists the replicas whose pods terminate. They finish their requests, although a
// replica that drains is not ready any more. The caller must not change the slice.
func (m *Members[M]) Leaving() []M { return m.now.Load().leaving }

// Self returns this replica's ID.
func (m *Members[M]) Self() string { return m.options.Self }

// read takes in the contents of the informer's cache.
func (m *Members[M]) read() {
	all, err := m.lister.EndpointSlices(m.options.Namespace).List(labels.Everything())
	if err != nil {
		return // The lister of a cache never fails.
	}
	made := func(list []found) (out []M) {
		for _, f := range list {
			out = append(out, m.options.Make(f.id, f.url))
		}
		return out
	}
	m.now.Store(&replicas[M]{made(pods(all, m.options.Port, isReady)), made(pods(all, m.options.Port, isLeaving))})
}

// found is a pod of the Service.
type found struct{ id, url string }

// pods lists the chosen pods by name, each once. A dual-stack cluster has a slice for
// each address family; the family that sorts first counts.
func pods(all []*discovery.EndpointSlice, port string, chosen func(discovery.Endpoint) bool) (out []found) {
	all = slices.SortedFunc(slices.Values(all), func(a, b *discovery.EndpointSlice) int {
		return cmp.Or(strings.Compare(string(a.AddressType), string(b.AddressType)), strings.Compare(a.Name, b.Name))
	})
	for _, s := range all {
		number, ok := portOf(s.Ports, port)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 || !chosen(e) {
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

// isReady reports whether an endpoint takes requests. An unknown condition means yes.
func isReady(e discovery.Endpoint) bool {
	return !isLeaving(e) && (e.Conditions.Ready == nil || *e.Conditions.Ready)
}

// isLeaving reports whether an endpoint's pod terminates. The condition serving does not count: it
// is false while a replica drains, which then answers its readiness probe with 503.
func isLeaving(e discovery.Endpoint) bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}

// portOf finds a port by its name. A single port matches any name.
func portOf(ports []discovery.EndpointPort, name string) (int, bool) {
	for _, p := range ports {
		named := p.Name != nil && *p.Name == name
		if p.Port != nil && (named || len(ports) == 1) {
			return int(*p.Port), true
		}
	}
	return 0, false
}
