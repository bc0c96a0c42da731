// Package provider is the OpenFaaS provider's HTTP interface: the routes of
// faas-provider v0.25 that deploy, describe, scale and invoke functions, those that
// clients of OpenFaaS ask of a gateway, and those of OpenAI's API that name a model. It parses requests and writes answers. It
// does not run functions, which [Controller] does, nor batch requests, which
// [Dispatcher] does. Begin reading at Server.serve.
//
// # The request path
//
// /function/NAME[.NAMESPACE][/path] is served without the router: one look-up
// in a map that readers never lock, the body read into one buffer, one call of the
// function's Dispatcher. Nothing there locks, logs or writes to disk. After a restart, a
// request for a function that is not back yet waits for it.
//
// # Errors
//
// Every error of this package is one sentence of plain text and ends in a newline. Its
// header X-OpenFaaS-Internal: provider tells it from an error that the function itself
// answered. Answers that invite another try (429, 503) carry Retry-After in seconds. Only
// the query route answers errors in Prometheus's own form.
//
// # Decisions where OpenFaaS leaves room
//
// POST of a function that exists updates it (202), because users mean "deploy again". PUT
// of a function that does not exist is 404, and faas-cli then falls back to POST. An
// absent function is 404 on every other route, too. A function's name may carry its
// namespace after a dot. The query and the body may give the namespace, too. Two that
// differ are refused (400). The default is openfaas-fn.
//
// A deployment or a secret in a namespace that does not exist is refused (400), and the
// error says how to create the namespace. A list of such a namespace is empty: a client
// that lists all namespaces may ask for one that has just been deleted. Deleting a
// namespace deletes its functions and secrets. An instance keeps the values that its
// secrets had when it started. The logs of a deleted function can be read for as long as
// they are kept, but not followed.
package provider

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	uri "github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// DefaultNamespace is the namespace of a function that names none. A program may set it, and
// queue.DefaultNamespace with it, before it opens a provider, and not later.
var DefaultNamespace = "openfaas-fn"

// Function is one revision of a deployed function. It never changes: an update makes
// another Function with a higher Revision.
type Function struct {
	// Name is the full name, "name.namespace".
	Name string
	// Deployment is what the user deployed, with its namespace filled in.
	Deployment types.FunctionDeployment
	// Inference is what the deployment asks for, checked.
	Inference annotation.Inference
	// Revision rises with each deployment, even after a deletion.
	Revision uint64
	// Hash identifies the deployment: equal hashes mean equal deployments.
	Hash string
	// Replicas is the number of instances to keep even without load: the larger of the
	// scale route's number and the deployment's minimum.
	Replicas uint64
	// CreatedAt is the time of the first deployment.
	CreatedAt time.Time
	// Restored: it was accepted before, by an earlier provider, by another replica or by this one. So a
	// thing that it lacks may only be late, as a GPU's driver is after a restart of the machine.
	Restored bool
	// BackTo is the earlier revision that was deployed again, whose model it has; 0 for none. It is not stored.
	BackTo uint64
	// Learnt are the sizes of its model's free dimensions that a request has taught, as
	// [annotation.InferShapes] would say them, "" if none has.
	Learnt string
	// MaxTokens is the maximum number of tokens of a text, 0 if its model takes none. It is not stored.
	MaxTokens int
	// Warm: its requests are answered elsewhere until it has an instance, so one starts at once. It is not stored.
	Warm bool
	// Promoted: it was a candidate and takes the place of an earlier revision.
	Promoted bool
}

// ModelFrom says for a sentence from where the function's model comes: its image, or a URI.
func (f *Function) ModelFrom() string {
	if u, err := uri.Parse(f.Inference.Source); err == nil {
		return "model " + u.String()
	}
	return fmt.Sprintf("image %q", f.Deployment.Image)
}

// Status is the present state of a function's instances.
type Status struct {
	// Replicas is the number of instances planned, AvailableReplicas the number of
	// those that are ready.
	Replicas, AvailableReplicas uint64
	// Pods is the number of processes or pods of Replicas if that is another: several for each
	// instance of a model that is cut. Stopped is how many of them the controller has stopped
	// because it wanted fewer or others. Short: there are fewer than it wants.
	Pods, Stopped uint64
	Short         bool
	// Usage is the sum over the instances: CPU in millicores, memory in bytes.
	Usage cluster.Resources
	// Problem is the reason why the function, or its latest deployment, is not served
	// as it should be, "" if there is none. Slight: it keeps no instance from serving.
	Problem string
	Slight  bool
	// Plan says how its model is cut over several instances, "" if it is not.
	Plan string
	// Sharing says with which functions it shares instances and what part of their use is its own, or why
	// with none; "" if it does not ask for that.
	Sharing string
	// Reach says for which sizes of requests its objective holds, "" if they have one size.
	Reach string
	// Texts says what its model does with texts, "" if it takes none.
	Texts string
	// Promise says what is promised and how well it was kept, "" if nothing is known. Controllers leave it empty.
	Promise string
	// Progress says what is being found out about its models, or for what they wait, "" once they
	// are known.
	Progress string
	// Arriving says how much of its model each starting instance has, "" if none is sent one. It is also the Progress of
	// a function without a ready instance.
	Arriving string
	// Rollout says how far the gradual rollout of a later revision is, "" if there is none.
	Rollout string
	// Learnt is that of the function which is served or prepared.
	Learnt string
}

// Dispatcher answers the requests of one function. Implementations are safe
// for concurrent use.
type Dispatcher interface {
	// Invoke answers one request. It is called on the request path. Its error may
	// implement web.HTTPError. context.Canceled means that the client hung up.
	//
	// When Invoke returns a response, the implementation must keep no reference to req
	// or its body. Only the response's body may share req's buffer: the caller writes it
	// first, and then uses the buffer for another request. After an error the caller
	// does not use the buffer again. The caller may change the response's header.
	Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error)
}

