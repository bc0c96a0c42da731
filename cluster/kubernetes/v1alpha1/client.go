package v1alpha1

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Scheme knows only this API.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registering this package's types cannot fail.
	_ = AddToScheme(s)
	return s
}

// Client reads and writes functions.
//
// +kubebuilder:object:generate=false
type Client struct{ rest rest.Interface }

// Functions reads and writes the functions of one namespace.
type Functions = gentype.ClientWithList[*Function, *FunctionList]

// NewClient returns a client of an API server. It has the config's limits on requests per
// second and shares connections with the config's other clients.
func NewClient(config *rest.Config) (*Client, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion = &GroupVersion
	c.APIPath = "/apis"
	c.ContentConfig.ContentType, c.ContentConfig.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(Scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for functions: %w", err)
	}
	return &Client{rest: client}, nil
}

// Functions returns the client of one namespace; "" means all namespaces and works for List
// and Watch only.
func (c *Client) Functions(namespace string) *Functions {
	return gentype.NewClientWithList[*Function, *FunctionList](Plural, c.rest, metav1.ParameterCodec, namespace,
		func() *Function { return &Function{} }, func() *FunctionList { return &FunctionList{} })
}

// Informer returns an informer of the functions of all namespaces. The caller runs it.
func (c *Client) Informer() cache.SharedIndexInformer {
	source := cache.NewFilteredListWatchFromClient(c.rest, Plural, metav1.NamespaceAll, func(*metav1.ListOptions) {})
	return cache.NewSharedIndexInformer(source, &Function{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// ObjectVersion returns an object's resource version as a number, 0 if it is not one. A
// later state of the same object has a higher version.
func ObjectVersion(o metav1.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
