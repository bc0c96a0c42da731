package deployments

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// network answers for pods. A pod has a server from the time when the API server shows its
// address until the API server shows its end. Then the server accepts no connections,
// because the address may be another pod's. Open connections are served as long as the
// kubelet would let them, and requests in flight are finished, as a watchdog does.
type network struct {
	mu sync.Mutex
	// servers are the pods', of is whose an address is now: a pod may get that of
	// one that is gone.
	servers map[types.UID]*server
	of      map[string]types.UID
	// unready are functions that do not answer when asked.
	unready map[string]bool
}

// server answers for one pod at a local address.
type server struct {
	http.Server
	at string
	// dialled and accepted count its connections.
	dialled, accepted atomic.Int64
}

func newNetwork(t *testing.T, client kubernetes.Interface) *network {
	n := &network{servers: map[types.UID]*server{}, of: map[string]types.UID{}, unready: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.see(t, o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { n.see(t, o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			pod := o.(*corev1.Pod)
			n.lose(pod, leaves(pod))
		},
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, s := range n.servers {
			_ = s.Close()
		}
	})
	return n
}

func (n *network) see(t *testing.T, p *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.Status.PodIP == "" || p.DeletionTimestamp != nil || n.servers[p.UID] != nil {
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return
	}
	name, revision, function := p.Name, p.Annotations[v1alpha1.RevisionAnnotation], p.Labels[v1alpha1.FunctionLabel]
	s := &server{at: listener.Addr().String()}
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.accepted.Add(1)
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		unready := n.unready[function]
		n.mu.Unlock()
		if unready {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			time.Sleep(200 * time.Millisecond) // That is what the function does.
		}
		w.Header().Set("Revision", revision)
		fmt.Fprintln(w, name)
	})
	n.servers[p.UID], n.of[net.JoinHostPort(p.Status.PodIP, "8080")] = s, p.UID
	go func() { _ = s.Serve(listener) }()
}

// leaves returns how long the kubelet would let a terminating pod serve.
func leaves(p *corev1.Pod) time.Duration {
	for _, c := range p.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			return time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
	}
	return 0
}

// lose ends a pod's server after a time, as soon as it has accepted the connections made before: the
// kernel would reset those that wait, with requests that may not be sent twice.
func (n *network) lose(p *corev1.Pod, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.servers[p.UID]; s != nil {
		delete(n.servers, p.UID)
		time.AfterFunc(after, func() {
			for end := time.Now().Add(time.Second); s.accepted.Load() < s.dialled.Load() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			_ = s.Shutdown(context.Background())
		})
	}
}

// Dial connects to a pod.
func (n *network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	s := n.servers[n.of[address]]
	if s != nil {
		s.dialled.Add(1)
	}
	n.mu.Unlock()
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.at)
	if err != nil {
		s.dialled.Add(-1)
	}
	return c, err
}

func (n *network) setUnready(function string, unready bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unready[function] = unready
}
