package local

import (
	"strings"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
)

// claimRights finds out which isolation this process may use and logs once what is
// missing.
func (b *Backend) claimRights() {
	lacking := append(b.claimGroups(), b.claimSandbox()...)
	if err := sandbox.FilterAvailable(); err != nil {
		lacking = append(lacking, "no filter of system calls: "+err.Error()+": ordinary functions may make all of them")
	}
	if len(lacking) > 0 {
		b.log.Warn().Strs("lacking", lacking).Msg("instances are not fully isolated")
	}
}

func (b *Backend) claimGroups() (lacking []string) {
	const consequence = ": only the number of threads is limited"
	if b.options.NoCgroups {
		return []string{"cgroups are switched off" + consequence}
	}
	tree, err := cgroup.Open(b.options.CgroupParent, b.pins())
	if err != nil {
		return []string{err.Error() + consequence}
	}
	b.tree = tree
	if b.options.Favour {
		if err := tree.Join(); err != nil {
			b.log.Warn().Err(err).Msg("the provider has no CPU priority over other processes")
		}
	}
	if missing := tree.Missing(); len(missing) > 0 {
		return []string{"no limits on " + strings.Join(missing, ", ") + ": cgroup controllers not available"}
	}
	return nil
}

func (b *Backend) claimSandbox() (lacking []string) {
	const (
		elsewhere = ": instances find them in the directory that " + sandbox.EnvSecretsDir + " names"
		visible   = ": ordinary functions see the machine's files and processes"
		same      = ": ordinary functions run as the provider's user"
	)
	if b.options.NoSandbox {
		return []string{"private mounts for secrets are switched off" + elsewhere, "private file systems are switched off" + visible}
	}
	if err := sandbox.Available(); err != nil {
		return []string{"no private mounts for secrets: " + err.Error() + elsewhere, "no private file systems" + visible}
	}
	b.sandboxed = true
	if err := sandbox.FunctionAvailable(); err != nil {
		return []string{"no private file systems: " + err.Error() + visible}
	}
	b.isolated = true
	if err := sandbox.UsersAvailable(); err != nil {
		return []string{err.Error() + same}
	}
	b.users = true
	return nil
}
