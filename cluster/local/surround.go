package local

import (
	"path/filepath"
	"syscall"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
)

// EnvNetwork is the variable of an instance's environment that asks for a private
// network if its value is PrivateNetwork.
const (
	EnvNetwork     = "FAAS_INFER_NETWORK"
	PrivateNetwork = "private"
)

// defaultScratch is how many bytes a function without a memory limit may write to its
// private directories.
const defaultScratch = 512 << 20

// surroundings hold what a process gets at its start in addition to its command.
type surroundings struct {
	env []string
	// groups become the descriptors after readyFD.
	groups cgroup.Entrance
}

// surround prepares an instance's isolation. It changes attr so that the process starts
// in namespaces of its own.
func (e *entry) surround(attr *syscall.SysProcAttr) (s surroundings, err error) {
	b := e.backend
	spec := e.record.Spec
	var entry string
	switch {
	case spec.Kind == cluster.Process:
		s, entry, err = e.confine(attr)
	case b.sandboxed:
		entry, err = sandbox.Prepare(attr, spec.Secrets)
	}
	if err != nil {
		return s, err
	}
	if entry != "" {
		s.env = append(s.env, entry)
	}
	if b.sandboxed && (spec.Kind != cluster.Process || b.isolated) {
		return s, nil
	}
	dir := filepath.Join(b.layout.instance(spec.ID), "secrets")
	s.env = append(s.env, sandbox.EnvSecretsDir+"="+dir)
	if len(spec.Secrets) == 0 {
		return s, nil
	}
	if err := sandbox.CopySecrets(dir, spec.Secrets); err != nil {
		s.groups.Close()
		return s, err
	}
	return s, nil
}

// confine does the same for an instance of an ordinary function.
func (e *entry) confine(attr *syscall.SysProcAttr) (s surroundings, entry string, err error) {
	b := e.backend
	spec := e.record.Spec
	f := sandbox.Function{
		Isolated: b.isolated, Bundle: spec.Bundle, ReadOnly: spec.ReadOnlyRoot, Scratch: defaultScratch,
		User: e.record.User, PrivateNetwork: b.isolated && spec.Env[EnvNetwork] == PrivateNetwork,
	}
	if b.isolated {
		f.Secrets = spec.Secrets
		f.Hide = append([]string{b.layout.dir}, b.options.Hide...)
	}
	if b.isolated {
		f.Mask = b.gpus.Files(&spec)
	}
	if spec.Limits.Memory > 0 {
		// Scratch files count as memory. If they could fill all of it, no process
		// could run to remove them.
		f.Scratch = spec.Limits.Memory / 2
	}
	if e.group != nil {
		if s.groups, err = e.group.Inner().Entrance(); err != nil {
			return s, "", err
		}
		f.Entrance = s.groups
	}
	if entry, err = sandbox.PrepareFunction(attr, f, readyFD+1); err != nil {
		s.groups.Close()
		return surroundings{}, "", err
	}
	return s, entry, nil
}
