package testcluster

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Enforcer keeps the rules of this process's network namespace in line with the cluster's
// network policies.
type Enforcer struct {
	// command is the path of nft, environment its environment.
	command     string
	environment []string
	factory     informers.SharedInformerFactory
	changed     chan struct{}
	stop, done  chan struct{}
	last        string
	err         error
}

// StartEnforcer starts an enforcer with the program nft and its environment. It returns when
// the rules for the present state hold.
func StartEnforcer(config *rest.Config, nft string, environment []string) (*Enforcer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("enforce network policies: %w", err)
	}
	e := &Enforcer{command: nft, environment: environment, factory: informers.NewSharedInformerFactory(client, 0),
		changed: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	core, network := e.factory.Core().V1(), e.factory.Networking().V1()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { e.mark() }, UpdateFunc: func(_, _ any) { e.mark() }, DeleteFunc: func(any) { e.mark() },
	}
	for _, i := range []cache.SharedIndexInformer{core.Pods().Informer(), core.Namespaces().Informer(), network.NetworkPolicies().Informer()} {
		if _, err := i.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("enforce network policies: %w", err)
		}
	}
	e.factory.Start(e.stop)
	e.factory.WaitForCacheSync(e.stop)
	if err := e.enforce(); err != nil {
		close(e.stop)
		e.factory.Shutdown()
		return nil, err
	}
	go e.run()
	return e, nil
}

func (e *Enforcer) mark() {
	select {
	case e.changed <- struct{}{}:
	default: // A change is already marked.
	}
}

func (e *Enforcer) run() {
	defer close(e.done)
	for {
		select {
		case <-e.stop:
			return
		case <-e.changed:
			if err := e.enforce(); err != nil {
				e.err = err
				return
			}
		}
	}
}

// enforce sets the rules of the present state if they have changed.
func (e *Enforcer) enforce() error {
	var s PolicyState
	var errs [3]error
	core, network := e.factory.Core().V1(), e.factory.Networking().V1()
	s.Policies, errs[0] = network.NetworkPolicies().Lister().List(labels.Everything())
	s.Namespaces, errs[1] = core.Namespaces().Lister().List(labels.Everything())
	s.Pods, errs[2] = core.Pods().Lister().List(labels.Everything())
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("enforce network policies: %w", err)
	}
	rules, err := PolicyRules(s)
	if err != nil {
		return fmt.Errorf("enforce network policies: %w", err)
	}
	if rules == e.last {
		return nil
	}
	c := exec.Command(e.command, "-f", "-")
	c.Env, c.Stdin = e.environment, strings.NewReader(rules)
	c.WaitDelay = time.Minute
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("nft rejects the rules of the network policies: %w: %s", err, out)
	}
	e.last = rules
	return nil
}

// Stop stops the enforcer and leaves the rules in place. It returns the error if the
// enforcer had already ended with one.
func (e *Enforcer) Stop() error {
	close(e.stop)
	<-e.done
	e.factory.Shutdown()
	return e.err
}
