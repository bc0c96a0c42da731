// Package cluster defines the types that every decision uses (node, config,
// resources, instance) and the [Backend] interface through which drivers start
// and stop instances. Its sub-packages are the backends: cluster/local runs
// instances as processes in cgroups, cluster/kubernetes as pods.
//
// The package itself is pure: no clock, no goroutine, no socket. Begin reading at
// [InstanceSpec] and [Backend].
package cluster

import (
	"cmp"
	"fmt"
	"time"
)

// Resources is an amount of what a node has and an instance takes.
type Resources struct {
	// CPU in millicores.
	CPU int `json:"cpu"`
	// GPU in % of one GPU's SMs; a node with two GPUs has 200.
	GPU int `json:"gpu"`
	// Memory in bytes.
	Memory int64 `json:"memory"`
	// GPUMemory in bytes.
	GPUMemory int64 `json:"gpuMemory,omitzero"`
	// Mapped is the part of Memory that the instances of a node have together. Sums and
	// differences of resources have none: they count all of Memory, which is never too little.
	Mapped Mapping `json:"mapped,omitzero"`
}

// Fits reports whether r fits into free in every dimension.
func (r Resources) Fits(free Resources) bool {
	return r.CPU <= free.CPU && r.GPU <= free.GPU && r.Memory <= free.Memory && r.GPUMemory <= free.GPUMemory
}

// Add returns r + o, dimension by dimension.
func (r Resources) Add(o Resources) Resources {
	return Resources{CPU: r.CPU + o.CPU, GPU: r.GPU + o.GPU, Memory: r.Memory + o.Memory, GPUMemory: r.GPUMemory + o.GPUMemory}
}

// Sub returns r - o, dimension by dimension.
func (r Resources) Sub(o Resources) Resources {
	return Resources{CPU: r.CPU - o.CPU, GPU: r.GPU - o.GPU, Memory: r.Memory - o.Memory, GPUMemory: r.GPUMemory - o.GPUMemory}
}

// Parked returns the part of r that an instance keeps while it is parked: memory and
// GPU memory. Other instances may use its CPU and GPU share.
func (r Resources) Parked() Resources {
	return Resources{Memory: r.Memory, GPUMemory: r.GPUMemory, Mapped: r.Mapped}
}

// Config is an instance's ⟨b, c, g⟩ (INFless §3.4) and its memory.
type Config struct {
	// Batch is b, the maximum number of requests in one execution.
	Batch int `json:"batch"`
	// Parts is the number of members of a set ([InstanceSpec.Set]), 0 or 1 for an instance
	// that is no set. The resources are those of all members together, of each the same.
	Parts int `json:"parts,omitempty"`
	// Concurrency is the number of batches that the instance executes at the same time, 0 for 1.
	Concurrency int `json:"concurrency,omitempty"`
	// Active is the number of a set's members that compute at the same time, 0 for all: the
	// others wait for them. All members are then on one node, hold the CPU together, and each may
	// use its part of it among the active ones. A set that is Apart may be on several nodes:
	// each of its members holds what it may use.
	Active int  `json:"active,omitempty"`
	Apart  bool `json:"apart,omitempty"`
	// Most is the CPU in millicores that a member may use if that is more than it holds, or 0.
	Most int `json:"most,omitempty"`
	Resources
}

// Keeping returns c with the memory of a running instance's config has. An instance keeps the memory with which
// it started, and what of it it maps, even if later ones of its function get another amount.
func (c Config) Keeping(has Config) Config {
	c.Memory, c.Mapped = has.Memory, has.Mapped
	return c
}

// Members returns the number of processes or pods of an instance with the config.
func (c Config) Members() int { return max(1, c.Parts) }

// Each returns the resources of one member.
func (c Config) Each() Resources {
	n := c.Members()
	if n == 1 {
		return c.Resources
	}
	return Resources{CPU: c.CPU / n, GPU: c.GPU / n, Memory: c.Memory / int64(n), GPUMemory: c.GPUMemory / int64(n)}
}

// sharing is the number of members that the CPU is for.
func (c Config) sharing() int {
	if c.Active > 0 && !c.Apart {
		return min(c.Active, c.Members())
	}
	return c.Members()
}

// Computes is the CPU in millicores of the members that compute at the same time for one batch.
func (c Config) Computes() int {
	if c.Apart && c.Active > 0 {
		return c.CPU / c.Members() * min(c.Active, c.Members())
	}
	return c.CPU
}

// Together reports whether the members must be on one node, because they share its CPU.
func (c Config) Together() bool { return c.sharing() < c.Members() }

// Share returns the config of one member: the same, with the resources of Each. For example
// three members of which one computes at a time and that have 1000m together hold 333m each, and
// may use 1000m.
func (c Config) Share() Config {
	if c.Most = 0; c.Together() {
		c.Most = c.CPU / c.sharing()
	}
	c.Resources = c.Each()
	return c
}

