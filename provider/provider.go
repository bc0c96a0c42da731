// Package provider is the OpenFaaS provider's HTTP interface: the routes of
// faas-provider v0.25 that deploy, describe, scale and invoke functions, with
// what Prometheus and the stock gateway's UI ask for. It takes requests apart
// and puts answers together; what a deployment means is decided behind
// [Controller], how a request is batched behind [Dispatcher].
//
// # The request's way
//
// /function/NAME[.NAMESPACE][/path] is served without the router: one look-up
// in an immutable map behind an atomic pointer, the body read into one buffer,
// one call of the function's Dispatcher. Nothing there locks, logs or writes
// to disk.
//
// # Errors
//
// Every error that this package makes is one sentence of plain text, ends in a
// newline, and carries the header X-OpenFaaS-Internal: provider, by which a
// client can tell it from an error that the function itself answered. Answers
// that invite another try (429, 503) carry Retry-After in seconds. Only the
// query route answers errors in Prometheus's own form.
//
// # Decisions where OpenFaaS leaves room
//
// POST of a function that exists updates it (202), as "deploy again" is what
// users mean; PUT of one that does not exist is 404, on which faas-cli falls
// back to POST. A function that is absent is 404 everywhere. Function names
// may carry their namespace after a dot; the query and the body may give it
// too, and where two do, they must agree (400). Without any it is openfaas-fn.
//
// A deployment or a secret in a namespace that does not exist is 400, which says
// how to make it; a list of such a one is empty, as whoever goes through all
// namespaces may come to one that has just been deleted. With a namespace go its
// functions and secrets. Instances have the secrets' values that they were
// started with. Logs of a function that was deleted can be read for as long as
// they are kept; they are not followed.
package provider

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// DefaultNamespace is the namespace of a function that names none.
const DefaultNamespace = "openfaas-fn"

// Function is one deployed function. It never changes: an update makes a new
// one with a higher Revision.
type Function struct {
	// Name is the full name, "name.namespace".
	Name string
	// Deployment is what the user deployed, with its namespace filled in.
	Deployment types.FunctionDeployment
	// Inference is what the deployment asks for, checked.
	Inference annotation.Inference
	// Revision is higher with each deployment, also over deletions.
	Revision uint64
	// Hash tells deployments apart: equal hashes, equal deployments.
	Hash string
	// Replicas is how many instances to keep even without load: the larger
	// of what the scale route set and the deployment's minimum.
	Replicas uint64
	// CreatedAt is the first deployment's time.
	CreatedAt time.Time
}

// Status is what runs of a function now.
type Status struct {
	// Replicas is how many instances there are to be, AvailableReplicas how
	// many of them are ready.
	Replicas, AvailableReplicas uint64
	// Usage is what the instances use together: CPU in millicores, memory in
	// bytes.
	Usage cluster.Resources
	// Problem is why the function, or its latest deployment, is not served as it
	// should be, "" if it is.
	Problem string
}

// Dispatcher answers the requests of one function. Implementations are safe
// for concurrent use.
type Dispatcher interface {
	// Invoke answers one request; it is called on the request's way. Its
	// error may implement answer.HTTPError; context.Canceled means that the client
	// hung up.
	//
	// When it returns a response and no error, nothing may refer to req or
	// its body any more, but for the response's own body, which stays valid
	// until the caller has written it: the buffer under req.Body is then used
	// for another request. After an error the buffer is left alone. A header
	// of the response is the caller's to change.
	Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error)
}

// Forwarder is a Dispatcher of an ordinary function: what carries one HTTP
// request to one instance as it is, bodies streaming both ways.
type Forwarder interface {
	Dispatcher
	// Forward answers r, whose path below the function is path (escaped, it
	// begins with "/"), and returns the status code that was answered. Errors
	// are written like those of the provider's other routes by WriteError.
	Forward(w http.ResponseWriter, r *http.Request, path string) (code int)
}

// PatientDispatcher is a Dispatcher whose requests may be told to wait longer
// than the function's objective, as asynchronous ones can.
type PatientDispatcher interface {
	Dispatcher
	// InvokePatiently is Invoke with patience added to the deadline.
	InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error)
}

// Controller runs functions. Names are full names. Calls for one function never
// overlap; those for different functions do.
type Controller interface {
	// Deploy makes a function, or a later revision of it, run. It returns as
	// soon as all that can be refused has been checked (the bundle is there,
	// the model can be read); what takes longer goes on after it. The
	// Dispatcher takes requests at once. A later revision's Deploy may return
	// the same one or another; the earlier one is still asked by requests
	// that had found it, and answers them or refuses them as after Remove. An
	// error leaves what ran before running; it should be an answer.HTTPError where
	// the deployment is at fault.
	Deploy(ctx context.Context, f *Function) (Dispatcher, error)
	// Remove ends a function: what still waits is answered with an error, and
	// its instances go away, after Remove returns if need be. To remove an
	// absent one is no error.
	Remove(ctx context.Context, name string) error
	// Scale sets the number of instances that are kept even without load.
	Scale(name string, replicas uint64) error
	// Status is false if the controller does not know the function.
	Status(name string) (Status, bool)
}

// Store is where functions and namespaces survive a restart; *store.Store is one. Its
// errors may be HTTPErrors.
type Store interface {
	NextRevision() (uint64, error)
	PutFunction(f store.Function) error
	DeleteFunction(namespace, name string) error
	// Function reads one function as it is now, store.ErrAbsent if there is none.
	Function(namespace, name string) (store.Function, error)
	Functions(namespace string) ([]store.Function, error)
	PutNamespace(n store.Namespace) error
	DeleteNamespace(name string) error
	Namespace(name string) (store.Namespace, error)
	Namespaces() ([]store.Namespace, error)
}

// FullName is "name.namespace".
func FullName(name, namespace string) string { return name + "." + namespace }

// record returns what the store keeps of f.
func (f *Function) record(updatedAt time.Time) store.Function {
	return store.Function{Deployment: f.Deployment, CreatedAt: f.CreatedAt, UpdatedAt: updatedAt,
		Revision: f.Revision, Hash: f.Hash, Replicas: f.Replicas}
}

// restored is the way back from record; the deployment is checked again, since
// a later version of this program may refuse what an earlier one took.
func restored(r store.Function) (*Function, error) {
	f := &Function{
		Name:       FullName(r.Deployment.Service, r.Deployment.Namespace),
		Deployment: r.Deployment, Revision: r.Revision, Hash: r.Hash, Replicas: r.Replicas, CreatedAt: r.CreatedAt,
	}
	in, err := annotation.Parse(r.Deployment)
	f.Inference = in
	return f, err
}

// address is a function's name and namespace, taken apart.
type address struct{ name, namespace string }

func (a address) full() string { return FullName(a.name, a.namespace) }

// resolve takes a name that may carry its namespace apart; namespaces are the
// other places that may give one, the first that does wins. They must not
// contradict each other.
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
