package node_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

func TestMain(m *testing.M) { os.Exit(node.Run(m.Run)) }

func isolated(t *testing.T) {
	t.Helper()
	if !node.Isolated() {
		t.Skip("*** NO NAMESPACES: this machine gives none of our own ***")
	}
}

// The namespaces have their own network and processes. The directories that a node writes
// to under fixed names are empty.
func TestNamespaces(t *testing.T) {
	isolated(t)
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var v4 []string
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			v4 = append(v4, ip.String())
		}
	}
	slices.Sort(v4)
	if !slices.Equal(v4, []string{node.NodeAddress, "127.0.0.1"}) {
		t.Errorf("addresses %v", v4)
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		if err := node.IPv6Possible(); err != nil {
			t.Error(err)
		}
	}
	if os.Getppid() != 1 {
		t.Errorf("the parent of the tests is process %d", os.Getppid())
	}
	if files, err := os.ReadDir("/var/lib/kubelet"); err != nil || len(files) > 0 {
		t.Errorf("/var/lib/kubelet has %v, %v", files, err)
	}
	for _, host := range node.Hub {
		if found, err := net.LookupHost(host); err != nil || !slices.Equal(found, []string{node.HubAddress}) {
			t.Errorf("%s is at %v, %v", host, found, err)
		}
	}
}

// Processes in the cgroups are killed at any depth, and the cgroups are removed.
func TestCgroups(t *testing.T) {
	isolated(t)
	name := node.Cgroup()
	if err := node.MakeCgroups(name); err != nil {
		t.Fatal(err)
	}
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if whole := filepath.Join("/sys/fs/cgroup", name); len(tops) == 0 {
		tops = []string{whole} // Version 2 has one hierarchy.
	}
	below := filepath.Join(tops[0], "below")
	sleeper := exec.Command("sleep", "300")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	err = os.Mkdir(below, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0)
	}
	if err != nil {
		t.Error(err)
	}
	if err := node.KillCgroups(name); err != nil {
		t.Error(err)
	}
	if err := sleeper.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if err := node.RemoveCgroups(name); err != nil {
		t.Error(err)
	}
	for _, top := range tops {
		if _, err := os.Stat(top); err == nil {
			t.Errorf("%s is left", top)
		}
	}
}