// Sum is the inverse of Share: it returns the config of a set whose members have the config c.
func (c Config) Sum() Config {
	n := c.Members()
	if n == 1 && c.Most == 0 {
		return c
	}
	cpu := c.CPU * n
	if c.Most > 0 {
		cpu = c.Most * c.sharing()
	}
	c.Resources = Resources{CPU: cpu, GPU: c.GPU * n, Memory: c.Memory * int64(n), GPUMemory: c.GPUMemory * int64(n)}
	c.Most = 0
	return c
}

// Quota is the CPU in millicores that an instance with the config, or a member, may use.
func (c Config) Quota() int { return max(c.CPU, c.Most) }

// Threads returns the number of engine threads for the config's quota:
// ceil(millicores / 1000), at least one. With more threads than quota, the threads
// throttle each other.
func (c Config) Threads() int { return max(1, (c.Quota()+999)/1000) }

// CheckResize refuses a config to which a running instance cannot change: one that differs in more than the CPU
// quota, or whose quota needs another number of threads.
func (c Config) CheckResize(to Config) error {
	same := c
	same.CPU, same.Most = to.CPU, to.Most
	switch {
	case same != to:
		return fmt.Errorf("from %v to %v more than the CPU quota would change; start another instance instead", c, to)
	case c.Threads() != to.Threads():
		return fmt.Errorf("it has %d threads, but %d millicores need %d; start another instance instead", c.Threads(), to.Quota(), to.Threads())
	}
	return nil
}

// String prints ⟨b,c,g⟩ as ⟨8,1000m,0%⟩.
func (c Config) String() string {
	return fmt.Sprintf("⟨%d,%dm,%d%%⟩", c.Batch, c.CPU, c.GPU)
}

// Node is one machine.
type Node struct {
	Name string `json:"name"`
	// Type tells unlike nodes apart: those of one type are equally fast. It is "" if the backend
	// does not know it.
	Type string `json:"type,omitempty"`
	// Total is what all instances together may take of the node.
	Total Resources `json:"total"`
	// Free is Total less what running and starting instances hold.
	Free Resources `json:"free"`
	// Others is what instances hold that the caller does not see, such as
	// instances of the other kind.
	Others Resources `json:"others,omitzero"`
	// Mapped are the files that instances of the node map, by name. Total, Free and Others count each
	// once.
	Mapped []MappedFile `json:"mapped,omitempty"`
	// Devices are its GPUs; nil if it has none or does not list them. The GPU of Total and Free
	// is their sum, for Eq. 10 of INFless; whether a share has room is [Node.Fits].
	Devices []DeviceRoom `json:"devices,omitempty"`
}

// InstanceID names one instance. It is a DNS label and is never reused.
type InstanceID string

// State is where an instance stands in its life.
type State string

// The states, in the order in which an instance passes through them.
const (
	// Starting: the process or pod exists, the model is not loaded yet.
	Starting State = "starting"
	// Ready: it answers batches.
	Ready State = "ready"
	// Stopping: it finishes its requests and takes no new ones.
	Stopping State = "stopping"
	// Exited: it is gone.
	Exited State = "exited"
)

// Kind tells what an instance runs.
type Kind string

// The kinds.
const (
	// Model: one model, answering batches. It is the zero value because older
	// records of instances have no kind.
	Model Kind = ""
	// Process: an ordinary function's program behind a watchdog, answering
	// HTTP requests one to one.
	Process Kind = "process"
)

// Role is what a model's instance does for its function.
type Role string

// The roles.
const (
	// Body: it holds the whole model, answers requests, and may have shadows (AsyFunc). It is the
	// zero value: an instance without shadows is a body, too.
	Body Role = ""
	// Shadow: it holds a part of the model and computes rows of a body's batches. It gets no
	// requests itself.
	Shadow Role = "shadow"
	// Trial: it measures its model with a whole GPU, gets no requests and ends then.
	Trial Role = "trial"
)

// Whole is the artefact name of a function's complete model, as it was deployed.
const Whole = ""

// Artefact is what an instance loads of its function: the complete model, a part of it
// or a variant of it.
type Artefact struct {
	// Name tells a function's artefacts apart.
	Name string `json:"artefact,omitempty"`
	// Bundle is the directory (local) or image (cluster) with the model or the
	// program.
	Bundle string `json:"bundle"`
	// Model is the model file inside the bundle; "" for a process.
	Model string `json:"model"`
	// Original is the file from which Model was prepared for this kind of CPU. An instance on a
	// GPU loads it; "" for one on the CPU.
	Original string `json:"original,omitempty"`
	// Images says how the model expects images, as the deployment declares it; "" if
	// it takes none.
	Images string `json:"images,omitempty"`
	// Shapes has the usual sizes of the model's free dimensions and MaxShapes the largest that a
	// request may have, as tensor.ParseShapes reads them; "" if the deployment does not say.
	Shapes    string `json:"shapes,omitempty"`
	MaxShapes string `json:"maxShapes,omitempty"`
	// MaxLength is the maximum number of tokens of a text, 0 for the bundle's. RefuseLong: longer ones are refused.
	MaxLength  int  `json:"maxLength,omitempty"`
	RefuseLong bool `json:"refuseLong,omitempty"`
	// Text identifies how the model takes texts, by its bundle's settings and tokenizer; "" if it takes none, or if Bundle
	// says it.
	Text string `json:"text,omitempty"`
	// Plan says how the model is cut over the members of a set, as the JSON of a cut.Plan;
	// "" if it is not cut.
	Plan string `json:"plan,omitempty"`
}

