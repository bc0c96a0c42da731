package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/model/content"
)

const (
	// agentsNamespace has the agents of the option copies, and agentsSelector selects their pods.
	agentsNamespace = "faas-infer-copies"
	agentsSelector  = "app.kubernetes.io/name=faas-infer-copies"
	// agentPort is the port at which they take models.
	agentPort = 8080
	// agentDial bounds the connection to an agent, and agentAnswer its answer once it has what was sent.
	agentDial, agentAnswer = 2 * time.Second, time.Minute
	// agentTries is how often in a row an agent is sent a content that does not arrive, and agentPause the time
	// between two tries, or two questions while the agent reads the content's files.
	agentTries, agentPause = 3, time.Second
	// agentAway is how long an agent that could not be reached is left alone.
	agentAway = 30 * time.Second
)

// errNoAgent says that a node has no agent that takes models now.
var errNoAgent = errors.New("the node has no agent that takes models")

// errNotHere says that a content is not on this machine, and that no instance needs it.
var errNotHere = errors.New("the model is not in the provider's cache")

// spot is a content in a namespace of a node.
type spot struct{ node, namespace, content string }

// agents sends contents to the nodes' agents. All that want one at the same spot wait for one sending.
type agents struct {
	// source finds a content on this machine, for a function.
	source func(ctx context.Context, name, function string) (content.Source, error)
	// here reports whether it needs no download.
	here func(name, function string) bool
	// life ends the sendings, and begin begins each.
	life  context.Context
	begin func(func())
	// client is for contents of which instances wait, ahead for others.
	client, ahead *http.Client

	mu        sync.Mutex
	addresses map[string]string
	sendings  map[spot]*sending
	away      map[string]time.Time
	// waits says why models are not on nodes ahead of instances, by the functions' names.
	waits map[string]string
}

// sending is a content on its way to a node, or to an instance.
type sending struct {
	sent, of atomic.Int64
	// ahead: no instance has waited for it when it began.
	ahead bool
	done  chan struct{}
	err   error
}

func newAgents(
	life context.Context, begin func(func()), here func(name, function string) bool,
	source func(context.Context, string, string) (content.Source, error),
) *agents {
	dialer := &net.Dialer{Timeout: agentDial}
	transport := &http.Transport{
		DisableKeepAlives:     true,
		DialContext:           dialer.DialContext,
		ResponseHeaderTimeout: agentAnswer,
		WriteBufferSize:       1 << 16,
	}
	return &agents{
		source: source, here: here, life: life, begin: begin,
		client:    &http.Client{Transport: transport},
		ahead:     &http.Client{Transport: sendingAhead{transport}},
		addresses: map[string]string{},
		sendings:  map[spot]*sending{},
		away:      map[string]time.Time{},
	}
}

// sendingAhead says in each request that no instance waits for the content.
type sendingAhead struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s sendingAhead) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	copies.Ahead(q.Header)
	return s.RoundTripper.RoundTrip(q)
}

// follow follows the agents' pods until ctx ends.
func (a *agents) follow(ctx context.Context, client clientset.Interface) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(agentsNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = agentsSelector }))
	informer := factory.Core().V1().Pods().Informer()
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only for a stopped informer.
		AddFunc:    func(o any) { a.see(o, false) },
		UpdateFunc: func(_, o any) { a.see(o, false) },
		DeleteFunc: func(o any) {
			if gone, is := o.(cache.DeletedFinalStateUnknown); is {
				o = gone.Obj
			}
			a.see(o, true)
		},
	})
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
}

// see takes in the state of an agent's pod.
func (a *agents) see(object any, deleted bool) {
	pod, is := object.(*corev1.Pod)
	if !is || pod.Spec.NodeName == "" {
		return
	}
	address := ""
	if pod.Status.PodIP != "" {
		address = "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(agentPort))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch runs := pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !deleted; {
	case runs && address != "" && a.addresses[pod.Spec.NodeName] != address:
		a.addresses[pod.Spec.NodeName] = address
		delete(a.away, pod.Spec.NodeName)
	case !runs && a.addresses[pod.Spec.NodeName] == address:
		delete(a.addresses, pod.Spec.NodeName)
	}
}

// at returns the address of a node's agent, "" if it has none that may be reached.
func (a *agents) at(node string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.away[node]) < agentAway {
		return ""
	}
	return a.addresses[node]
}

// send begins to bring a content to a node, for a function, or joins the sending that is under way. Ahead of instances it
// downloads nothing: the sending ends with errNotHere.
func (a *agents) send(at spot, function string, ahead bool) (*sending, error) {
	a.mu.Lock()
	s := a.sendings[at]
	a.mu.Unlock()
	if s != nil {
		return s, nil
	}
	address := a.at(at.node)
	if address == "" {
		return nil, fmt.Errorf("%s: %w", at.node, errNoAgent)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s = a.sendings[at]; s == nil {
		s = &sending{ahead: ahead, done: make(chan struct{})}
		a.sendings[at] = s
		a.begin(func() {
			s.err = a.bring(at, function, address, s)
			a.mu.Lock()
			delete(a.sendings, at)
			a.mu.Unlock()
			close(s.done)
		})
	}
	return s, nil
}

// bring brings a content to an agent. It tries again when a connection breaks.
func (a *agents) bring(at spot, function, address string, s *sending) error {
	client, to := a.client, address+copies.ModelPath(at.namespace, at.content)
	if s.ahead {
		client = a.ahead
	}
	state, err := a.ask(client, to)
	if err != nil {
		a.note(at.node, address, err)
		return err
	}
	if state.Needs == content.NeedsNothing {
		return nil
	}
	if s.ahead && !a.here(at.content, function) {
		return errNotHere
	}
	from, err := a.source(a.life, at.content, function)
	if err != nil {
		return err
	}
	s.of.Store(from.Index.Bytes())
	for n := 1; ; n++ {
		if state, err := content.Ask(a.life, client, to); err == nil {
			s.sent.Store(state.From)
		}
		err := content.Send(a.life, client, to, from, func(n int64) { s.sent.Add(n) })
		if err == nil || n == agentTries || a.life.Err() != nil || errors.Is(err, content.ErrRefused) {
			return err
		}
		select {
		case <-time.After(agentPause):
		case <-a.life.Done():
			return a.life.Err()
		}
	}
}

// ask asks an agent what it needs of a content. It waits for one that still reads the content's files.
func (a *agents) ask(client *http.Client, to string) (state content.State, err error) {
	for end := time.Now().Add(agentAnswer); ; {
		state, err = content.Ask(a.life, client, to)
		if err != nil || state.Needs != content.NeedsOther || time.Now().After(end) {
			return state, err
		}
		select {
		case <-time.After(agentPause):
		case <-a.life.Done():
			return state, a.life.Err()
		}
	}
}

// note leaves the agent of a node alone for a while if the error says that it cannot be reached. An answer of it, whatever
// it says, is about one content only.
func (a *agents) note(node, address string, err error) {
	var dial *net.OpError
	var late net.Error
	unreachable := errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &late) && late.Timeout()
	if !unreachable || a.life.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.addresses[node] == address {
		a.away[node] = time.Now()
	}
}

// setWaits sets why models are not on nodes ahead of instances, by the functions' names. Without agents it does nothing.
func (a *agents) setWaits(waits map[string]string) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = waits
}

// unprepared says which nodes do not have the model of a function ahead of its instances, and why, "" if all do that
// should.
func (a *agents) unprepared(function string) string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waits[function]
}
