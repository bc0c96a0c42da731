package knative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// ingressResource is Knative's resource for its networking layer.
var ingressResource = schema.GroupVersionResource{
	Group:    "networking.internal.knative.dev",
	Version:  "v1alpha1",
	Resource: "ingresses",
}

// ingressSpec is the part of the resource that the layer obeys.
type ingressSpec struct {
	Rules []struct {
		Hosts []string `json:"hosts"`
		HTTP  struct {
			Paths []ingressPath `json:"paths"`
		} `json:"http"`
	} `json:"rules"`
}

// ingressPath are the revisions that answer a host's requests.
type ingressPath struct {
	Splits []struct {
		Namespace     string            `json:"serviceNamespace"`
		Service       string            `json:"serviceName"`
		Percent       int               `json:"percent"`
		AppendHeaders map[string]string `json:"appendHeaders"`
	} `json:"splits"`
	AppendHeaders map[string]string `json:"appendHeaders"`
}

// route is where the requests of a host go.
type route struct{ splits []split }

// split is a revision's part of a route.
type split struct {
	percent   int
	addresses []string
	headers   map[string]string
}

// Ingress is the networking layer between clients and Knative, in place of Kourier or Istio. It
// forwards a request to an address of the revision's public service: the activator's, or that of an
// instance. A change takes effect at once for all requests, before Knative learns that it is ready,
// so that it costs Knative nothing. A request is never tried again, as with Kourier.
type Ingress struct {
	// URL is where clients send requests, with the Host of a service.
	URL       string
	client    dynamic.Interface
	ingresses cache.GenericLister
	endpoints corelisters.EndpointsLister
	routes    atomic.Pointer[map[string]route]
	changed   chan struct{}
	server    *http.Server
	cancel    context.CancelFunc
	ended     chan error
}

// StartIngress serves at a free port of the address host.
func StartIngress(ctx context.Context, config *rest.Config, host string) (*Ingress, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect the ingress to the API server: %w", err)
	}
	i := &Ingress{changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	if i.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect the ingress to the API server: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the ingress: %w", err)
	}
	i.URL = "http://" + l.Addr().String()
	i.routes.Store(&map[string]route{})
	ctx, i.cancel = context.WithCancel(ctx)
	if err := i.watch(ctx, typed); err != nil {
		i.cancel()
		return nil, errors.Join(err, l.Close())
	}
	i.server = &http.Server{
		Handler:           i.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() { _ = i.server.Serve(l) }()
	go i.run(ctx)
	return i, nil
}

// Close ends the layer.
func (i *Ingress) Close() {
	i.cancel()
	<-i.ended
	_ = i.server.Close()
}

// watch follows the ingresses and the addresses of services.
func (i *Ingress) watch(ctx context.Context, typed kubernetes.Interface) error {
	own := dynamicinformer.NewDynamicSharedInformerFactory(i.client, 0)
	core := informers.NewSharedInformerFactory(typed, 0)
	mark := func() {
		select {
		case i.changed <- struct{}{}:
		default: // A change is already marked.
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { mark() }, UpdateFunc: func(_, _ any) { mark() }, DeleteFunc: func(any) { mark() },
	}
	ingresses, endpoints := own.ForResource(ingressResource), core.Core().V1().Endpoints()
	i.ingresses, i.endpoints = ingresses.Lister(), endpoints.Lister()
	for _, informer := range []cache.SharedIndexInformer{ingresses.Informer(), endpoints.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch for the ingress: %w", err)
		}
	}
	own.Start(ctx.Done())
	core.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), ingresses.Informer().HasSynced, endpoints.Informer().HasSynced) {
		return fmt.Errorf("watch for the ingress: %w", context.Cause(ctx))
	}
	return nil
}

// run puts changes into effect until ctx ends, and then tells Knative.
func (i *Ingress) run(ctx context.Context) {
	defer close(i.ended)
	for {
		if err := i.update(ctx); err != nil && ctx.Err() == nil {
			// Somebody has changed the object meanwhile, which is a change to handle, too.
			select {
			case i.changed <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-i.changed:
		}
	}
}

func (i *Ingress) update(ctx context.Context) error {
	objects, err := i.ingresses.List(labels.Everything())
	if err != nil {
		return err
	}
	routes, ready, err := routesOf(objects, func(namespace, service string) []string {
		e, err := i.endpoints.Endpoints(namespace).Get(service)
		if err != nil {
			return nil // It is not there yet.
		}
		return addresses(e)
	})
	if err != nil {
		return err
	}
	i.routes.Store(&routes)
	for _, o := range ready {
		in, patch := i.client.Resource(ingressResource).Namespace(o.GetNamespace()), statusOf(o, time.Now())
		_, err := in.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("tell Knative that its ingress %s is ready: %w", o.GetName(), err)
		}
	}
	return nil
}