// InstanceSpec is all that a backend needs to start an instance.
type InstanceSpec struct {
	ID   InstanceID `json:"id"`
	Kind Kind       `json:"kind,omitempty"`
	// Function is the function's full name, "name.namespace".
	Function string `json:"function"`
	// Revision counts the function's deployments; an update raises it, and
	// instances of an older revision are replaced.
	Revision uint64 `json:"revision"`
	// Node is the name of the node that the scheduler chose. Nodes are those of a set's
	// members, by member, if they are not all on Node.
	Node  string   `json:"node"`
	Nodes []string `json:"nodes,omitempty"`
	// Devices are GPUs of the node, by UUID: the one of which a model's instance has a share, or
	// those that a process has to itself. Before the start, it is the scheduler's choice, which
	// the backend follows while there is room; if it is empty, the backend chooses.
	Devices []string `json:"devices,omitempty"`
	// Set is the ID of the set of which this is a member, "" if it is none: a set, which
	// drivers see as one instance, is a model that is cut over several instances (Gillis).
	// Member is its number there; 0 is the master, which answers for the set and has its ID.
	Set    InstanceID `json:"set,omitempty"`
	Member int        `json:"member,omitempty"`
	// Role is what it does. Paired lets a body take shadows. A shadow holds Part of the model, as
	// the room of the paper reads it, for the instance Body; that changes when it is paired again.
	Role   Role       `json:"role,omitempty"`
	Paired bool       `json:"paired,omitempty"`
	Part   string     `json:"part,omitempty"`
	Body   InstanceID `json:"body,omitempty"`
	// Awaited: requests wait for it, because no instance of its function is ready. A backend may give it more CPU than its
	// config until it is ready.
	Awaited bool `json:"-"`
	// Config is what the instance holds of the node. An instance of a model may
	// use that and no more. An instance of a process holds what its function
	// requests, which may be nothing, and may use up to Limits.
	Config Config `json:"config"`
	// Parked: it has given back the CPU and GPU share in Config and keeps its
	// loaded model in memory. It gets no batch until it is resized.
	Parked bool `json:"parked,omitempty"`
	// Limits bound what a process's instance uses. A dimension that is 0 is
	// bounded by the node only. A model's limits are its Config.
	Limits Resources `json:"limits,omitzero"`
	// ReadOnlyRoot: the process cannot write to its bundle's directory either.
	ReadOnlyRoot bool `json:"readOnlyRoot,omitempty"`
	// Artefact is what it loads.
	Artefact
	// Fingerprint changes with everything that would make the instance run
	// differently. A driver that takes over the instance compares it with the
	// fingerprint of the deployment. "" if the other fields are sufficient.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Env is the function's environment.
	Env map[string]string `json:"env,omitempty"`
	// Secrets maps a secret's name to the file that holds its value; the
	// instance sees it as /var/openfaas/secrets/NAME.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Device returns the GPU of which a model's instance has a share; "" if it has none.
func (s *InstanceSpec) Device() string {
	if len(s.Devices) != 1 {
		return ""
	}
	return s.Devices[0]
}

// Holds returns what the instance takes of its node.
func (s *InstanceSpec) Holds() Resources {
	if s.Parked {
		return s.Config.Parked()
	}
	return s.Config.Resources
}

// Instance is one running copy of a function with one config on one node.
type Instance struct {
	InstanceSpec
	State State `json:"state"`
	// Network and Address are where it listens, in net.Dial's terms: "unix"
	// and a path locally, "tcp" and host:port on a cluster, or "tls" for TLS over TCP.
	Network string `json:"network"`
	Address string `json:"address"`
	// StartedAt is when the backend was asked to start it, ReadyAt when it
	// first answered. Their difference is t_cold (INFless §3.1).
	StartedAt time.Time `json:"startedAt"`
	ReadyAt   time.Time `json:"readyAt"`
	// Reason says why it exited, for people: "killed by signal 9",
	// "out of memory", the last line it printed.
	Reason string `json:"reason,omitempty"`
	// Blameless: its exit says nothing about the function. Its node did not take it, or the
	// cluster took it away.
	Blameless bool `json:"blameless,omitempty"`
}

// CompareAge orders instances: the oldest first, those of one moment by ID.
func CompareAge(a, b Instance) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
}

// RefusedError is the error of a start that says nothing about the function, such as one
// beyond a quota. The backend remembers it and lists no node for the function for a while.
type RefusedError struct{ Err error }

// Error returns the text of the wrapped error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *RefusedError) Unwrap() error { return e.Err }
