package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// fault is one that can be brought.
type fault struct {
	name, sentence string
	// lasts is how long it lasts, 0 if it is over at once; then recovery counts from its
	// beginning, otherwise from its end.
	lasts time.Duration
	// prepare, if set, does what must be done before the load; bring brings the fault
	// and returns when it is over. Both give [trial.after] what is to be undone. An error
	// that wraps errNotHere says why the fault cannot be brought on this machine.
	prepare, bring func(ctx context.Context, t *trial) error
}

// errNotHere is why a fault cannot be brought on this machine.
var errNotHere = errors.New("it cannot be brought here")

// catalogue is all of them, in the order in which they are brought.
var catalogue = []fault{
	{"killed", "An instance is killed every second, five times.", 5 * time.Second, nil, killed},
	{"stopped", "An instance gets SIGSTOP and is never continued.", 0, nil, stopped},
	{"slowed", "An instance has a tenth of its CPU quota for 10 s.", 10 * time.Second, nil, slowed},
	{"provider_killed", "The provider is killed, and started again as a supervisor would.", 0, nil, providerKilled},
	{"provider_and_instances_killed", "The provider and all instances are killed at once, and the provider is started again.", 0, nil, allKilled},
	{"nats_cut", "The connections between gateway and queue are cut for 5 s.", 5 * time.Second, nil, natsCut},
	{"disk_full", "The provider's directory is on a file system that is full for 20 s.", 20 * time.Second, smallDisk, diskFull},
	{"memory_pressure", "All instances together have 16 MiB more memory than they hold, and a process fills that for 10 s.", 10 * time.Second, nil, memoryPressure},
	{"cores_taken", "A process for each core computes for 30 s, with the priority that processes have.", 30 * time.Second, nil, coresTaken},
	{"clock", "The clock of provider, gateway and instances goes an hour forward, two hours back after 4 s, and an hour forward after 4 s; instances must not multiply.", 12 * time.Second, patchClocks, clockMoved},
	{"idle_sockets", "1,000 clients announce a body of 32 MiB and send nothing for 10 s.", 10 * time.Second, nil, idleSockets},
	{"slow_senders", "200 clients send a body of 1 MiB at 1 KiB/s for 10 s.", 10 * time.Second, nil, slowSenders},
	{"slow_readers", "Within 2 s, 100 clients send 2 MiB to the ordinary function or to one without exec_timeout, and read the answers at 1 KiB/s until 10 s are over.", 10 * time.Second, patientFunction, slowReaders},
	{"cold_burst", "10,000 requests come to the provider within 2 s for a model without instances.", 5 * time.Second, coldFunction, coldBurst},
	{"redeployed", "A function is deployed again every second, nine times in turn.", 9 * time.Second, nil, redeployed},
	{"descriptors", "The provider may open three descriptors more than it has for 5 s, in which 50 clients connect and wait.", 5 * time.Second, nil, descriptors},
	{"forks", "An ordinary function forks until it is refused, at most 3,000 times, for 10 s.", 10 * time.Second, forker, forks},
	{"model_memory", "Requests make a model in Python take more memory than its limit, for 8 s.", 8 * time.Second, hungryModel, modelMemory},
	{"answers", "Ten asynchronous requests of one byte each have an answer of 67 MB that nobody is called back with.", 10 * time.Second, largeAnswers, answers},
	{"heads", "18,000 connections to the provider send 60 KB of a head that never ends, for 10 s.", 10 * time.Second, nil, heads},
	{"logs", "An ordinary function prints 1 GB, for 10 s at most.", 10 * time.Second, noisy, logs},
	{"telemetry", "The network has a way out and a resolver on it, and all instances start again and a new model is measured: for 15 s nothing may be sent there.", 15 * time.Second, watchNetwork, telemetry},
	{"endless_model", "A model whose run never ends is deployed, and then a good one: that must answer within 20 s, and the first be refused or say why it does not serve.", 20 * time.Second, nil, endlessModel},
	{"hostile_models", "Models with four million operators, with 100,000 warnings and with a tensor of 8 GiB are deployed: within 20 s the provider must say why the first and the last do not serve, and grow by 128 MiB at most.", 20 * time.Second, nil, hostileModels},
	{"callbacks_home", "Deployments come to the provider's own address as callbacks, by a redirect, and from a function: none may be taken in 5 s.", 5 * time.Second, postman, callbacksHome},
	{"program_fails", "One of two instances of a program answers 500 at once, for 10 s: after 5 s 95 % of its requests must be answered well.", 10 * time.Second, echoes, programFails},
	{"model_fails", "One of two instances of a model answers 500 at once, for 10 s: after 5 s 95 % of its requests must be answered well.", 10 * time.Second, failingModel, modelFails},
	{"worker_stopped", "A worker of a model that is cut gets SIGSTOP and is never continued: after 5 of 15 s 95 % of the requests must be answered well.", 15 * time.Second, cutModel, workerStopped},
	{"frozen", "An instance is frozen for 10 s, so that not even SIGKILL ends it.", 10 * time.Second, nil, frozen},
	{"hiccups", "A model takes longer than its objective in 5 % of its executions, whatever its share, for 30 s: its CPU must not be more than doubled at the end.", 30 * time.Second, hiccupModel, hiccups},
	{"parked", "The provider's file system is full for 10 s, in which a parked model gets requests: its instance must answer all of them and go on.", 10 * time.Second, parkedModel, parked},
	{"narrow_burst", "Eight requests at once come to a program without instances that takes one at a time, again and again for 5 s: none may be refused with 429.", 5 * time.Second, narrow, narrowBurst},
}

// names of all faults.
func names() (all []string) {
	for _, f := range catalogue {
		all = append(all, f.name)
	}
	return all
}

// List prints the faults, with a sentence on each.
func List(w io.Writer) error {
	for _, f := range catalogue {
		if _, err := fmt.Fprintf(w, "%-30s %s\n", f.name, f.sentence); err != nil {
			return err
		}
	}
	return nil
}

// chosen are the faults of these names, all if there are none, in the catalogue's order.
func chosen(only []string) (all []fault, err error) {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("--only: there is no fault %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	for _, f := range catalogue {
		if len(only) == 0 || slices.Contains(only, f.name) {
			all = append(all, f)
		}
	}
	return all, nil
}