// addresses lists the addresses with which a service serves HTTP.
func addresses(e *corev1.Endpoints) (all []string) {
	for _, subset := range e.Subsets {
		for _, port := range subset.Ports {
			if port.Name != "http" {
				continue
			}
			for _, a := range subset.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return all
}

// find returns the addresses with which a service serves HTTP, nil for none.
type find func(namespace, service string) []string

// routesOf returns the routes by host. ready are the ingresses that have an address for each of their
// services, and whose status does not say so yet.
func routesOf(objects []runtime.Object, addressesOf find) (
	routes map[string]route, ready []*unstructured.Unstructured, err error,
) {
	routes = map[string]route{}
	for _, object := range objects {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			return nil, nil, fmt.Errorf("an ingress is a %T", object)
		}
		var spec ingressSpec
		text, err := json.Marshal(o.Object["spec"])
		if err == nil {
			err = json.Unmarshal(text, &spec)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the ingress %s: %w", o.GetName(), err)
		}
		complete := true
		for _, rule := range spec.Rules {
			for _, p := range rule.HTTP.Paths {
				r := p.route(addressesOf)
				for _, s := range r.splits {
					complete = complete && len(s.addresses) > 0
				}
				for _, host := range rule.Hosts {
					routes[host] = r
				}
			}
		}
		// Without a status, nothing was observed.
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if complete && observed != o.GetGeneration() {
			ready = append(ready, o)
		}
	}
	return routes, ready, nil
}

// route returns the path's route.
func (p ingressPath) route(addressesOf find) (r route) {
	for _, s := range p.Splits {
		headers := map[string]string{}
		for _, more := range []map[string]string{p.AppendHeaders, s.AppendHeaders} {
			for key, value := range more {
				headers[key] = value
			}
		}
		at := addressesOf(s.Namespace, s.Service)
		r.splits = append(r.splits, split{percent: s.Percent, addresses: at, headers: headers})
	}
	return r
}

// statusOf returns the patch that calls an ingress ready.
func statusOf(o *unstructured.Unstructured, now time.Time) []byte {
	conditions := []map[string]any{}
	for _, condition := range []string{"LoadBalancerReady", "NetworkConfigured", "Ready"} {
		since := now.UTC().Format(time.RFC3339)
		conditions = append(conditions, map[string]any{"type": condition, "status": "True", "lastTransitionTime": since})
	}
	const at = "ingress.knative-serving.svc.cluster.local"
	balancer := map[string]any{"ingress": []map[string]any{{"domainInternal": at}}}
	// It has no part that JSON lacks.
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{
		"observedGeneration":  o.GetGeneration(),
		"conditions":          conditions,
		"publicLoadBalancer":  balancer,
		"privateLoadBalancer": balancer,
	}})
	return patch
}

// choose returns an address of the route and the headers that go with it. draw is below 100.
func (r route) choose(draw int, any func(n int) int) (address string, headers map[string]string) {
	for _, s := range r.splits {
		if draw -= s.percent; draw >= 0 || len(s.addresses) == 0 {
			continue
		}
		return s.addresses[any(len(s.addresses))], s.headers
	}
	return "", nil
}

// handler forwards requests.
func (i *Ingress) handler() http.Handler {
	transport := &http.Transport{
		MaxIdleConnsPerHost: 1000,
		IdleConnTimeout:     time.Minute,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "ingress: "+err.Error(), http.StatusBadGateway)
		},
		Rewrite: func(p *httputil.ProxyRequest) {
			address, _ := p.In.Context().Value(addressKey{}).(string)
			p.SetURL(&url.URL{Scheme: "http", Host: address})
			p.Out.Host = p.In.Host
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		address, headers := (*i.routes.Load())[host].choose(rand.IntN(100), rand.IntN)
		if address == "" {
			http.Error(w, "ingress: no address for "+host, http.StatusServiceUnavailable)
			return
		}
		for key, value := range headers {
			r.Header.Set(key, value)
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), addressKey{}, address)))
	})
}

// addressKey is the key of the address that a request goes to.
type addressKey struct{}