// Forwarder is the Dispatcher of an ordinary function. It forwards one HTTP request
// unchanged to one instance. Bodies stream both ways.
type Forwarder interface {
	Dispatcher
	// Forward answers r and returns the status code of the answer. path is r's path
	// below the function: escaped, beginning with "/". Forward writes its errors with
	// web.WriteError, as the provider's other routes do.
	// waited is how long the request has waited already for its function; it counts towards
	// the wait for an instance. keep counts n more bytes of the body that are kept in memory, or refuses: then
	// the body is not kept. Forward does not call it after it has returned. nil counts nothing.
	Forward(w http.ResponseWriter, r *http.Request, path string, waited time.Duration, keep func(n int64) error) (code int)
}

// PatientDispatcher is a Dispatcher that can let a request wait longer than the
// function's objective. Asynchronous requests do.
type PatientDispatcher interface {
	Dispatcher
	// InvokePatiently is Invoke with patience added to the deadline.
	InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error)
}

// LoadDispatcher is a Dispatcher of a function that can take over load from another one at any moment.
type LoadDispatcher interface {
	Dispatcher
	// CountElsewhere counts a request of the function that its candidate has answered. Capacity is planned for it as for
	// one that came here.
	CountElsewhere()
}

// Controller runs functions. Names are full names. Calls for one function never
// overlap; calls for different functions may.
type Controller interface {
	// Deploy makes a function, or a later revision of it, run. It returns once it has
	// checked everything that can be refused (the bundle is there, the model can be
	// read). Longer work goes on in the background. The Dispatcher takes requests at
	// once. For a later revision, Deploy may return the same Dispatcher or another one.
	// Requests that have found the earlier one still call it, and it answers them or
	// refuses them as after Remove. After an error the revision before goes on running.
	// The error should be a web.HTTPError if the deployment is at fault.
	Deploy(ctx context.Context, f *Function) (Dispatcher, error)
	// Remove ends a function. Waiting requests are answered with an error. Its
	// instances may end after Remove returns. Remove returns nil for an absent function.
	Remove(ctx context.Context, name string) error
	// Scale sets the number of instances to keep even without load.
	Scale(name string, replicas uint64) error
	// Restoring is called after a restart, before functions are deployed. missing reports
	// whether a function of the store is still to be deployed, and for "" whether any is. Its instances keep running
	// although the controller does not know it yet. missing may be called with locks held.
	Restoring(missing func(function string) bool)
	// Status returns false if the controller does not know the function.
	Status(name string) (Status, bool)
}

// Store keeps functions and namespaces over a restart. *store.Store implements it. Its
// errors may be web.HTTPErrors.
type Store interface {
	NextRevision() (uint64, error)
	PutFunction(f store.Function) error
	DeleteFunction(namespace, name string) error
	// Function returns one function's present record, store.ErrAbsent if there is none.
	Function(namespace, name string) (store.Function, error)
	Functions(namespace string) ([]store.Function, error)
	PutNamespace(n store.Namespace) error
	DeleteNamespace(name string) error
	// CheckDeleteNamespace returns the error with which DeleteNamespace would refuse, and
	// changes nothing.
	CheckDeleteNamespace(name string) error
	Namespace(name string) (store.Namespace, error)
	Namespaces() ([]store.Namespace, error)
}

// FullName returns "name.namespace".
func FullName(name, namespace string) string { return name + "." + namespace }

// record returns f as the store keeps it.
func (f *Function) record(updatedAt time.Time) store.Function {
	return store.Function{Deployment: f.Deployment, CreatedAt: f.CreatedAt, UpdatedAt: updatedAt,
		Revision: f.Revision, Hash: f.Hash, Replicas: f.Replicas, Promoted: f.Promoted}
}

// restored returns the Function of a record. It checks the deployment again, since
// this version of the program may refuse what an earlier version accepted.
func restored(r store.Function) (*Function, error) {
	f := &Function{
		Name:       FullName(r.Deployment.Service, r.Deployment.Namespace),
		Deployment: r.Deployment, Revision: r.Revision, Hash: r.Hash, Replicas: r.Replicas, CreatedAt: r.CreatedAt,
	}
	in, err := annotation.ParseStored(r.Deployment)
	f.Inference = in
	return f, err
}

// chargedName returns the name under which a budget knows a function that a request names: the full one, so that all
// ways of writing it have one share.
func chargedName(name string) string {
	a, err := resolve(name)
	if err != nil {
		return name // There is no such function.
	}
	return a.full()
}

// address is a function's name and namespace.
type address struct{ name, namespace string }

func (a address) full() string { return FullName(a.name, a.namespace) }

// resolve returns the address of a name that may carry its namespace after a dot.
// namespaces are the other places that may give one, "" for none. Two that differ are an
// error. Without any, the namespace is DefaultNamespace.
func resolve(name string, namespaces ...string) (address, error) {
	a := address{name: name}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		a.name, a.namespace = name[:i], name[i+1:]
		if a.namespace == "" {
			return a, web.Refuse(400, "the function name %q ends in a dot; write the name, or name.namespace", web.Clip(name))
		}
	}
	for _, n := range namespaces {
		switch {
		case n == "" || n == a.namespace:
		case a.namespace == "":
			a.namespace = n
		default:
			return a, web.Refuse(400, "the request names two namespaces, %q and %q; name one", web.Clip(a.namespace), web.Clip(n))
		}
	}
	if a.namespace == "" {
		a.namespace = DefaultNamespace
	}
	return a, nil
}
